// Sentinels promote a replica that lacks the writes of the last seconds.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';

import { until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const redis = (port, ...words) => execFileSync('redis-cli', ['-h', '127.0.0.1', '-p', port, ...words], { encoding: 'utf8', timeout: 20000 }).trim();
const lastOf = (port) => Number(/master_repl_offset:(\d+)|slave_repl_offset:(\d+)/.exec(redis(port, 'INFO', 'replication')).slice(1).find(Boolean));

chaos('pitfall 31: a fail-over to a replica that lags is noticed, and it is rebuilt under the next epoch', { sentinel: true }, async (cluster, load) => {
  const { SENTINEL_MASTER_PORT: master, SENTINEL_REPLICA_PORT: replica, SENTINEL_MASTER_PID: pid } = cluster.env;
  const before = await cluster.epoch();
  // From now on the replica gets no writes.
  redis(master, 'ACL', 'SETUSER', 'default', '-psync', '-sync');
  redis(master, 'CLIENT', 'KILL', 'TYPE', 'replica');
  await until('the replica is alone', () => /master_link_status:down/.test(redis(replica, 'INFO', 'replication')));
  load.mark();
  await load.succeeds(6);
  assert.ok(lastOf(master) > lastOf(replica) + 1000, 'the replica lags');
  process.kill(Number(pid), 'SIGKILL');
  await until('the replica is the master', () => /role:master/.test(redis(replica, 'INFO', 'replication')));
  await until('the next incarnation', async () => {
    const { number, identity } = await cluster.epoch();
    return number > before.number && identity !== '';
  }, 15000);
  load.mark();
  await load.succeeds(8);
  assert.equal((await cluster.epoch()).number, before.number + 1, 'it was rebuilt once');
});
