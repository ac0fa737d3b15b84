// kill -9 of a node under load; a fresh one joins, and the others need not know.
import assert from 'node:assert/strict';

import { test } from '../e2e/support/server.mjs';
import { check } from './support/check.mjs';
import { Cluster } from './support/cluster.mjs';
import { Crowd } from './support/crowd.mjs';

test('traps 13, 31: kill -9 of a node loses nothing that anybody was told, and a fresh one joins', async () => {
  const cluster = await Cluster.start();
  const crowd = await Crowd.gather(cluster);
  crowd.begin();
  await crowd.succeeds(20);
  for (let round = 0; round < 2; round++) {
    await cluster.kill9(cluster.nodes[0]);
    crowd.mark();
    await crowd.succeeds(10);
    await cluster.join();
    crowd.mark();
    await crowd.succeeds(10);
  }
  await crowd.end();
  assert.equal(await cluster.metric('admitone_hot_rebuilds_total'), 0, 'who joins leaves Redis as it is');
  await check(crowd);
  await cluster.stop();
  console.log(JSON.stringify(crowd.summary()));
});
