// A node is stopped (SIGSTOP) while it rebuilds Redis. Another node takes over; when the first one
// continues, its writes are refused.
import assert from 'node:assert/strict';

import { PSQL } from '../e2e/support/cluster.mjs';
import { launch, until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '2000'];
// PG_SILENT_MS of src/ledger/postgres_db.h is 10 s; the rest is for a busy machine.
const OVERTAKEN_MS = 60000;
const SLEEPER = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";

// Locks the table of events until `open` is called, so that a rebuild waits where it reads them.
async function shutEvents(cluster) {
  const psql = launch([PSQL, cluster.env.POSTGRES_URL, '-qAtX', '-c', 'BEGIN; LOCK TABLE events; SELECT pg_sleep(60)']);
  await until('the table is locked', async () => (await cluster.ask(`SELECT 1 ${SLEEPER}`)).length === 1);
  return async function open() {
    await cluster.ask(`SELECT pg_terminate_backend(pid) ${SLEEPER}`);
    await psql.ended;
  };
}

// Empties Redis, and stops the node that rebuilds it.
async function stopRebuilder(cluster) {
  const open = await shutEvents(cluster);
  const rebuilds = (node) => node.stderr.split('rebuilding redis').length;
  const before = cluster.nodes.map(rebuilds);
  await cluster.redisCli('FLUSHALL');
  const rebuilder = await until('a node rebuilds it', () => cluster.nodes.find((node, i) => rebuilds(node) > before[i]));
  await until('it has begun', async () => (await cluster.redisCli('EXISTS', 'admitone:{hot}:rebuild')) === '1');
  rebuilder.signal('SIGSTOP');
  await open();
  return rebuilder;
}

chaos('pitfall 31: a node that stands still while it rebuilds Redis is replaced by another, and damages nothing', { args, load: { activeTtlSeconds: 90 } }, async (cluster, load) => {
  const first = await cluster.epoch();
  const stopped = await stopRebuilder(cluster);
  const other = cluster.nodes.find((node) => node !== stopped);
  const interrupted = await cluster.epoch();
  assert.deepEqual(interrupted, { number: first.number + 1, identity: '' }, 'it was stopped during the rebuild');
  await until('the other node has begun an incarnation', async () => (await cluster.epoch()).identity !== '', OVERTAKEN_MS);
  await until('and serves', async () => (await other.call('GET', '/ready')).status === 200);
  assert.ok(await load.enter(load.newPerson(), other));
  const incarnation = await cluster.epoch();
  assert.equal(incarnation.number, interrupted.number + 1);

  const inRedis = await cluster.redisCli('HGETALL', 'admitone:{hot}:incarnation');
  stopped.signal('SIGCONT');
  await cluster.isWell();
  load.mark();
  await load.succeeds(8);
  assert.deepEqual(await cluster.epoch(), incarnation, 'the incarnation is unchanged');
  assert.equal(await cluster.redisCli('HGETALL', 'admitone:{hot}:incarnation'), inRedis);
  assert.equal(await cluster.metric('admitone_hot_rebuilds_total'), 2, 'the first incarnation, and that of the other node');
});
