// Events are changed while a node is stopped, dies, or can't reach the ledger: after the change is
// answered, no node sells with the old settings.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';

import { bearer } from '../e2e/support/queue.mjs';
import { Sale } from '../e2e/support/reservations.mjs';
import { call, test, until } from '../e2e/support/server.mjs';
import { Cluster } from './support/cluster.mjs';

const EVENT = '/admin/events/CONCERT/prices';
let cluster;
let a;
let b;
let price = 100;

before(async () => {
  cluster = await Cluster.start({ proxies: true });
  [a, b] = cluster.nodes;
  const sections = [{ id: 'A', capacity: 100, price }];
  assert.equal((await a.admin('PUT', EVENT, { title: 'Prices', maxPerUser: 100, queue: { maxActive: 100 }, sections })).status, 201);
});

after(async () => {
  await Promise.all(cluster.nodes.map((node) => node.stop()));
  await cluster.abandon();
});

// At node A. How long it took.
async function raisePrice() {
  const began = performance.now();
  const { status, text } = await a.admin('PATCH', `${EVENT}/sections/A`, { price: ++price });
  assert.equal(status, 200, text);
  return performance.now() - began;
}

// The node sells again, and then at the price that is in force.
async function sellsAgain(sale, buyer) {
  const { json, text } = await until('it sells again', async () => {
    const answer = await sale.hold(buyer);
    return answer.status !== 503 && answer;
  });
  assert.equal(json.price, price, text);
}

test('a node that stands still delays one change, and sells at no old price when it goes on', async () => {
  const sale = new Sale(b, 'CONCERT/prices');
  const buyer = await sale.buyer('anna');
  await b.freeze();
  const answers = Array.from({ length: 5 }, () => sale.hold(buyer));
  const first = await raisePrice();
  const second = await raisePrice();
  assert.ok(second < first / 2, `${first} and ${second} ms`);
  assert.match(a.stderr, /msg="nodes did not apply a change of an event in time; .*" nodes=1 node="\S+ 127\.0\.0\.1:\d+"/);
  b.signal('SIGCONT');
  for (const { status, json, text } of await Promise.all(answers)) {
    // A claim that the other node has undone in the meantime is a conflict.
    assert.ok(status === 201 || status === 503 || json.code === 'conflict', text);
    if (status === 201) assert.equal(json.price, price);
  }
  await sellsAgain(sale, buyer);
});

test('a node that cannot reach the ledger is not ready and sells nothing, until it has caught up', async () => {
  const sale = new Sale(b, 'CONCERT/prices');
  const buyer = await sale.buyer('berta');
  const held = await sale.held(buyer);
  b.postgres.refuse();
  const code = async (answer) => (await answer).json?.code;
  await until('its lease has ended', async () => (await code(sale.hold(buyer))) === 'node_behind');
  assert.equal(await code(sale.ask('celia')), 'node_behind');
  // Whether users may confirm and cancel may have been changed since.
  for (const verb of ['confirm', 'cancel']) assert.equal(await code(sale.finish(buyer, verb, held.id)), 'node_behind');
  assert.equal(await code(call(b, 'GET', '/events/CONCERT/unknown')), 'node_behind');
  assert.equal((await call(b, 'GET', '/events/CONCERT/prices')).status, 200);
  // It does not report events as missing that were created since.
  const later = await Sale.open(a, 'CONCERT/later', {}, { sections: [{ id: 'A', capacity: 100 }] });
  const { token } = await later.buyer('dora');
  const sections = [{ id: 'A', capacity: 100, price }, { id: 'B', capacity: 10, price }];
  assert.equal((await a.admin('PATCH', EVENT, { sections })).status, 200);
  assert.equal(await code(sale.hold(buyer, { section: 'B', quantity: 1 })), 'node_behind');
  assert.equal(await code(call(b, 'GET', '/events/CONCERT/prices/sections/B/seats')), 'node_behind');
  assert.equal(await code(b.call('GET', '/queue/status', { headers: bearer(token) })), 'node_behind');
  assert.equal(await code(b.call('GET', '/queue/CONCERT/later/status', { headers: bearer(token) })), 'node_behind');
  const ready = await call(b, 'GET', '/ready');
  assert.deepEqual([ready.status, ready.json.events], [503, 'behind']);
  await raisePrice();
  await b.postgres.accept();
  await sellsAgain(sale, buyer);
  await cluster.isWell();
});

test('events that do not exist cost the ledger few reads, however often they are asked for', async () => {
  let reads = 0;
  b.postgres.watch = (bytes) => {
    if (bytes.includes('REPEATABLE READ')) reads++;
  };
  const ask = async (id) => assert.equal((await call(b, 'GET', `/gate/CONCERT/${id}`)).status, 404);
  for (let i = 0; i < 300; i++) await ask('same');
  assert.ok(reads > 0 && reads < 60, `one name: ${reads} reads`);
  reads = 0;
  await Promise.all(Array.from({ length: 300 }, (_, i) => ask(`name-${i}`)));
  assert.ok(reads > 0 && reads < 60, `many names: ${reads} reads`);
  b.postgres.watch = undefined;
});

test('a node that is told to stop still answers a change only when the others can sell by it', async () => {
  const sale = new Sale(b, 'CONCERT/prices');
  const buyer = await sale.buyer('emil');
  const leaving = await cluster.join();
  await b.freeze();
  const change = leaving.admin('PATCH', `${EVENT}/sections/A`, { price: ++price });
  await until('the ledger has it', async () => (await cluster.ask(`SELECT 1 FROM sections WHERE price = ${price}`)).length === 1);
  leaving.signal('SIGTERM');
  assert.equal((await change).status, 200);
  const answers = Array.from({ length: 5 }, () => sale.hold(buyer));
  b.signal('SIGCONT');
  for (const { status, json, text } of await Promise.all(answers)) {
    // A claim that the other node has undone in the meantime is a conflict.
    assert.ok(status === 201 || status === 503 || json.code === 'conflict', text);
    if (status === 201) assert.equal(json.price, price);
  }
  assert.equal((await leaving.ended).code, 0, leaving.stderr);
  cluster.nodes.splice(cluster.nodes.indexOf(leaving), 1);
  await sellsAgain(sale, buyer);
});

test('an event that a node learns of while Redis is away is unavailable there, not missing', async () => {
  b.redis.refuse();
  // B notices that Redis is away with its first event, and skips Redis for those that follow.
  assert.equal((await b.admin('PATCH', EVENT, { title: 'Without Redis' })).status, 200);
  await Sale.open(a, 'CONCERT/unheard', {}, { sections: [{ id: 'A', capacity: 10 }] });
  const { status, text } = await call(b, 'GET', '/events/CONCERT/unheard');
  assert.equal(status, 503, text);
  await b.redis.accept();
  await until('it is shown', async () => (await call(b, 'GET', '/events/CONCERT/unheard')).status === 200);
  await cluster.isWell();
});

test('a Redis that is away while many events have changed costs a node nothing but time', async () => {
  const EVENTS = 20000;
  const columns = (await cluster.ask("SELECT string_agg(column_name, ',') AS all FROM information_schema.columns WHERE table_name = 'events' AND column_name NOT IN ('id', 'external_id', 'version', 'deleted_at')"))[0].all;
  b.redis.refuse();
  await cluster.sql(`WITH act AS (INSERT INTO audit(at, actor, act, subject, detail) VALUES (1, 'admin', 'event.delete', 'x', '{}') RETURNING id)
    INSERT INTO events(external_id, version, deleted_at, ${columns}) SELECT 'gone-' || g, act.id, 1, ${columns} FROM events, act, generate_series(1, ${EVENTS}) g WHERE external_id = 'prices'`);
  // Redis can't be notified, so at the next read the node sends it everything.
  assert.equal((await b.admin('PATCH', EVENT, { title: 'Others' })).status, 200);
  await raisePrice();
  await b.redis.accept();
  await cluster.isWell();
});

test('a node that was killed delays one change', async () => {
  await cluster.kill9(b);
  const first = await raisePrice();
  const second = await raisePrice();
  assert.ok(second < first / 2, `${first} and ${second} ms`);
});
