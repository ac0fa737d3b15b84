// A reservation is held, confirmed, cancelled, or expires: over HTTP, in every strategy
// (docs/pitfalls.md, 11 and 22 to 33).
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { hexOf } from './support/cluster.mjs';
import { assertProblemWith, entriesOf, query } from './support/queue.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
import { assertProblem, pause, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

const QUICK = ['--queue-tick-ms', '10'];
// How late a hold may end on a machine that has other things to do.
const LATE_MS = 3000;
// Short, and long enough for a few requests on such a machine.
const BRIEF_S = 2;
const MANY = { maxPerUser: 1000 };

let server;
before(async () => (server = await start({ args: QUICK })));
after(async () => {
  audit(server);
  await server.stop();
});

const section = (strategy, capacity, more) => ({ id: 'A', capacity, mode: MODE_OF[strategy], ...more });
// An event with one section A of the strategy's mode.
const open = (name, strategy, capacity, more = {}, queue = {}) =>
  Sale.open(server, name, queue, { ...MANY, sections: [section(strategy, capacity)], ...more });
const refuses = async (answer, status, code, members = {}) => assertProblemWith(await answer, status, code, members);

const timeIsOver = async ({ expiresAt }) => {
  while (Date.now() <= Date.parse(expiresAt)) await pause(5); // time has to pass
};
const expires = (sale, who, { id }) =>
  until('the hold is EXPIRED', async () => {
    const { json } = await sale.get(who, id);
    return json.status === 'EXPIRED' && json;
  });

describe('every strategy', { concurrency: 8 }, () => {
  for (const strategy of STRATEGIES) {
    test(`${strategy}: held, confirmed, cancelled; every answer and every view says so (pitfalls 22, 32)`, async () => {
      const sections = [section(strategy, 10, { price: 1500 }), { id: 'B', capacity: 5 }];
      const sale = await open(`LIFE/${strategy}`, strategy, 10, { holdSeconds: 120, currency: 'EUR', sections });
      const ann = await sale.buyer('ann');
      const sees = async (seats, counts, place, remainingSeats) => {
        assert.equal((await sale.map()).seats, seats);
        assert.deepEqual(await sale.counts(), counts);
        const { status, reserving, remainingSeats: left } = await sale.status(ann.token);
        assert.deepEqual({ status, reserving, left }, { ...place, left: remainingSeats });
        await assertHotIsLedger(sale);
      };
      await sees('AAAAAAAAAA', { available: 10, held: 0, confirmed: 0 }, { status: 'ACTIVE', reserving: false }, 15);

      const since = Date.now();
      const held = await sale.held(ann, { quantity: 3, strategy });
      const { id, createdAt, expiresAt, ...rest } = held;
      assert.deepEqual(rest, {
        status: 'HELD',
        strategy,
        eventType: 'LIFE',
        eventId: strategy,
        section: 'A',
        seats: [1, 2, 3],
        userId: 'ann',
        price: 4500,
        currency: 'EUR',
        confirmationCode: null,
        confirmedAt: null,
        endedAt: null,
      });
      assert.equal(Date.parse(expiresAt) - Date.parse(createdAt), 120 * 1000);
      assert.ok(Date.parse(createdAt) >= since && Date.parse(createdAt) <= Date.now(), createdAt);
      assert.deepEqual(await sale.got(ann, id), held);
      assert.deepEqual(await sale.list(ann), [held]);
      await sees('HHHAAAAAAA', { available: 7, held: 3, confirmed: 0 }, { status: 'ACTIVE', reserving: true }, 12);

      const first = await sale.confirm(ann, id);
      const confirmed = sale.found(first, 'CONFIRMED');
      const { confirmationCode, confirmedAt } = confirmed;
      assert.match(confirmationCode, /^[A-Z2-9]{10}$/);
      assert.deepEqual(confirmed, { ...held, status: 'CONFIRMED', confirmationCode, confirmedAt });
      assert.ok(Date.parse(confirmedAt) >= Date.parse(createdAt) && Date.parse(confirmedAt) <= Date.now(), confirmedAt);
      const again = await sale.confirm(ann, id);
      assert.deepEqual([again.status, again.text], [200, first.text]);
      assert.deepEqual(await sale.got(ann, id), confirmed);
      assert.deepEqual(await sale.list(ann), [confirmed]);
      await sees('CCCAAAAAAA', { available: 7, held: 0, confirmed: 3 }, { status: 'COMPLETED', reserving: false }, 12);

      const end = await sale.cancel(ann, id);
      const cancelled = sale.found(end, 'CANCELLED');
      assert.deepEqual(cancelled, { ...confirmed, status: 'CANCELLED', endedAt: cancelled.endedAt });
      const twice = await sale.cancel(ann, id);
      assert.deepEqual([twice.status, twice.text], [200, end.text]);
      assert.deepEqual(await sale.got(ann, id), cancelled);
      assert.deepEqual(await sale.list(ann), [], 'what has ended is not listed');
      await refuses(sale.confirm(ann, id), 409, 'reservation_ended');
      await sees('AAAAAAAAAA', { available: 10, held: 0, confirmed: 0 }, { status: 'COMPLETED', reserving: false }, 15);
      assert.deepEqual(
        query(server.dataDir, `SELECT f.kind, f.seat_count FROM facts f WHERE ${hexOf('f.reservation_id')} = '${id.replaceAll('-', '')}' ORDER BY f.id`),
        ['HELD', 'CONFIRMED', 'CANCELLED'].map((kind) => ({ kind, seat_count: 3 })),
      );
    });

    test(`${strategy}: a cancelled hold is given back once and can't be confirmed (pitfall 25)`, async () => {
      const sale = await open(`BACK/${strategy}`, strategy, 4);
      const ann = await sale.buyer('ann');
      const ben = await sale.buyer('ben');
      const held = await sale.held(ann, { quantity: 4, strategy });
      const first = await sale.cancel(ann, held.id);
      const cancelled = sale.found(first, 'CANCELLED');
      assert.deepEqual(cancelled, { ...held, status: 'CANCELLED', endedAt: cancelled.endedAt });
      const next = await sale.held(ben, { seats: [2, 3], strategy });
      assert.equal((await sale.cancel(ann, held.id)).text, first.text);
      await refuses(sale.confirm(ann, held.id), 409, 'reservation_ended');
      assert.equal((await sale.map()).seats, 'AHHA', 'the next holder keeps them');
      await sale.confirmed(ben, next.id);
      assert.equal((await sale.cancel(ann, held.id)).text, first.text);
      assert.equal((await sale.map()).seats, 'ACCA');
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: named seats, all or none, and the refusal names them (pitfall 24)`, async () => {
      const sale = await open(`NAMED/${strategy}`, strategy, 10);
      const ann = await sale.buyer('ann');
      const ben = await sale.buyer('ben');
      assert.deepEqual((await sale.held(ann, { seats: [9, 2, 7], strategy })).seats, [2, 7, 9]);
      await refuses(sale.hold(ben, { seats: [1, 9, 3, 2], strategy }), 409, 'seat_taken', { seats: [2, 9] });
      await refuses(sale.hold(ben, { seats: [10, 11], strategy }), 404, 'seat_not_found', { seats: [11] });
      assert.equal((await sale.map()).seats, 'AHAAAAHAHA', 'nothing of it was taken');
      assert.deepEqual((await sale.held(ben, { seats: [1, 3], strategy })).seats, [1, 3]);
      assert.equal(sale.rows().length, 2);
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: a quantity is adjacent seats by the rule of the design`, async () => {
      const sale = await open(`RULE/${strategy}`, strategy, 18);
      const ann = await sale.buyer('ann');
      const take = async (quantity) => (await sale.held(ann, { quantity, strategy })).seats;
      // Free runs: 1–2, 4–6, 8–11, 13–17.
      await sale.held(ann, { seats: [3, 7, 12, 18], strategy });
      assert.deepEqual(await take(2), [1, 2], 'the smallest that fits');
      assert.deepEqual(await take(2), [8, 9], 'of three one would be left alone');
      assert.deepEqual(await take(2), [10, 11]);
      assert.deepEqual(await take(2), [13, 14]);
      assert.deepEqual(await take(2), [4, 5], 'there is no other; the lowest numbers');
      assert.deepEqual(await take(4), [6, 15, 16, 17], 'the fewest runs');
      await refuses(sale.hold(ann, { quantity: 1, strategy }), 409, 'sold_out');
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: 100 in stock are 100, the next is refused (pitfall 30); some are not enough`, async () => {
      const sale = await open(`STOCK/${strategy}`, strategy, 100);
      const ann = await sale.buyer('ann');
      const sold = new Set();
      for (let i = 0; i < 99; i++) for (const seat of (await sale.held(ann, { quantity: 1, strategy })).seats) sold.add(seat);
      await refuses(sale.hold(ann, { quantity: 2, strategy }), 409, 'sold_out');
      const last = await sale.held(ann, { quantity: 1, strategy });
      sold.add(last.seats[0]);
      assert.equal(sold.size, 100);
      await refuses(sale.hold(ann, { quantity: 1, strategy }), 409, 'sold_out');
      await refuses(sale.hold(ann, { seats: [100], strategy }), 409, 'seat_taken', { seats: [100] });
      assert.deepEqual(await sale.counts(), { available: 0, held: 100, confirmed: 0 });
      assert.equal(sale.rows().length, 100);
      await sale.cancelled(ann, last.id);
      assert.deepEqual((await sale.held(ann, { quantity: 1, strategy })).seats, last.seats);
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: a refused claim leaves no row, and nothing that is freed later (pitfall 26)`, async () => {
      const sale = await open(`REFUSED/${strategy}`, strategy, 2, { holdSeconds: BRIEF_S });
      const ann = await sale.buyer('ann');
      const ben = await sale.buyer('ben');
      const { id } = await sale.held(ann, { quantity: 2, strategy });
      const confirmed = await sale.confirmed(ann, id);
      await refuses(sale.hold(ben, { quantity: 1, strategy }), 409, 'sold_out');
      await refuses(sale.hold(ben, { seats: [1], strategy }), 409, 'seat_taken', { seats: [1] });
      await refuses(sale.hold(ben, { quantity: 3, strategy }), 409, 'sold_out');
      const last = new Date(Date.now() + BRIEF_S * 1000).toISOString();
      await timeIsOver({ expiresAt: last });
      await pause(200); // and twenty ticks more
      assert.deepEqual(sale.rows().map((row) => [row.id, row.status]), [[id, 'CONFIRMED']]);
      assert.deepEqual(await sale.got(ann, id), confirmed, 'its own time changes nothing either (pitfall 28)');
      assert.equal((await sale.map()).seats, 'CC');
      assert.deepEqual(await sale.list(ben), []);
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: a hold ends by itself at its time; its seats return once (pitfalls 23, 25, 27, 28, 29)`, async () => {
      const sale = await open(`TIME/${strategy}`, strategy, 3, { holdSeconds: BRIEF_S });
      const ann = await sale.buyer('ann');
      const ben = await sale.buyer('ben');
      const held = await sale.held(ann, { quantity: 3, strategy });
      assert.equal(Date.parse(held.expiresAt) - Date.parse(held.createdAt), BRIEF_S * 1000);
      await refuses(sale.hold(ben, { quantity: 1, strategy }), 409, 'sold_out');
      const expired = await expires(sale, ann, held);
      assert.deepEqual(expired, { ...held, status: 'EXPIRED', endedAt: expired.endedAt });
      const late = Date.parse(expired.endedAt) - Date.parse(held.expiresAt);
      assert.ok(late >= 0 && late < LATE_MS, `${late} ms`);
      await until('the hot store has followed', async () => (await sale.counts()).available === 3);
      assert.deepEqual(await sale.list(ann), []);
      const { status, reserving } = await sale.status(ann.token);
      assert.deepEqual([status, reserving], ['ACTIVE', false], 'the stay goes on');

      await server.admin('PATCH', `/admin/events/${sale.name}`, { holdSeconds: 300 });
      const next = await sale.held(ben, { quantity: 3, strategy });
      assert.deepEqual(next.seats, held.seats, 'the slots are there, and all of them');
      const lateOnes = async () => {
        await refuses(sale.confirm(ann, held.id), 410, 'hold_expired');
        await refuses(sale.cancel(ann, held.id), 410, 'hold_expired');
        assert.deepEqual(await sale.got(ann, held.id), expired);
      };
      await lateOnes();
      assert.equal((await sale.map()).seats, 'HHH');
      assert.deepEqual(await sale.got(ben, next.id), next);
      await sale.confirmed(ben, next.id);
      await lateOnes();
      assert.equal((await sale.map()).seats, 'CCC');
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: a hold outlives the stay`, async () => {
      const sale = await open(`STAY/${strategy}`, strategy, 4, {}, { activeTtlSeconds: BRIEF_S });
      const ann = await sale.buyer('ann');
      const kept = await sale.held(ann, { quantity: 1, strategy });
      const other = await sale.held(ann, { quantity: 1, strategy });
      await sale.becomes(ann.token, 'EXPIRED');
      await refuses(sale.hold(ann, { quantity: 1, strategy }), 403, 'not_active');
      assert.deepEqual((await sale.list(ann)).map(({ id }) => id).sort(), [kept.id, other.id]);
      await sale.confirmed(ann, kept.id);
      await sale.cancelled(ann, other.id);
      assert.equal((await sale.status(ann.token)).status, 'EXPIRED', 'it was not completed');
      assert.equal((await sale.map()).seats, 'CAAA');
      await assertHotIsLedger(sale);
    });
  }
});

describe('the place', { concurrency: 4 }, () => {
  test('is completed by confirming, and the next one gets in at once (pitfall 11)', async () => {
    const sale = await open('PLACE/1', 'slot', 10, {}, { maxActive: 1 });
    const ann = await sale.buyer('ann');
    const ben = await sale.enter('ben');
    assert.equal(ben.status, 'WAITING');
    const { id } = await sale.held(ann, { quantity: 1 });
    await sale.confirmed(ann, id);
    assert.equal((await sale.status(ann.token)).status, 'COMPLETED');
    await sale.becomes(ben.entryToken, 'ACTIVE');
    await refuses(sale.hold(ann), 403, 'not_active');
    await refuses(sale.gate(ann.token), 403, 'not_active');
    await sale.held({ token: ben.entryToken });
    const { completed, active } = await sale.numbers();
    assert.deepEqual([completed, active], [1, 1]);
    assert.deepEqual(entriesOf(sale).map(({ user_id: user, status }) => [user, status]), [['ann', 'COMPLETED'], ['ben', 'ACTIVE']]);
  });

  test('is not completed while another hold is live', async () => {
    const sale = await open('PLACE/2', 'slot', 10, { sections: [{ id: 'A', capacity: 5 }, { id: 'B', capacity: 5, mode: 'seat' }] });
    const ann = await sale.buyer('ann');
    const here = await sale.held(ann, { quantity: 1 });
    const there = await sale.held(ann, { quantity: 1, section: 'B' });
    await sale.confirmed(ann, here.id);
    let place = await sale.status(ann.token);
    assert.deepEqual([place.status, place.reserving], ['ACTIVE', true]);
    await sale.confirm(ann, here.id);
    assert.equal((await sale.status(ann.token)).status, 'ACTIVE', 'saying it again is nothing new');
    await sale.confirmed(ann, there.id);
    place = await sale.status(ann.token);
    assert.deepEqual([place.status, place.reserving], ['COMPLETED', false]);
  });

  test('is kept by cancelling, whatever was confirmed before', async () => {
    const sale = await open('PLACE/3', 'slot', 10, {}, { maxActive: 1 });
    const ann = await sale.buyer('ann');
    const ben = await sale.enter('ben');
    const one = await sale.held(ann);
    const other = await sale.held(ann);
    await sale.confirmed(ann, one.id);
    await sale.cancelled(ann, other.id);
    await sale.cancelled(ann, one.id);
    const { status, reserving } = await sale.status(ann.token);
    assert.deepEqual([status, reserving], ['ACTIVE', false]);
    assert.equal((await sale.gate(ann.token)).status, 204);
    assert.equal((await sale.status(ben.entryToken)).status, 'WAITING');
    const last = await sale.held(ann);
    await sale.confirmed(ann, last.id);
    await sale.becomes(ben.entryToken, 'ACTIVE');
  });

  test('when it is given back, what is held goes with it, and what is confirmed stays', async () => {
    const sections = [{ id: 'A', capacity: 5 }, { id: 'B', capacity: 5, mode: 'seat' }];
    const sale = await open('PLACE/4', 'slot', 5, { sections }, { maxActive: 1 });
    const ann = await sale.buyer('ann');
    const ben = await sale.enter('ben');
    const mine = await sale.held(ann, { quantity: 1 });
    const held = [];
    for (let i = 0; i < 4; i++) held.push(await sale.held(ann, { quantity: 1, section: i % 2 ? 'A' : 'B' }));
    const bought = await sale.confirmed(ann, mine.id);
    assert.equal((await sale.leave(ann.token)).status, 204);
    for (const { id, ...rest } of held) {
      const { status, endedAt, ...now } = await sale.got(ann, id);
      assert.equal(status, 'CANCELLED');
      assert.deepEqual({ ...now, id, status: 'HELD', endedAt: null }, { id, ...rest });
      await refuses(sale.confirm(ann, id), 409, 'reservation_ended');
    }
    assert.deepEqual(await sale.list(ann), [bought]);
    assert.deepEqual([(await sale.map('A')).seats, (await sale.map('B')).seats], ['CAAAA', 'AAAAA']);
    assert.equal((await sale.status(ann.token)).status, 'LEFT');
    await sale.becomes(ben.entryToken, 'ACTIVE');
    assert.deepEqual((await sale.held({ token: ben.entryToken }, { seats: [2, 3, 4, 5] })).seats, [2, 3, 4, 5]);
    assert.equal((await sale.leave(ann.token)).status, 204, 'again, and nobody else loses anything');
    assert.equal((await sale.map('A')).seats, 'CHHHH');
    await assertHotIsLedger(sale);
  });

  test('maxPerUser counts what is held and confirmed, in all sections, and not what has ended', async () => {
    const sections = [{ id: 'A', capacity: 9 }, { id: 'B', capacity: 9, mode: 'seat' }];
    const sale = await open('PLACE/5', 'slot', 9, { sections, maxPerUser: 4 });
    const ann = await sale.buyer('ann');
    await refuses(sale.hold(ann, { quantity: 5 }), 409, 'limit_exceeded');
    await refuses(sale.hold(ann, { quantity: 5, section: 'B' }), 409, 'limit_exceeded');
    const one = await sale.held(ann, { quantity: 2 });
    const other = await sale.held(ann, { quantity: 2, section: 'B' });
    await sale.confirmed(ann, one.id);
    for (const name of ['A', 'B']) await refuses(sale.hold(ann, { quantity: 1, section: name }), 409, 'limit_exceeded');
    await sale.cancelled(ann, one.id);
    await sale.held(ann, { quantity: 1, section: 'B' });
    await refuses(sale.hold(ann, { quantity: 2 }), 409, 'limit_exceeded');
    await sale.cancelled(ann, other.id);
    await sale.held(ann, { quantity: 3 });
    assert.deepEqual([await sale.counts('A'), await sale.counts('B')].map(({ held }) => held), [3, 1]);
    await assertHotIsLedger(sale);
  });
});

test('a list has the live ones of its user only, newest first, and at most a hundred (pitfall 32)', async () => {
  const sale = await open('LIST/1', 'slot', 200);
  const other = await open('LIST/2', 'slot', 5);
  const [lia, leo, elsewhere] = [await sale.buyer('lia'), await sale.buyer('leo'), await other.buyer('lia')];
  const held = [];
  for (let i = 0; i < 6; i++) held.push(await sale.held(lia));
  const foreign = await sale.held(leo);
  const far = await other.held(elsewhere);
  await sale.cancelled(lia, held[0].id);
  await sale.confirmed(lia, held[1].id);
  await sale.cancelled(lia, held[1].id);
  const bought = await sale.confirmed(lia, held[2].id);
  const expected = [held[5], held[4], held[3], bought];
  assert.deepEqual(await sale.list(lia), expected);
  assert.deepEqual(await sale.list(leo), [foreign]);
  assert.deepEqual(await other.list(elsewhere), [far]);
  const named = await server.call('GET', '/reservations?userId=lia');
  const ids = (list) => list.map(({ id }) => id).sort();
  assert.deepEqual(ids(named.json.reservations), ids([...expected, far]), 'by name: of all events');
  assert.deepEqual((await server.call('GET', '/reservations?userId=nobody')).json, { reservations: [] });
  for (let i = 0; i < 100; i++) await sale.held(leo);
  assert.equal((await sale.list(leo)).length, 100);
});

test('confirming too late is 410 before anybody is charged, and the seat is free at once (pitfall 33)', async () => {
  const slow = await start({ args: ['--queue-tick-ms', '1000'] });
  const modes = ['slot', 'seat'];
  const sale = await Sale.open(slow, 'LATE/1', {}, { ...MANY, holdSeconds: 1, sections: modes.map((mode) => ({ id: mode, capacity: 5, mode })) });
  const ann = await sale.buyer('ann');
  const one = async (name, i) => {
    await pause(i * 150);
    const held = await sale.held(ann, { seats: [i + 1], section: name });
    await timeIsOver(held);
    const answer = await sale.confirm(ann, held.id);
    const json = assertProblem(answer, 410, 'hold_expired');
    assert.match(json.detail, /do not charge/);
    assert.equal((await sale.map(name)).seats[i], 'A');
    const { status, confirmedAt, confirmationCode } = await sale.got(ann, held.id);
    assert.deepEqual([status, confirmedAt, confirmationCode], ['EXPIRED', null, null]);
  };
  await Promise.all(modes.flatMap((name) => [0, 1, 2, 3, 4].map((i) => one(name, i))));
  assert.equal(await metric(slow, 'admitone_reservation_expiries_total'), 10, 'each once, whoever found it');
  assert.equal(await metric(slow, 'admitone_reservation_confirms_total'), 0);
  for (const name of modes) assert.deepEqual(await sale.counts(name), { available: 5, held: 0, confirmed: 0 });
  await assertHotIsLedger(sale);
  audit(slow);
  await slow.stop();
});

for (const how of ['stop', 'kill9'])
  test(`a restart (${how}) recovers what is held and confirmed, with its times, and resets nothing (pitfall 31)`, async () => {
    const folder = tempFolder();
    const dataDir = path.join(folder, 'data');
    const sections = [...new Set(Object.values(MODE_OF))].map((mode) => ({ id: mode, capacity: 8, mode, price: 10 }));
    let own = await start({ dataDir, args: QUICK });
    let sale = await Sale.open(own, 'RESTART/1', {}, { ...MANY, sections });
    const brief = await Sale.open(own, 'RESTART/2', {}, { ...MANY, sections, holdSeconds: 1 });
    const [ann, ben, tom] = [await sale.buyer('ann'), await sale.buyer('ben'), await brief.buyer('tom')];
    const kept = {};
    const ended = [];
    for (const { id: name } of sections) {
      kept[name] = await sale.held(ann, { section: name, seats: [2, 3] });
      const sold = await sale.held(ben, { section: name, seats: [5] });
      const back = await sale.held(ben, { section: name, seats: [7] });
      kept[`${name} sold`] = await sale.confirmed(ben, sold.id);
      ended.push(await sale.cancelled(ben, back.id));
    }
    const lost = await Promise.all(sections.map(({ id: name }) => brief.held(tom, { section: name, quantity: 8 })));
    const shown = await sale.sections();
    await own[how]();
    await timeIsOver(lost.at(-1));

    own = await start({ dataDir, args: QUICK });
    sale = new Sale(own, 'RESTART/1');
    assert.deepEqual(await sale.sections(), shown);
    for (const { id: name } of sections) assert.equal((await sale.map(name)).seats, 'AHHACAAA');
    for (const [name, one] of Object.entries(kept)) {
      const who = name.includes('sold') ? ben : ann;
      assert.deepEqual(await sale.got(who, one.id), one);
      assert.ok((await sale.list(who)).some(({ id }) => id === one.id));
    }
    for (const one of ended) assert.deepEqual(await sale.got(ben, one.id), one);
    assert.equal((await sale.status(ann.token)).reserving, true);
    await assertHotIsLedger(sale);

    const after = new Sale(own, 'RESTART/2');
    await until('what ran out meanwhile is free', async () => (await after.sections()).every(({ available }) => available === 8));
    for (const { id } of lost) await refuses(after.confirm(tom, id), 410, 'hold_expired');
    for (const { id: name } of sections) {
      await refuses(sale.hold(ben, { section: name, seats: [2, 5] }), 409, 'seat_taken', { seats: [2, 5] });
      await sale.confirmed(ann, kept[name].id);
      await sale.cancelled(ben, kept[`${name} sold`].id);
      assert.equal((await sale.map(name)).seats, 'ACCAAAAA');
    }
    await assertHotIsLedger(sale);
    await assertHotIsLedger(after);
    audit(own);
    await own.stop();
    removeFolder(folder);
  });
