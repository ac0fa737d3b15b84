// Makes a store unreachable for ten seconds, between `begin` and `end`, and checks which requests must
// succeed during the outage.
import assert from 'node:assert/strict';

import { pause, until } from '../../e2e/support/server.mjs';

const OUTAGE_MS = 10000;
// hot.deadline_ms: how long calls wait for an answer.
const HOT_DEADLINE_MS = 2000;

export async function redisOutage(cluster, load, begin, end) {
  const before = await cluster.epoch();
  const [leaver, ...holders] = await Promise.all(
    Array.from({ length: 5 }, async () => {
      const person = await load.guest();
      const hold = await load.hold(person, `${person.userId}-0`, { section: 'A', strategy: 'slot', quantity: 1 });
      return { person, hold };
    }),
  );
  begin();
  const over = pause(OUTAGE_MS);
  // Requests that do not need Redis succeed at once, on both nodes.
  await Promise.all(
    holders.map(({ person, hold }, i) =>
      i % 2 === 0 ? load.finish(person, hold, 'confirm', 'CONFIRMED') : load.finish(person, hold, 'cancel', 'CANCELLED'),
    ),
  );
  assert.deepEqual(holders.map(({ hold }) => hold.result), ['CONFIRMED', 'CANCELLED', 'CONFIRMED', 'CANCELLED']);
  // Leaving needs Redis, because it also releases the user's holds.
  const left = await cluster.nodes[0].call('DELETE', '/queue/CONCERT/1/leave', { headers: leaver.person.headers });
  leaver.person.leaves = true;
  assert.equal(left.status, 503, left.text);
  await pause(HOT_DEADLINE_MS + 1000);
  load.mark();
  await pause(3000);
  const seen = { ...load.since };
  assert.ok(load.count(/^status 200 degraded/) > 10, `places are answered from the ledger: ${JSON.stringify(seen)}`);
  assert.equal(load.count(/^status (?!200 degraded)/), 0, JSON.stringify(seen));
  assert.equal(load.count(/^(enter 20|hold \S+ 201|leave 204)/), 0, `the rest is 503: ${JSON.stringify(seen)}`);
  for (const node of cluster.nodes) {
    const entered = await node.call('POST', '/queue/CONCERT/1/enter', { body: { userId: 'latecomer' } });
    const wish = { eventType: 'CONCERT', eventId: '1', section: 'D', quantity: 1 };
    const held = await node.call('POST', '/reservations', { headers: leaver.person.headers, body: wish });
    for (const { status, json, text } of [entered, held]) assert.match(`${status} ${json?.code}`, /^503 hot_/, text);
  }
  await over;
  await end();
  await load.leave(leaver.person);
  const [{ status }] = await cluster.ask(`SELECT status FROM reservations WHERE id = '${leaver.hold.id}'`);
  assert.match(status, /CANCELLED|EXPIRED/, 'nothing is held for who has left');
  // When a user buys during the outage, the next one is admitted long before that place expires.
  const buyers = holders.filter(({ hold }) => hold.result === 'CONFIRMED');
  await until('Redis hears that they have finished', async () => {
    const places = await Promise.all(buyers.map(({ person }, i) => cluster.nodes[i].call('GET', '/queue/CONCERT/1/status', { headers: person.headers })));
    return places.every(({ json }) => json?.status === 'COMPLETED');
  });
  load.mark();
  await load.succeeds(8);
  assert.deepEqual(await cluster.epoch(), before, 'it is the Redis that it was');
}

export async function postgresOutage(cluster, load, begin, end) {
  begin();
  const over = pause(OUTAGE_MS);
  await pause(5000); // the deadline, and requests sent just before
  load.mark();
  await pause(3000);
  const seen = JSON.stringify(load.since);
  assert.ok(load.count(/^status 200$/) > 10, `positions go on: ${seen}`);
  assert.equal(load.count(/^status (?!200$)/), 0, `for everybody: ${seen}`);
  assert.equal(load.count(/^(enter|hold \S+|confirm|cancel|leave) 20/), 0, `nothing is acknowledged that can't be durable: ${seen}`);
  assert.ok(load.count(/ (ledger_\w+|node_behind)$/) > 0, `requests are refused: ${seen}`);
  await over;
  await end();
  load.mark();
  await load.succeeds(6);
}
