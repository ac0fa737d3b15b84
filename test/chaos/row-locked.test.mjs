// psql keeps rows of seats locked for five seconds: requests for these seats wait, and no other request
// is delayed, because each kind of work has its own connections to PostgreSQL.
import assert from 'node:assert/strict';

import { PSQL } from '../e2e/support/cluster.mjs';
import { launch, pause, until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const LOCKED_MS = 5000;
// How much slower the machine may be from one moment to the next.
const NOISE = 4;
const NOISE_MS = 250;

const LOCKED = { section: 'D', strategy: 'pessimistic', seats: [1] };

// How long each took, from now until `over`.
async function measure(load, guest, over) {
  const took = { enter: [], status: [], events: [] };
  let isOver = false;
  over.then(() => (isOver = true));
  const asks = {
    // In the last lane, so that these idle users delay no others.
    enter: (node, i) => node.admin('POST', `/queue/${load.name}/enter`, { userId: `passer-by-${performance.now()}-${i}`, lane: 15 }),
    status: (node) => node.call('GET', `/queue/${load.name}/status`, { headers: guest.headers }),
    events: (node) => node.call('GET', '/events'),
  };
  const loop = async (verb, node) => {
    for (let i = 0; !isOver; i++) {
      const began = performance.now();
      const { status, text } = await asks[verb](node, i);
      took[verb].push(performance.now() - began);
      assert.ok(status < 300, text);
      await pause(10);
    }
  };
  const { nodes } = load.cluster;
  await Promise.all(Object.keys(asks).flatMap((verb) => nodes.map((node) => loop(verb, node))));
  return took;
}

const p99 = (times) => times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)];

chaos('rows of seats that are locked for 5 s leave enter, status and /events as fast as they were', { load: { size: 24, activeTtlSeconds: 30 } }, async (cluster, load) => {
  const [guest, ...buyers] = await Promise.all([load.guest(), load.guest(), load.guest()]);
  const before = await measure(load, guest, pause(LOCKED_MS));

  const section = "(SELECT id FROM sections WHERE code = 'D')";
  const held = `BEGIN; SELECT count(*) FROM (SELECT FROM seats WHERE section_id = ${section} FOR UPDATE) t;`;
  const psql = launch([PSQL, cluster.env.POSTGRES_URL, '-qAtX', '-c', `${held} SELECT pg_sleep(${LOCKED_MS / 1000}); ROLLBACK`]);
  await until('the rows are locked', async () => {
    const [{ n }] = await cluster.ask("SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    return n === 1;
  });
  const began = performance.now();
  const waiting = buyers.map((person, i) => load.ask('hold locked', 'POST', '/reservations', {
    headers: person.headers,
    body: { eventType: load.type, eventId: load.id, ...LOCKED },
    timeoutMs: 30000,
  }, cluster.nodes[i]).then((answer) => ({ answer, ms: performance.now() - began })));
  const during = await measure(load, guest, psql.ended);
  assert.ok(performance.now() - began > LOCKED_MS * 0.8, 'the rows were locked all the time');
  for (const { ms } of await Promise.all(waiting)) assert.ok(ms > LOCKED_MS * 0.6, `who needs the seat waits: ${ms} ms`);
  for (const verb of Object.keys(before)) {
    const limit = Math.max(p99(before[verb]) * NOISE, NOISE_MS);
    load.done[`${verb} p99`] = [p99(before[verb]), p99(during[verb])].map((ms) => Math.round(ms));
    assert.ok(during[verb].length > 20, `${verb}: ${during[verb].length}`);
    assert.ok(p99(during[verb]) <= limit, `${verb}: p99 was ${p99(before[verb])} ms, and is ${p99(during[verb])} ms`);
  }
});
