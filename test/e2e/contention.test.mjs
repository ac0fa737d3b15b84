// Many users want the same seats at once, by each strategy: no seat is sold twice, no request gets a
// part of its seats, no limit is exceeded, and no request is refused or fails without a reason.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { keepAlive, query } from './support/queue.mjs';
import { dice, random, shuffled } from './support/random.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
import { start, test, times } from './support/server.mjs';

const SEED = Date.now() & 0xffff;
const next = random(SEED);

let server;
let agent;
before(async () => {
  // An adaptive section that 30 leave calm, and 150 don't.
  server = await start({ args: ['--adaptive-calm-below', '40', '--adaptive-hot-above', '60', '--adaptive-wait-ms', '2000'] });
  agent = keepAlive(200);
});
after(async () => {
  agent.release();
  assert.equal(await metric(server, 'admitone_reservation_guard_refusals_total'), 0, 'hot store and ledger never diverged');
  audit(server);
  await server.stop();
});

// An event whose sections all have the strategy's mode.
async function saleOf(what, strategy, sections, more = {}) {
  const sale = await Sale.open(server, `${what}/${strategy}`, {}, {
    maxPerUser: 1000,
    sections: sections.map((section) => ({ mode: MODE_OF[strategy], ...section })),
    ...more,
  });
  sale.strategy = strategy;
  return sale;
}

const numbered = (count, capacity) => Array.from({ length: count }, (_, i) => ({ id: `S${i + 1}`, capacity }));
const perStrategy = (title, act, options = {}) => {
  for (const strategy of STRATEGIES) test(`${strategy}: ${title}`, options, (t) => act(strategy, t));
};

const ask = (sale, who, wish, headers) => sale.hold(who, { strategy: sale.strategy, ...wish }, { agent, headers });

// All at once; each gets what they asked for, or a 409 with one of the codes (pitfall 21). Returns the
// reservations and the refusals.
async function rush(sale, wishes, codes) {
  const answers = await Promise.all(wishes.map(({ who, ...wish }) => ask(sale, who, wish)));
  const won = [];
  const refused = [];
  for (const [i, answer] of answers.entries()) {
    const { who, quantity, seats } = wishes[i];
    if (answer.status === 201) {
      const held = sale.reservation(answer, 'HELD');
      assert.equal(held.userId, who.userId);
      assert.equal(held.strategy, sale.strategy);
      if (seats !== undefined) assert.deepEqual(held.seats, [...seats].sort((a, b) => a - b));
      else assert.equal(held.seats.length, quantity, 'all or none');
      won.push(held);
    } else {
      assert.equal(answer.status, 409, answer.text);
      assert.ok(codes.includes(answer.json.code), answer.text);
      refused.push({ code: answer.json.code, quantity, seats: answer.json.seats });
    }
  }
  return { won, refused };
}

const count = (reservations) => reservations.reduce((sum, { seats }) => sum + seats.length, 0);

// The seats of live reservations of one section: each is in one only.
function assertDisjoint(reservations) {
  const seats = reservations.flatMap((one) => one.seats);
  assert.equal(new Set(seats).size, seats.length, `a seat twice: ${seats} (seed ${SEED})`);
}

// The ledger has these reservations, all HELD, and no other row: a refusal leaves none (pitfall 26).
function assertRows(sale, reservations) {
  const rows = sale.rows();
  const told = new Map(reservations.map((one) => [one.id, one]));
  assert.equal(rows.length, told.size, `rows (seed ${SEED})`);
  for (const row of rows) {
    assert.equal(row.status, 'HELD');
    assert.equal(row.seats, told.get(row.id)?.seats.join(','));
  }
}

describe('30 clients, one seat: 1 has it, 29 are refused with 409, one row (pitfall 21)', () => {
  const ROUNDS = 3;

  perStrategy('a seat that all name', async (strategy) => {
    const sale = await saleOf('NAMED', strategy, [{ id: 'A', capacity: ROUNDS }]);
    const buyers = await sale.buyers(30);
    const all = [];
    for (let seat = 1; seat <= ROUNDS; seat++) {
      const { won, refused } = await rush(sale, buyers.map((who) => ({ who, seats: [seat] })), ['seat_taken']);
      assert.equal(won.length, 1);
      assert.equal(refused.length, 29);
      for (const one of refused) assert.deepEqual(one.seats, [seat], 'the refusal says which');
      all.push(...won);
    }
    assertRows(sale, all);
    await assertHotIsLedger(sale);
  });

  perStrategy('any seat of a section that has one', async (strategy) => {
    const sale = await saleOf('ANY', strategy, numbered(ROUNDS, 1));
    const buyers = await sale.buyers(30);
    const all = [];
    for (const { id } of numbered(ROUNDS)) {
      const { won, refused } = await rush(sale, buyers.map((who) => ({ who, section: id, quantity: 1 })), ['sold_out', 'conflict']);
      assert.equal(won.length, 1);
      assert.equal(refused.length, 29);
      all.push(...won);
    }
    assertRows(sale, all);
    await assertHotIsLedger(sale);
  });

  test('optimistic really is overtaken between its read and its write', async (t) => {
    const roundsMax = 50;
    const sale = await saleOf('OVERTAKEN', 'optimistic', [{ id: 'A', capacity: roundsMax }]);
    const buyers = await sale.buyers(30);
    const read = async (name) => metric(server, `admitone_reservation_${name}_total`, { strategy: 'optimistic' });
    const before = { conflicts: await read('conflicts'), retries: await read('retries') };
    // A seat that is named is tried again only when its version was another one at the write.
    for (let seat = 1; seat <= roundsMax && (await read('retries')) === before.retries; seat++) {
      const { won } = await rush(sale, buyers.map((who) => ({ who, seats: [seat] })), ['seat_taken']);
      assert.equal(won.length, 1);
    }
    const seen = { conflicts: (await read('conflicts')) - before.conflicts, retries: (await read('retries')) - before.retries };
    t.diagnostic(JSON.stringify(seen));
    assert.ok(seen.retries > 0, `never in ${roundsMax} rounds`);
    assert.ok(seen.conflicts >= seen.retries, JSON.stringify(seen));
  });
});

describe('more is wanted than there is', () => {
  perStrategy('150 buyers for 100 units: exactly 100', async (strategy, t) => {
    const sale = await saleOf('CROWD', strategy, [{ id: 'A', capacity: 100 }]);
    const buyers = await sale.buyers(150);
    const { won, refused } = await rush(sale, buyers.map((who) => ({ who, quantity: 1 })), ['sold_out', 'conflict']);
    t.diagnostic(`${refused.filter(({ code }) => code === 'conflict').length} conflicts`);
    assert.equal(won.length, 100);
    assertDisjoint(won);
    assert.deepEqual(await sale.counts(), { available: 0, held: 100, confirmed: 0 });
    assertRows(sale, won);
    await assertHotIsLedger(sale);
  });

  perStrategy('5 × 30 of 100: 3 succeed, 2 are refused, nothing in part (pitfall 24)', async (strategy) => {
    const sale = await saleOf('GROUPS', strategy, numbered(4, 100));
    const buyers = await sale.buyers(5);
    const all = [];
    for (const { id } of numbered(4)) {
      const { won, refused } = await rush(sale, buyers.map((who) => ({ who, section: id, quantity: 30 })), ['sold_out']);
      assert.equal(won.length, 3);
      assert.equal(refused.length, 2);
      assertDisjoint(won);
      assert.deepEqual(await sale.counts(id), { available: 10, held: 90, confirmed: 0 });
      all.push(...won);
    }
    assertRows(sale, all);
    await assertHotIsLedger(sale);
  });

  perStrategy('groups that name each other\'s seats: one of them always gets all, none starve each other (pitfall 24)', async (strategy) => {
    const rounds = 5;
    const sale = await saleOf('CROSSED', strategy, numbered(rounds, 20));
    const buyers = await sale.buyers(8);
    const seats = Array.from({ length: 20 }, (_, i) => i + 1);
    const all = [];
    for (const { id } of numbered(rounds)) {
      // 12 of 20 each: any two have one in common. Named in any order.
      const wishes = buyers.map((who) => ({ who, section: id, seats: shuffled(seats, next).slice(0, 12) }));
      const { won, refused } = await rush(sale, wishes, ['seat_taken']);
      assert.equal(won.length, 1);
      for (const one of refused) assert.ok(one.seats.length > 0 && one.seats.every((seat) => won[0].seats.includes(seat)), 'what it says is taken, is');
      all.push(...won);
    }
    assertRows(sale, all);
    await assertHotIsLedger(sale);
  });

  perStrategy('{50, 30, 40, 20, 10} of 100 in any order: never more than 100, all or none each', async (strategy) => {
    const rounds = times(8);
    const sale = await saleOf('MIXED', strategy, numbered(rounds, 100));
    const buyers = await sale.buyers(5);
    const all = [];
    for (const { id } of numbered(rounds)) {
      const orders = shuffled([50, 30, 40, 20, 10], next);
      const { won, refused } = await rush(sale, orders.map((quantity, i) => ({ who: buyers[i], section: id, quantity })), ['sold_out']);
      const sold = count(won);
      assert.ok(sold <= 100, `${sold} sold (seed ${SEED})`);
      assertDisjoint(won);
      // No seat becomes free here: a request that fits now would have fitted then.
      for (const { quantity } of refused) assert.ok(quantity > 100 - sold, `${quantity} refused, ${sold} sold (seed ${SEED})`);
      assert.deepEqual(await sale.counts(id), { available: 100 - sold, held: sold, confirmed: 0 });
      all.push(...won);
    }
    assertRows(sale, all);
    await assertHotIsLedger(sale);
  });

  perStrategy('50 random orders of 1–5 while others cancel: the counts are exact', async (strategy) => {
    const sale = await saleOf('CHURN', strategy, [{ id: 'A', capacity: 100 }]);
    const buyers = await sale.buyers(50);
    const leavers = await sale.buyers(30, 'leaver');
    const earlier = (await rush(sale, leavers.map((who) => ({ who, quantity: dice(next, 5) })), ['sold_out', 'conflict'])).won;
    const orders = buyers.map((who) => ({ who, quantity: dice(next, 5) }));
    const [{ won }, ended] = await Promise.all([
      rush(sale, orders, ['sold_out', 'conflict']),
      Promise.all(earlier.map(({ id, userId }) => sale.cancelled(leavers.find((who) => who.userId === userId), id, { agent }))),
    ]);
    assert.equal(ended.length, earlier.length);
    assertDisjoint(won);
    assert.deepEqual(await sale.counts(), { available: 100 - count(won), held: count(won), confirmed: 0 });
    const rows = sale.rows();
    assert.equal(rows.length, won.length + earlier.length);
    assert.deepEqual(rows.filter(({ status }) => status === 'HELD').map(({ id }) => id).sort(), won.map(({ id }) => id).sort());
    await assertHotIsLedger(sale);
  });
});

describe('one user, five times at once: maxPerUser holds', () => {
  const USERS = 6;

  // Each user sends five requests, to the sections in rotation.
  async function assertLimit(sale, max, sections, strategies) {
    const users = await sale.buyers(USERS, 'user');
    const wishes = users.flatMap((who) =>
      Array.from({ length: 5 }, (_, i) => ({ who, quantity: 1, section: sections[i % sections.length], strategy: strategies[i % strategies.length] })),
    );
    const answers = await Promise.all(shuffled(wishes, next).map(async ({ who, ...wish }) => ({ who, answer: await ask(sale, who, wish) })));
    for (const { userId } of users) {
      const own = answers.filter(({ who }) => who.userId === userId).map(({ answer }) => answer);
      assert.equal(own.filter(({ status }) => status === 201).length, max, `${userId} (seed ${SEED})`);
      for (const answer of own)
        if (answer.status !== 201) assert.deepEqual([answer.status, answer.json.code], [409, 'limit_exceeded'], answer.text);
    }
    const rows = query(
      server.dataDir,
      `SELECT r.user_id, sum(r.seat_count) AS seats FROM reservations r JOIN events e ON e.id = r.event_id
       WHERE e.type = '${sale.type}' AND e.external_id = '${sale.id}' AND r.status = 'HELD'
       GROUP BY r.user_id ORDER BY r.user_id`,
    );
    assert.deepEqual(rows, users.map(({ userId }) => ({ user_id: userId, seats: max })));
    assertRows(sale, answers.filter(({ answer }) => answer.status === 201).map(({ answer }) => answer.json));
    await assertHotIsLedger(sale);
  }

  const two = [{ id: 'A', capacity: 100 }, { id: 'B', capacity: 100 }];
  for (const max of [1, 2]) {
    perStrategy(`exactly ${max} in one section`, async (strategy) =>
      assertLimit(await saleOf(`ONE${max}`, strategy, two, { maxPerUser: max }), max, ['A'], [strategy]));
    perStrategy(`exactly ${max} over two sections`, async (strategy) =>
      assertLimit(await saleOf(`TWO${max}`, strategy, two, { maxPerUser: max }), max, ['A', 'B'], [strategy]));
    perStrategy(`exactly ${max} over a section of this kind and one where the other store decides`, async (strategy) => {
      const other = MODE_OF[strategy] === 'seat' ? 'slot' : 'optimistic';
      const sections = [{ id: 'A', capacity: 100 }, { id: 'B', capacity: 100, mode: MODE_OF[other] }];
      await assertLimit(await saleOf(`BOTH${max}`, strategy, sections, { maxPerUser: max }), max, ['A', 'B'], [strategy, other]);
    });
  }
});

describe('the same Idempotency-Key 20 times at once: one reservation, 20 equal answers', () => {
  // Two seats are the limit of each user, and all seats are sold in the end: a second reservation of
  // a user would be refused.
  async function assertShared(sale, wishOf) {
    const buyers = await sale.buyers(5);
    const wishes = buyers.flatMap((who, i) => Array.from({ length: 20 }, () => ({ who, wish: wishOf(i) })));
    const answers = await Promise.all(
      shuffled(wishes, next).map(async ({ who, wish }) => ({ who, answer: await ask(sale, who, wish, { 'idempotency-key': `${sale.name} ${who.userId}` }) })),
    );
    const all = [];
    for (const { userId } of buyers) {
      const own = answers.filter(({ who }) => who.userId === userId).map(({ answer }) => answer);
      for (const { status, text } of own) assert.deepEqual([status, text], [201, own[0].text], `seed ${SEED}`);
      assert.equal(own.filter(({ headers }) => headers['idempotency-replayed'] !== 'true').length, 1, 'one of them was the first');
      all.push(own[0].json);
    }
    assertDisjoint(all);
    assertRows(sale, all);
    await assertHotIsLedger(sale);
  }

  const scarce = [[{ id: 'A', capacity: 10 }], { maxPerUser: 2 }];
  perStrategy('any seats', async (strategy) => assertShared(await saleOf('KEYANY', strategy, ...scarce), () => ({ quantity: 2 })));
  perStrategy('named seats', async (strategy) =>
    assertShared(await saleOf('KEYNAMED', strategy, ...scarce), (i) => ({ seats: [i * 2 + 1, i * 2 + 2] })));
});
