// Changes of events while a node stands still, dies, or can't reach the ledger: no node sells by what
// an answered change has replaced.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';

import { Hall } from '../e2e/support/reservations.mjs';
import { call, test, until } from '../e2e/support/server.mjs';
import { Cluster } from './support/cluster.mjs';

const EVENT = '/admin/events/CONCERT/prices';
let cluster;
let a;
let b;
let price = 100;

before(async () => {
  cluster = await Cluster.start();
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
async function sellsAgain(hall, buyer) {
  const { json, text } = await until('it sells again', async () => {
    const answer = await hall.hold(buyer);
    return answer.status !== 503 && answer;
  });
  assert.equal(json.price, price, text);
}

test('a node that stands still delays one change, and sells at no old price when it goes on', async () => {
  const hall = new Hall(b, 'CONCERT/prices');
  const buyer = await hall.buyer('anna');
  b.signal('SIGSTOP');
  const answers = Array.from({ length: 5 }, () => hall.hold(buyer));
  const first = await raisePrice();
  const second = await raisePrice();
  assert.ok(second < first / 2, `${first} and ${second} ms`);
  assert.match(a.stderr, /msg="nodes did not apply a change of an event in time; .*" nodes=1 node="\S+ 127\.0\.0\.1:\d+"/);
  b.signal('SIGCONT');
  for (const { status, json, text } of await Promise.all(answers)) {
    assert.ok(status === 201 || status === 503, text);
    if (status === 201) assert.equal(json.price, price);
  }
  await sellsAgain(hall, buyer);
});

test('a node that cannot reach the ledger is not ready and sells nothing, until it has caught up', async () => {
  const hall = new Hall(b, 'CONCERT/prices');
  const buyer = await hall.buyer('berta');
  b.postgres.refuse();
  const code = async (answer) => (await answer).json?.code;
  await until('its lease has ended', async () => (await code(hall.hold(buyer))) === 'node_behind');
  assert.equal(await code(hall.ask('celia')), 'node_behind');
  assert.equal(await code(call(b, 'GET', '/events/CONCERT/unknown')), 'node_behind');
  assert.equal((await call(b, 'GET', '/events/CONCERT/prices')).status, 200);
  const ready = await call(b, 'GET', '/ready');
  assert.deepEqual([ready.status, ready.json.events], [503, 'behind']);
  await raisePrice();
  await b.postgres.accept();
  await sellsAgain(hall, buyer);
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

test('a node that was killed delays one change', async () => {
  await cluster.kill9(b);
  const first = await raisePrice();
  const second = await raisePrice();
  assert.ok(second < first / 2, `${first} and ${second} ms`);
});
