// Confirm, cancel, leave and expiry of a hold race against each other thousands of times: there is
// one final state, all answers agree with it, and the seats become free once. And seats that change
// owners all the time, checked only by the times of the answers.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { hexOf, joined } from './support/cluster.mjs';
import { keepAlive, query } from './support/queue.mjs';
import { dice, random, shuffled } from './support/random.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
import { isCluster, pause, start, test, times, until } from './support/server.mjs';

const SEED = Date.now() & 0xffff;
const next = random(SEED);
const LANES = times(400);
// The hold time: this many requests at once must be answered before it is over.
const HOLD_S = isCluster ? 3 : 1;

let server;
let agent;
let holdAgent; // few, so that on a busy machine there are fewer holds, not later ends
before(async () => {
  server = await start({ args: ['--queue-tick-ms', '10'] });
  agent = keepAlive(64);
  holdAgent = keepAlive(12);
});
after(async () => {
  agent.release();
  holdAgent.release();
  assert.equal(await metric(server, 'admitone_reservation_guard_refusals_total'), 0, 'hot store and ledger never diverged');
  audit(server);
  await server.stop();
});

// Two sections, one where the hot store decides and one where the ledger does; autoEnter, because a
// user must enter again after each confirmation.
const saleOf = (name, capacity, more = {}) =>
  Sale.open(server, name, {}, {
    autoEnter: true,
    maxPerUser: 1000,
    sections: [{ id: 'A', capacity, mode: 'slot' }, { id: 'B', capacity, mode: 'seat' }],
    ...more,
  });

// Runs `count` races, each with a new user who has a hold. Returns the results of `race`.
async function races(sale, total, race) {
  const results = [];
  let begun = 0;
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      while (begun < total) {
        const number = ++begun;
        const userId = `user${number}`;
        const answer = await sale.hold({}, { userId, quantity: dice(next, 2), section: number % 2 === 0 ? 'A' : 'B' }, { agent: holdAgent });
        assert.equal(answer.status, 201, answer.text);
        const who = { userId, token: answer.headers['x-queue-token'] };
        results.push({ reservation: answer.json, answers: await race(who, answer.json) });
      }
    }),
  );
  return results;
}

// All of them at once, in any order; returns { verb: status }.
async function all(sale, verbs, who, { id }) {
  const done = shuffled(verbs, next).map(async (verb) => {
    const answer = await sale.finish(who, verb, id, { agent });
    if (answer.status === 200) assert.equal(sale.reservation(answer).status, verb === 'confirm' ? 'CONFIRMED' : 'CANCELLED');
    else assert.deepEqual([answer.status, answer.json.code], answer.status === 410 ? [410, 'hold_expired'] : [409, 'reservation_ended'], answer.text);
    return [verb, answer.status];
  });
  return Object.fromEntries(await Promise.all(done));
}

// The same when the hold's time is over, give or take: so much earlier as the last ones needed to get
// there, and more or less of that by chance.
function atExpiry(sale, verbs) {
  let travelMs = 2;
  return async (who, reservation) => {
    const earlierMs = travelMs + (next() * 2 - 1) * (travelMs + 5);
    const plannedMs = Date.parse(reservation.expiresAt) - earlierMs;
    await pause(Math.max(0, plannedMs - Date.now()));
    const sentMs = Date.now();
    const answers = await all(sale, verbs, who, reservation);
    const tookMs = sentMs - plannedMs + (Date.now() - sentMs) / 2;
    travelMs += (Math.min(Math.max(tookMs, 0), 500) - travelMs) / 32;
    return answers;
  };
}

// The final states that agree with these answers. All others are contradictions.
const FACTS = {
  'confirm 200': 'HELD,CONFIRMED',
  'confirm 410': 'HELD,EXPIRED',
  'cancel 200': 'HELD,CANCELLED',
  'cancel 410': 'HELD,EXPIRED',
  'cancel 200, confirm 200': 'HELD,CONFIRMED,CANCELLED',
  'cancel 200, confirm 409': 'HELD,CANCELLED',
  'cancel 410, confirm 410': 'HELD,EXPIRED',
};

// Each reservation's facts, in their order, by its id.
function factsOf(sale) {
  const rows = query(
    server.dataDir,
    `SELECT ${hexOf('f.reservation_id')} AS id, ${joined('f.kind', 'f.id')} AS kinds
     FROM (SELECT f.id, f.reservation_id, f.kind FROM facts f JOIN events e ON e.id = f.event_id
           WHERE e.type = '${sale.type}' AND e.external_id = '${sale.id}' AND f.reservation_id IS NOT NULL ORDER BY f.id) f
     GROUP BY f.reservation_id`,
  );
  return new Map(rows.map(({ id, kinds }) => [id, kinds]));
}

// A seat's version counts its changes: one for each fact of a reservation that had it. So no seat was
// released twice, even if another user took it in between.
function assertSeatsChangedOnce(sale) {
  const [{ changes, facts }] = query(
    server.dataDir,
    `SELECT (SELECT sum(s.version) FROM seats s JOIN sections c ON c.id = s.section_id WHERE c.event_id = e.id) AS changes,
            (SELECT sum(f.seat_count) FROM facts f WHERE f.event_id = e.id AND f.kind <> 'SOLD_OUT') AS facts
     FROM events e WHERE e.type = '${sale.type}' AND e.external_id = '${sale.id}'`,
  );
  assert.equal(changes, facts);
}

// Returns how often each combination of answers was seen.
async function assertDecided(sale, results) {
  await until('no hold is left', async () => (await sale.sections()).every(({ held }) => held === 0));
  const facts = factsOf(sale);
  const rows = new Map(sale.rows().map((row) => [row.id, row]));
  assert.equal(rows.size, results.length);
  const seen = {};
  for (const { reservation, answers } of results) {
    const key = Object.keys(answers).sort().map((verb) => `${verb} ${answers[verb]}`).join(', ');
    const told = facts.get(reservation.id.replaceAll('-', ''));
    assert.ok(key in FACTS, `${key}, and the facts ${told} (seed ${SEED})`);
    assert.equal(told, FACTS[key], `${key} (seed ${SEED})`);
    assert.equal(rows.get(reservation.id).status, told.slice(told.lastIndexOf(',') + 1));
    seen[key] = (seen[key] ?? 0) + 1;
  }
  assertSeatsChangedOnce(sale);
  await assertHotIsLedger(sale);
  return seen;
}

describe('one final state, whichever request comes first', () => {
  const REUSED = 2 * LANES; // seats come back, so that they have the next holder soon
  const cases = [
    ['expiry against confirm (pitfalls 28 and 33)', ['confirm'], times(2000), 4000],
    ['expiry against cancel (pitfall 27)', ['cancel'], times(2000), REUSED],
    ['expiry against confirm and cancel', ['confirm', 'cancel'], times(1000), 2000],
  ];
  for (const [i, [title, verbs, total, capacity]] of cases.entries())
    test(`${title}, ${total} times`, async (t) => {
      const sale = await saleOf(`EXPIRY/${i}`, capacity, { holdSeconds: HOLD_S });
      const seen = await assertDecided(sale, await races(sale, total, atExpiry(sale, verbs)));
      t.diagnostic(JSON.stringify(seen));
      const expired = Object.entries(seen).filter(([key]) => key.includes('410')).reduce((sum, [, times]) => sum + times, 0);
      assert.ok(expired > total / 100 && expired < total - total / 100, `there was no race: ${JSON.stringify(seen)}`);
    });

  test(`cancel against confirm, ${times(3000)} times (pitfalls 25 and 29)`, async (t) => {
    const sale = await saleOf('CANCEL/1', REUSED);
    const seen = await assertDecided(sale, await races(sale, times(3000), (who, reservation) => all(sale, ['confirm', 'cancel'], who, reservation)));
    t.diagnostic(JSON.stringify(seen));
    assert.deepEqual(Object.keys(seen).sort(), ['cancel 200, confirm 200', 'cancel 200, confirm 409'], 'either was first at times');
  });
});

describe('seats that change hands all the time', () => {
  const SEATS = 4;
  const CLIENTS = 24;
  const TURNS = times(60);

  // One client: takes a seat and gives it back, again and again, and notes when.
  async function client(sale, who, strategy, notes) {
    for (let turn = 0; turn < TURNS; turn++) {
      const seat = dice(next, SEATS);
      const note = { seat, sent: performance.now() };
      const answer = await sale.hold(who, { seats: [seat], strategy }, { agent });
      note.received = performance.now();
      note.held = answer.status === 201;
      notes.push(note);
      if (!note.held) {
        assert.deepEqual([answer.status, answer.json.code, answer.json.seats], [409, 'seat_taken', [seat]], answer.text);
        continue;
      }
      note.givenBack = performance.now();
      await sale.cancelled(who, answer.json.id, { agent });
      note.gone = performance.now();
    }
  }

  for (const strategy of STRATEGIES)
    test(`${strategy}: no request is answered that a seat is taken while it is free, and no seat has two holders (pitfall 19)`, async (t) => {
      const sale = await Sale.open(server, `HANDS/${strategy}`, {}, { maxPerUser: 1000, sections: [{ id: 'A', capacity: SEATS, mode: MODE_OF[strategy] }] });
      const notes = [];
      await Promise.all((await sale.buyers(CLIENTS)).map((who) => client(sale, who, strategy, notes)));
      const holds = notes.filter(({ held }) => held);
      t.diagnostic(`${holds.length} of ${notes.length} had it`);
      for (const a of holds)
        for (const b of holds)
          if (a !== b && a.seat === b.seat) assert.ok(a.givenBack <= b.received || b.givenBack <= a.received, JSON.stringify([a, b]));
      for (const note of notes.filter(({ held }) => !held))
        assert.ok(
          holds.some(({ seat, sent, gone }) => seat === note.seat && sent < note.received && gone > note.sent),
          `it was free all the time: ${JSON.stringify(note)}`,
        );
      assert.ok(holds.length > SEATS && holds.length < notes.length, 'they were in each other\'s way');
      assert.deepEqual(await sale.counts(), { available: SEATS, held: 0, confirmed: 0 });
      assertSeatsChangedOnce(sale);
      await assertHotIsLedger(sale);
    });
});
