// Redis is restarted from a snapshot that is older than what it was.
import assert from 'node:assert/strict';

import { until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

chaos('pitfall 31: a Redis that comes back older than it was is noticed, and filled under the next epoch', {}, async (cluster, crowd) => {
  const before = await cluster.epoch();
  await cluster.redisCli('SAVE');
  crowd.mark();
  await crowd.succeeds(15);
  await cluster.stopService('redis');
  await cluster.startService('redis');
  assert.notEqual(await cluster.redisCli('DBSIZE'), '0', 'it has its snapshot');
  await until('the next life', async () => {
    const { number, identity } = await cluster.epoch();
    return number === before.number + 1 && identity !== '';
  });
  crowd.mark();
  await crowd.succeeds(10);
  assert.equal((await cluster.epoch()).number, before.number + 1);
});
