// An adaptive section serves requests one after the other under a lock while there are few, and all
// at once when there are many. No seat is sold twice, also while the section changes its strategy.
// Syncs are delayed where a test sets how many requests are under way.
import assert from 'node:assert/strict';
import { assertHotIsLedger, audit, Sale, metric } from './support/reservations.mjs';
import { keepAlive } from './support/queue.mjs';
import { assertProblem, isCluster, pause, start, test, until } from './support/server.mjs';
import { withShim } from './support/shim.mjs';

const REST_MS = 500;
// Longer than it takes to get a free lock from another process.
const WAIT_MS = isCluster ? 500 : 1;
const NEVER = '10000'; // the longest adaptive.wait_ms

const flags = ({ hotAbove = 8, calmBelow = 4, waitMs = NEVER, restMs = REST_MS } = {}) => [
  '--adaptive-hot-above', String(hotAbove), '--adaptive-calm-below', String(calmBelow),
  '--adaptive-wait-ms', String(waitMs), '--adaptive-rest-ms', String(restMs), '--queue-tick-ms', '10',
];

// Each node counts its own requests under way and decides by them whether a section is hot, so these
// tests use one node.
const oneOf = (server) => server.nodes[0];

const adaptive = (capacity) => ({ maxPerUser: 100, sections: [{ id: 'A', capacity, mode: 'adaptive' }] });

const switches = (server, to) => metric(server, 'admitone_adaptive_switches_total', { to });

// The strategy that the section uses now.
async function choice(sale) {
  const { mode, strategy } = (await sale.sections()).find(({ id }) => id === 'A');
  assert.equal(mode, 'adaptive');
  return strategy;
}

async function assertGauge(sale, strategy) {
  const hot = await metric(sale.server, 'admitone_adaptive_hot', { event: sale.name, section: 'A' });
  assert.equal(hot, strategy === 'slot' ? 1 : 0, `the gauge, while it is ${strategy}`);
}

const becomes = async (sale, strategy) => {
  for (const server of sale.server.nodes ?? [sale.server])
    await until(`the section is ${strategy}`, async () => (await choice(new Sale(server, sale.name))) === strategy);
};

// Holds that can't be written: when this returns they are under way. Returns their answers to be.
async function heldUp(sale, buyers) {
  const attempts = () => metric(sale.server, 'admitone_reservation_attempts_total', { strategy: 'adaptive' });
  const before = await attempts();
  const answers = buyers.map((buyer) => sale.hold(buyer));
  await until('they are under way', async () => (await attempts()) === before + buyers.length);
  return answers;
}

const outcomes = (sale, outcome) => metric(sale.server, 'admitone_reservation_outcomes_total', { strategy: 'adaptive', outcome });

// The seats of the requests that got some; the others timed out waiting for the lock. Checks that no
// seat was given twice.
function assertAnswers(answers, { held, late }) {
  const seats = answers.filter(({ status }) => status === 201).flatMap(({ json }) => json.seats);
  assert.equal(new Set(seats).size, seats.length, `a seat was sold twice: ${seats}`);
  assert.equal(seats.length, held);
  const refused = answers.filter(({ status }) => status !== 201);
  assert.equal(refused.length, late);
  for (const answer of refused) assertProblem(answer, 409, 'lock_timeout');
}

// Makes the section hot with nine or more requests under way: eight that have or wait for the lock,
// and `others` without a lock. Then the waiting ones give up, so that 1 + others are under way.
async function heat(sale, buyers, others) {
  const late = await outcomes(sale, 'lock_timeout');
  sale.server.hold();
  const answers = await heldUp(sale, buyers.slice(0, 8));
  for (let i = 0; i < 5; i++) assert.equal(await choice(sale), 'lock', 'hot_above is not above it');
  await assertGauge(sale, 'lock');
  answers.push(...(await heldUp(sale, buyers.slice(8, 8 + others))));
  const heatedMs = performance.now();
  assert.equal(await choice(sale), 'slot'); // that many are under way: it rests from here on
  await assertGauge(sale, 'slot');
  await until('those in line give up', async () => (await outcomes(sale, 'lock_timeout')) === late + 7);
  return { answers, heatedMs };
}

test('calm up to hot_above, hot above it, hot between the two numbers and for rest_ms, then calm again', () =>
  withShim(async (all) => {
    const server = oneOf(all);
    const sale = await Sale.open(server, 'ADAPT/1', {}, adaptive(100));
    const buyers = await sale.buyers(11);
    assert.equal(await choice(sale), 'lock');

    // Exactly calm_below requests stay under way, which is not fewer than calm_below.
    const { answers } = await heat(sale, buyers, 3);
    for (const end = performance.now() + 3 * REST_MS; performance.now() < end; await pause(20))
      assert.equal(await choice(sale), 'slot', 'between the two numbers it stays what it is');
    server.release();
    assertAnswers(await Promise.all(answers), { held: 4, late: 7 });
    await becomes(sale, 'lock');
    await assertGauge(sale, 'lock');
    assert.deepEqual([await switches(server, 'slot'), await switches(server, 'lock')], [1, 1]);

    // One fewer: it is calm when it has rested, while they are under way.
    const again = await heat(sale, buyers, 2);
    await becomes(sale, 'lock');
    assert.ok(performance.now() - again.heatedMs >= REST_MS, 'it has rested');
    server.release();
    assertAnswers(await Promise.all(again.answers), { held: 3, late: 7 });
    assert.deepEqual([await switches(server, 'slot'), await switches(server, 'lock')], [2, 2]);
    await assertHotIsLedger(sale);
    audit(server);
  }, [...flags(), '--lock-wait-ms', '2500']));

test('a wait for the lock makes it hot, however few are under way', () =>
  withShim(async (all) => {
    const server = oneOf(all);
    const sale = await Sale.open(server, 'ADAPT/2', {}, adaptive(10));
    const buyers = await sale.buyers(2);
    for (const buyer of buyers) await sale.held(buyer);
    assert.equal(await choice(sale), 'lock', 'nobody waited');
    server.hold();
    const answers = await heldUp(sale, buyers);
    await pause(20 + WAIT_MS);
    assert.equal(await choice(sale), 'lock', 'the wait is not over');
    server.release();
    assertAnswers(await Promise.all(answers), { held: 2, late: 0 });
    assert.equal(await choice(sale), 'slot');
    await assertGauge(sale, 'slot');
    assert.equal(await switches(server, 'slot'), 1);
    audit(server);
  }, flags({ hotAbove: 100000, calmBelow: 100000, waitMs: WAIT_MS, restMs: 60000 })));

test('a crowd that waits in the queue makes it hot, until it has gone', async () => {
  const all = await start({ args: flags() });
  const server = oneOf(all);
  const sale = await Sale.open(server, 'ADAPT/3', { maxActive: 1 }, adaptive(100));
  const buyer = await sale.buyer('buyer');
  const crowd = await sale.enterAll(['w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7', 'w8']);
  await sale.held(buyer);
  assert.equal(await choice(sale), 'lock', 'hot_above is not above it');
  crowd.push(await sale.enter('w9'));
  const heated = performance.now();
  await sale.held(buyer);
  assert.ok((await choice(sale)) === 'slot' || performance.now() - heated >= REST_MS);
  assert.equal(await switches(server, 'slot'), 1);
  for (const place of crowd) await sale.leave(place.entryToken);
  await becomes(sale, 'lock');
  assert.ok(performance.now() - heated >= REST_MS, 'it has rested');
  await sale.held(buyer);
  assert.equal(await choice(sale), 'lock', 'nobody waits any more');
  assert.deepEqual([await switches(server, 'slot'), await switches(server, 'lock')], [1, 1]);
  audit(server);
  await all.stop();
});

test('no seat is sold twice while it changes over again and again', async (t) => {
  const server = await start({ args: flags({ restMs: 20 }) });
  const sale = await Sale.open(server, 'ADAPT/4', {}, adaptive(24));
  const agent = keepAlive(32);
  const buyers = await sale.buyers(32);
  const owners = new Map(); // of the seats that users were told they have
  const seen = { 201: 0, 409: 0 };

  // Holds a few, named or any, and gives them back.
  const turn = async (buyer, i) => {
    const count = 1 + (i % 3);
    const from = 1 + ((i * 7) % 22);
    const wish = i % 2 === 0 ? { quantity: count } : { seats: [from, from + 1, from + 2].slice(0, count) };
    const answer = await sale.hold(buyer, wish, { agent });
    seen[answer.status]++;
    if (answer.status === 409) {
      assert.match(answer.json.code, /^(seat_taken|sold_out)$/);
      return;
    }
    const { id, seats } = sale.reservation(answer, 'HELD');
    for (const seat of seats) {
      assert.ok(!owners.has(seat), `seat ${seat} is ${owners.get(seat)}'s and ${buyer.userId}'s`);
      owners.set(seat, buyer.userId);
    }
    await pause(i % 4);
    for (const seat of seats) owners.delete(seat);
    await sale.cancelled(buyer, id, { agent });
  };

  let at = 0;
  const changes = async () => Math.min(await switches(server, 'slot'), await switches(server, 'lock'));
  await until('it has changed over ten times', async () => {
    await Promise.all(buyers.map((buyer) => turn(buyer, at++)));
    for (let calm = 0; calm < 4; calm++) await turn(buyers[calm], at++);
    await becomes(sale, 'lock');
    return (await changes()) >= 10;
  }, 40000);
  agent.release();
  t.diagnostic(`${await changes()} times, ${JSON.stringify(seen)}`);
  assert.ok(seen[201] > 50 && seen[409] > 0, JSON.stringify(seen));
  assert.deepEqual(await sale.counts(), { available: 24, held: 0, confirmed: 0 });
  await assertHotIsLedger(sale);
  audit(server);
  await server.stop();
});
