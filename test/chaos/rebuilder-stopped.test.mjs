// A node that stands still (SIGSTOP) while it fills Redis for the next life: another one overtakes
// it, and what it does when it goes on comes too late.
import assert from 'node:assert/strict';

import { launch, until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '2000'];
// PG_SILENT_MS of src/ledger/postgres_db.h is 10 s; the rest is for a busy machine.
const OVERTAKEN_MS = 60000;
const SLEEPER = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";

// Nobody reads events until `open` is called: so the filling stands where it reads the ledger.
async function shutEvents(cluster) {
  const psql = launch(['psql', cluster.env.POSTGRES_URL, '-qAtX', '-c', 'BEGIN; LOCK TABLE events; SELECT pg_sleep(60)']);
  await until('the table is locked', async () => (await cluster.ask(`SELECT 1 ${SLEEPER}`)).length === 1);
  return async function open() {
    await cluster.ask(`SELECT pg_terminate_backend(pid) ${SLEEPER}`);
    await psql.ended;
  };
}

// The one that fills Redis, which has lost everything.
async function stopFiller(cluster) {
  const open = await shutEvents(cluster);
  const fills = (node) => node.stderr.split('rebuilding redis').length;
  const before = cluster.nodes.map(fills);
  await cluster.redisCli('FLUSHALL');
  const filler = await until('a node fills it', () => cluster.nodes.find((node, i) => fills(node) > before[i]));
  await until('it has begun', async () => (await cluster.redisCli('EXISTS', 'admitone:{hot}:filling')) === '1');
  filler.signal('SIGSTOP');
  await open();
  return filler;
}

chaos('pitfall 31: a node that stands still while it rebuilds Redis is replaced by another, and damages nothing', { args, load: { activeTtlSeconds: 90 } }, async (cluster, load) => {
  const first = await cluster.epoch();
  const stopped = await stopFiller(cluster);
  const other = cluster.nodes.find((node) => node !== stopped);
  const filling = await cluster.epoch();
  assert.deepEqual(filling, { number: first.number + 1, identity: '' }, 'it was stopped amid the filling');
  await until('the other node has opened a life', async () => (await cluster.epoch()).identity !== '', OVERTAKEN_MS);
  await until('and serves', async () => (await other.call('GET', '/ready')).status === 200);
  assert.ok(await load.enter(load.newPerson(), other));
  const life = await cluster.epoch();
  assert.equal(life.number, filling.number + 1);

  const redisLife = await cluster.redisCli('HGETALL', 'admitone:{hot}:life');
  stopped.signal('SIGCONT');
  await cluster.isWell();
  load.mark();
  await load.succeeds(8);
  assert.deepEqual(await cluster.epoch(), life, 'it is the life that it was');
  assert.equal(await cluster.redisCli('HGETALL', 'admitone:{hot}:life'), redisLife);
  assert.equal(await cluster.metric('admitone_hot_rebuilds_total'), 2, 'the first life, and that of the other node');
});
