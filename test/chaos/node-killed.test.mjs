// A node under load is killed (SIGKILL) and a new one joins; the other nodes are not affected.
import assert from 'node:assert/strict';

import { chaos } from './support/chaos.mjs';

chaos('pitfalls 13, 31: kill -9 of a node loses nothing that was acknowledged, and a new node joins', {}, async (cluster, load) => {
  for (let round = 0; round < 2; round++) {
    await cluster.kill9(cluster.nodes[0]);
    load.mark();
    await load.succeeds(10);
    await cluster.join();
    load.mark();
    await load.succeeds(10);
  }
  assert.equal(await cluster.metric('admitone_hot_rebuilds_total'), 0, 'who joins leaves Redis as it is');
});
