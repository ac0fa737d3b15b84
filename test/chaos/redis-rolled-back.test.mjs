// Redis is restarted from an old snapshot.
import assert from 'node:assert/strict';

import { until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

chaos('pitfall 31: a Redis that comes back with an older state is noticed, and rebuilt under the next epoch', {}, async (cluster, load) => {
  const before = await cluster.epoch();
  await cluster.redisCli('SAVE');
  load.mark();
  await load.succeeds(15);
  await cluster.stopService('redis');
  await cluster.startService('redis');
  assert.notEqual(await cluster.redisCli('DBSIZE'), '0', 'it has its snapshot');
  await until('the next incarnation', async () => {
    const { number, identity } = await cluster.epoch();
    return number === before.number + 1 && identity !== '';
  });
  load.mark();
  await load.succeeds(10);
  assert.equal((await cluster.epoch()).number, before.number + 1);
});
