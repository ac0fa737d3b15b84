// Redis loses its data while it runs: first its keys, then its functions too.
import assert from 'node:assert/strict';

import { until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

chaos('pitfall 31: a Redis that was flushed is rebuilt from the ledger, once, under the next epoch', {}, async (cluster, load) => {
  for (const words of [[], ['functions too']]) {
    const before = await cluster.epoch();
    if (words.length > 0) await cluster.redisCli('FUNCTION', 'FLUSH');
    await cluster.redisCli('FLUSHALL');
    await until('the next incarnation', async () => {
      const { number, identity } = await cluster.epoch();
      return number === before.number + 1 && identity !== '';
    });
    load.mark();
    await load.succeeds(10);
    assert.equal((await cluster.epoch()).number, before.number + 1, 'exactly one node rebuilds, once');
  }
  assert.equal(await cluster.metric('admitone_hot_rebuilds_total'), 3, 'the first incarnation, and one for each flush');
});
