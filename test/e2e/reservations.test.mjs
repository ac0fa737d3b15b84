// A reservation is held, confirmed, cancelled, or expires: over HTTP, in every strategy
// (docs/pitfalls.md, 11 and 22 to 33).
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { hexOf } from './support/cluster.mjs';
import { assertProblemWith, entriesOf, query } from './support/queue.mjs';
import { Hall, MODE_OF, STRATEGIES, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
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
  Hall.open(server, name, queue, { ...MANY, sections: [section(strategy, capacity)], ...more });
const refuses = async (answer, status, code, members = {}) => assertProblemWith(await answer, status, code, members);

const timeIsOver = async ({ expiresAt }) => {
  while (Date.now() <= Date.parse(expiresAt)) await pause(5); // what is tested is time that passes
};
const expires = (hall, who, { id }) =>
  until('the hold is EXPIRED', async () => {
    const { json } = await hall.get(who, id);
    return json.status === 'EXPIRED' && json;
  });

describe('every strategy', { concurrency: 8 }, () => {
  for (const strategy of STRATEGIES) {
    test(`${strategy}: held, confirmed, cancelled; every answer and every view says so (traps 22, 32)`, async () => {
      const sections = [section(strategy, 10, { price: 1500 }), { id: 'B', capacity: 5 }];
      const hall = await open(`LIFE/${strategy}`, strategy, 10, { holdSeconds: 120, currency: 'EUR', sections });
      const ann = await hall.buyer('ann');
      const sees = async (seats, counts, place, remainingSeats) => {
        assert.equal((await hall.map()).seats, seats);
        assert.deepEqual(await hall.counts(), counts);
        const { status, reserving, remainingSeats: left } = await hall.status(ann.token);
        assert.deepEqual({ status, reserving, left }, { ...place, left: remainingSeats });
        await assertHotIsLedger(hall);
      };
      await sees('AAAAAAAAAA', { available: 10, held: 0, confirmed: 0 }, { status: 'ACTIVE', reserving: false }, 15);

      const since = Date.now();
      const held = await hall.held(ann, { quantity: 3, strategy });
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
      assert.deepEqual(await hall.got(ann, id), held);
      assert.deepEqual(await hall.list(ann), [held]);
      await sees('HHHAAAAAAA', { available: 7, held: 3, confirmed: 0 }, { status: 'ACTIVE', reserving: true }, 12);

      const first = await hall.confirm(ann, id);
      const confirmed = hall.found(first, 'CONFIRMED');
      const { confirmationCode, confirmedAt } = confirmed;
      assert.match(confirmationCode, /^[A-Z2-9]{10}$/);
      assert.deepEqual(confirmed, { ...held, status: 'CONFIRMED', confirmationCode, confirmedAt });
      assert.ok(Date.parse(confirmedAt) >= Date.parse(createdAt) && Date.parse(confirmedAt) <= Date.now(), confirmedAt);
      const again = await hall.confirm(ann, id);
      assert.deepEqual([again.status, again.text], [200, first.text]);
      assert.deepEqual(await hall.got(ann, id), confirmed);
      assert.deepEqual(await hall.list(ann), [confirmed]);
      await sees('CCCAAAAAAA', { available: 7, held: 0, confirmed: 3 }, { status: 'COMPLETED', reserving: false }, 12);

      const end = await hall.cancel(ann, id);
      const cancelled = hall.found(end, 'CANCELLED');
      assert.deepEqual(cancelled, { ...confirmed, status: 'CANCELLED', endedAt: cancelled.endedAt });
      const twice = await hall.cancel(ann, id);
      assert.deepEqual([twice.status, twice.text], [200, end.text]);
      assert.deepEqual(await hall.got(ann, id), cancelled);
      assert.deepEqual(await hall.list(ann), [], 'what has ended is not listed');
      await refuses(hall.confirm(ann, id), 409, 'reservation_ended');
      await sees('AAAAAAAAAA', { available: 10, held: 0, confirmed: 0 }, { status: 'COMPLETED', reserving: false }, 15);
      assert.deepEqual(
        query(server.dataDir, `SELECT f.kind, f.seat_count FROM facts f WHERE ${hexOf('f.reservation_id')} = '${id.replaceAll('-', '')}' ORDER BY f.id`),
        ['HELD', 'CONFIRMED', 'CANCELLED'].map((kind) => ({ kind, seat_count: 3 })),
      );
    });

    test(`${strategy}: a cancelled hold is given back once and can't be confirmed (trap 25)`, async () => {
      const hall = await open(`BACK/${strategy}`, strategy, 4);
      const ann = await hall.buyer('ann');
      const ben = await hall.buyer('ben');
      const held = await hall.held(ann, { quantity: 4, strategy });
      const first = await hall.cancel(ann, held.id);
      const cancelled = hall.found(first, 'CANCELLED');
      assert.deepEqual(cancelled, { ...held, status: 'CANCELLED', endedAt: cancelled.endedAt });
      const next = await hall.held(ben, { seats: [2, 3], strategy });
      assert.equal((await hall.cancel(ann, held.id)).text, first.text);
      await refuses(hall.confirm(ann, held.id), 409, 'reservation_ended');
      assert.equal((await hall.map()).seats, 'AHHA', 'the next holder keeps them');
      await hall.confirmed(ben, next.id);
      assert.equal((await hall.cancel(ann, held.id)).text, first.text);
      assert.equal((await hall.map()).seats, 'ACCA');
      await assertHotIsLedger(hall);
    });

    test(`${strategy}: named seats, all or none, and who refuses says which (trap 24)`, async () => {
      const hall = await open(`NAMED/${strategy}`, strategy, 10);
      const ann = await hall.buyer('ann');
      const ben = await hall.buyer('ben');
      assert.deepEqual((await hall.held(ann, { seats: [9, 2, 7], strategy })).seats, [2, 7, 9]);
      await refuses(hall.hold(ben, { seats: [1, 9, 3, 2], strategy }), 409, 'seat_taken', { seats: [2, 9] });
      await refuses(hall.hold(ben, { seats: [10, 11], strategy }), 404, 'seat_not_found', { seats: [11] });
      assert.equal((await hall.map()).seats, 'AHAAAAHAHA', 'nothing of it was taken');
      assert.deepEqual((await hall.held(ben, { seats: [1, 3], strategy })).seats, [1, 3]);
      assert.equal(hall.rows().length, 2);
      await assertHotIsLedger(hall);
    });

    test(`${strategy}: a quantity is adjacent seats by the rule of the design`, async () => {
      const hall = await open(`RULE/${strategy}`, strategy, 18);
      const ann = await hall.buyer('ann');
      const take = async (quantity) => (await hall.held(ann, { quantity, strategy })).seats;
      // Free runs: 1–2, 4–6, 8–11, 13–17.
      await hall.held(ann, { seats: [3, 7, 12, 18], strategy });
      assert.deepEqual(await take(2), [1, 2], 'the smallest that fits');
      assert.deepEqual(await take(2), [8, 9], 'of three one would be left alone');
      assert.deepEqual(await take(2), [10, 11]);
      assert.deepEqual(await take(2), [13, 14]);
      assert.deepEqual(await take(2), [4, 5], 'there is no other; the lowest numbers');
      assert.deepEqual(await take(4), [6, 15, 16, 17], 'the fewest runs');
      await refuses(hall.hold(ann, { quantity: 1, strategy }), 409, 'sold_out');
      await assertHotIsLedger(hall);
    });

    test(`${strategy}: 100 in stock are 100, the next is refused (trap 30); some are not enough`, async () => {
      const hall = await open(`STOCK/${strategy}`, strategy, 100);
      const ann = await hall.buyer('ann');
      const sold = new Set();
      for (let i = 0; i < 99; i++) for (const seat of (await hall.held(ann, { quantity: 1, strategy })).seats) sold.add(seat);
      await refuses(hall.hold(ann, { quantity: 2, strategy }), 409, 'sold_out');
      const last = await hall.held(ann, { quantity: 1, strategy });
      sold.add(last.seats[0]);
      assert.equal(sold.size, 100);
      await refuses(hall.hold(ann, { quantity: 1, strategy }), 409, 'sold_out');
      await refuses(hall.hold(ann, { seats: [100], strategy }), 409, 'seat_taken', { seats: [100] });
      assert.deepEqual(await hall.counts(), { available: 0, held: 100, confirmed: 0 });
      assert.equal(hall.rows().length, 100);
      await hall.cancelled(ann, last.id);
      assert.deepEqual((await hall.held(ann, { quantity: 1, strategy })).seats, last.seats);
      await assertHotIsLedger(hall);
    });

    test(`${strategy}: a refused claim leaves no row, and nothing that is freed later (trap 26)`, async () => {
      const hall = await open(`REFUSED/${strategy}`, strategy, 2, { holdSeconds: BRIEF_S });
      const ann = await hall.buyer('ann');
      const ben = await hall.buyer('ben');
      const { id } = await hall.held(ann, { quantity: 2, strategy });
      const confirmed = await hall.confirmed(ann, id);
      await refuses(hall.hold(ben, { quantity: 1, strategy }), 409, 'sold_out');
      await refuses(hall.hold(ben, { seats: [1], strategy }), 409, 'seat_taken', { seats: [1] });
      await refuses(hall.hold(ben, { quantity: 3, strategy }), 409, 'sold_out');
      const last = new Date(Date.now() + BRIEF_S * 1000).toISOString();
      await timeIsOver({ expiresAt: last });
      await pause(200); // and twenty ticks more
      assert.deepEqual(hall.rows().map((row) => [row.id, row.status]), [[id, 'CONFIRMED']]);
      assert.deepEqual(await hall.got(ann, id), confirmed, 'its own time changes nothing either (trap 28)');
      assert.equal((await hall.map()).seats, 'CC');
      assert.deepEqual(await hall.list(ben), []);
      await assertHotIsLedger(hall);
    });

    test(`${strategy}: a hold ends by itself at its time; its seats return once (traps 23, 25, 27, 28, 29)`, async () => {
      const hall = await open(`TIME/${strategy}`, strategy, 3, { holdSeconds: BRIEF_S });
      const ann = await hall.buyer('ann');
      const ben = await hall.buyer('ben');
      const held = await hall.held(ann, { quantity: 3, strategy });
      assert.equal(Date.parse(held.expiresAt) - Date.parse(held.createdAt), BRIEF_S * 1000);
      await refuses(hall.hold(ben, { quantity: 1, strategy }), 409, 'sold_out');
      const expired = await expires(hall, ann, held);
      assert.deepEqual(expired, { ...held, status: 'EXPIRED', endedAt: expired.endedAt });
      const late = Date.parse(expired.endedAt) - Date.parse(held.expiresAt);
      assert.ok(late >= 0 && late < LATE_MS, `${late} ms`);
      await until('the hot store has followed', async () => (await hall.counts()).available === 3);
      assert.deepEqual(await hall.list(ann), []);
      const { status, reserving } = await hall.status(ann.token);
      assert.deepEqual([status, reserving], ['ACTIVE', false], 'the stay goes on');

      await server.admin('PATCH', `/admin/events/${hall.name}`, { holdSeconds: 300 });
      const next = await hall.held(ben, { quantity: 3, strategy });
      assert.deepEqual(next.seats, held.seats, 'the slots are there, and all of them');
      const lateOnes = async () => {
        await refuses(hall.confirm(ann, held.id), 410, 'hold_expired');
        await refuses(hall.cancel(ann, held.id), 410, 'hold_expired');
        assert.deepEqual(await hall.got(ann, held.id), expired);
      };
      await lateOnes();
      assert.equal((await hall.map()).seats, 'HHH');
      assert.deepEqual(await hall.got(ben, next.id), next);
      await hall.confirmed(ben, next.id);
      await lateOnes();
      assert.equal((await hall.map()).seats, 'CCC');
      await assertHotIsLedger(hall);
    });

    test(`${strategy}: a hold outlives the stay`, async () => {
      const hall = await open(`STAY/${strategy}`, strategy, 4, {}, { activeTtlSeconds: BRIEF_S });
      const ann = await hall.buyer('ann');
      const kept = await hall.held(ann, { quantity: 1, strategy });
      const other = await hall.held(ann, { quantity: 1, strategy });
      await hall.becomes(ann.token, 'EXPIRED');
      await refuses(hall.hold(ann, { quantity: 1, strategy }), 403, 'not_active');
      assert.deepEqual((await hall.list(ann)).map(({ id }) => id).sort(), [kept.id, other.id]);
      await hall.confirmed(ann, kept.id);
      await hall.cancelled(ann, other.id);
      assert.equal((await hall.status(ann.token)).status, 'EXPIRED', 'it was not completed');
      assert.equal((await hall.map()).seats, 'CAAA');
      await assertHotIsLedger(hall);
    });
  }
});

describe('the place', { concurrency: 4 }, () => {
  test('is completed by confirming, and the next one gets in at once (trap 11)', async () => {
    const hall = await open('PLACE/1', 'slot', 10, {}, { maxActive: 1 });
    const ann = await hall.buyer('ann');
    const ben = await hall.enter('ben');
    assert.equal(ben.status, 'WAITING');
    const { id } = await hall.held(ann, { quantity: 1 });
    await hall.confirmed(ann, id);
    assert.equal((await hall.status(ann.token)).status, 'COMPLETED');
    await hall.becomes(ben.entryToken, 'ACTIVE');
    await refuses(hall.hold(ann), 403, 'not_active');
    await refuses(hall.gate(ann.token), 403, 'not_active');
    await hall.held({ token: ben.entryToken });
    const { completed, active } = await hall.numbers();
    assert.deepEqual([completed, active], [1, 1]);
    assert.deepEqual(entriesOf(hall).map(({ user_id: user, status }) => [user, status]), [['ann', 'COMPLETED'], ['ben', 'ACTIVE']]);
  });

  test('is not completed while another hold is live', async () => {
    const hall = await open('PLACE/2', 'slot', 10, { sections: [{ id: 'A', capacity: 5 }, { id: 'B', capacity: 5, mode: 'seat' }] });
    const ann = await hall.buyer('ann');
    const here = await hall.held(ann, { quantity: 1 });
    const there = await hall.held(ann, { quantity: 1, section: 'B' });
    await hall.confirmed(ann, here.id);
    let place = await hall.status(ann.token);
    assert.deepEqual([place.status, place.reserving], ['ACTIVE', true]);
    await hall.confirm(ann, here.id);
    assert.equal((await hall.status(ann.token)).status, 'ACTIVE', 'saying it again is nothing new');
    await hall.confirmed(ann, there.id);
    place = await hall.status(ann.token);
    assert.deepEqual([place.status, place.reserving], ['COMPLETED', false]);
  });

  test('is kept by cancelling, whatever was confirmed before', async () => {
    const hall = await open('PLACE/3', 'slot', 10, {}, { maxActive: 1 });
    const ann = await hall.buyer('ann');
    const ben = await hall.enter('ben');
    const one = await hall.held(ann);
    const other = await hall.held(ann);
    await hall.confirmed(ann, one.id);
    await hall.cancelled(ann, other.id);
    await hall.cancelled(ann, one.id);
    const { status, reserving } = await hall.status(ann.token);
    assert.deepEqual([status, reserving], ['ACTIVE', false]);
    assert.equal((await hall.gate(ann.token)).status, 204);
    assert.equal((await hall.status(ben.entryToken)).status, 'WAITING');
    const last = await hall.held(ann);
    await hall.confirmed(ann, last.id);
    await hall.becomes(ben.entryToken, 'ACTIVE');
  });

  test('when it is given back, what is held goes with it, and what is confirmed stays', async () => {
    const sections = [{ id: 'A', capacity: 5 }, { id: 'B', capacity: 5, mode: 'seat' }];
    const hall = await open('PLACE/4', 'slot', 5, { sections }, { maxActive: 1 });
    const ann = await hall.buyer('ann');
    const ben = await hall.enter('ben');
    const mine = await hall.held(ann, { quantity: 1 });
    const held = [];
    for (let i = 0; i < 4; i++) held.push(await hall.held(ann, { quantity: 1, section: i % 2 ? 'A' : 'B' }));
    const bought = await hall.confirmed(ann, mine.id);
    assert.equal((await hall.leave(ann.token)).status, 204);
    for (const { id, ...rest } of held) {
      const { status, endedAt, ...now } = await hall.got(ann, id);
      assert.equal(status, 'CANCELLED');
      assert.deepEqual({ ...now, id, status: 'HELD', endedAt: null }, { id, ...rest });
      await refuses(hall.confirm(ann, id), 409, 'reservation_ended');
    }
    assert.deepEqual(await hall.list(ann), [bought]);
    assert.deepEqual([(await hall.map('A')).seats, (await hall.map('B')).seats], ['CAAAA', 'AAAAA']);
    assert.equal((await hall.status(ann.token)).status, 'LEFT');
    await hall.becomes(ben.entryToken, 'ACTIVE');
    assert.deepEqual((await hall.held({ token: ben.entryToken }, { seats: [2, 3, 4, 5] })).seats, [2, 3, 4, 5]);
    assert.equal((await hall.leave(ann.token)).status, 204, 'again, and nobody else loses anything');
    assert.equal((await hall.map('A')).seats, 'CHHHH');
    await assertHotIsLedger(hall);
  });

  test('maxPerUser counts what is held and confirmed, in all sections, and not what has ended', async () => {
    const sections = [{ id: 'A', capacity: 9 }, { id: 'B', capacity: 9, mode: 'seat' }];
    const hall = await open('PLACE/5', 'slot', 9, { sections, maxPerUser: 4 });
    const ann = await hall.buyer('ann');
    await refuses(hall.hold(ann, { quantity: 5 }), 409, 'limit_exceeded');
    await refuses(hall.hold(ann, { quantity: 5, section: 'B' }), 409, 'limit_exceeded');
    const one = await hall.held(ann, { quantity: 2 });
    const other = await hall.held(ann, { quantity: 2, section: 'B' });
    await hall.confirmed(ann, one.id);
    for (const name of ['A', 'B']) await refuses(hall.hold(ann, { quantity: 1, section: name }), 409, 'limit_exceeded');
    await hall.cancelled(ann, one.id);
    await hall.held(ann, { quantity: 1, section: 'B' });
    await refuses(hall.hold(ann, { quantity: 2 }), 409, 'limit_exceeded');
    await hall.cancelled(ann, other.id);
    await hall.held(ann, { quantity: 3 });
    assert.deepEqual([await hall.counts('A'), await hall.counts('B')].map(({ held }) => held), [3, 1]);
    await assertHotIsLedger(hall);
  });
});

test('a list has the live ones of its user only, newest first, and at most a hundred (trap 32)', async () => {
  const hall = await open('LIST/1', 'slot', 200);
  const other = await open('LIST/2', 'slot', 5);
  const [lia, leo, elsewhere] = [await hall.buyer('lia'), await hall.buyer('leo'), await other.buyer('lia')];
  const held = [];
  for (let i = 0; i < 6; i++) held.push(await hall.held(lia));
  const foreign = await hall.held(leo);
  const far = await other.held(elsewhere);
  await hall.cancelled(lia, held[0].id);
  await hall.confirmed(lia, held[1].id);
  await hall.cancelled(lia, held[1].id);
  const bought = await hall.confirmed(lia, held[2].id);
  const expected = [held[5], held[4], held[3], bought];
  assert.deepEqual(await hall.list(lia), expected);
  assert.deepEqual(await hall.list(leo), [foreign]);
  assert.deepEqual(await other.list(elsewhere), [far]);
  const named = await server.call('GET', '/reservations?userId=lia');
  const ids = (list) => list.map(({ id }) => id).sort();
  assert.deepEqual(ids(named.json.reservations), ids([...expected, far]), 'by name: of all events');
  assert.deepEqual((await server.call('GET', '/reservations?userId=nobody')).json, { reservations: [] });
  for (let i = 0; i < 100; i++) await hall.held(leo);
  assert.equal((await hall.list(leo)).length, 100);
});

test('confirming too late is 410 before anybody is charged, and the seat is free at once (trap 33)', async () => {
  const slow = await start({ args: ['--queue-tick-ms', '1000'] });
  const modes = ['slot', 'seat'];
  const hall = await Hall.open(slow, 'LATE/1', {}, { ...MANY, holdSeconds: 1, sections: modes.map((mode) => ({ id: mode, capacity: 5, mode })) });
  const ann = await hall.buyer('ann');
  const one = async (name, i) => {
    await pause(i * 150);
    const held = await hall.held(ann, { seats: [i + 1], section: name });
    await timeIsOver(held);
    const answer = await hall.confirm(ann, held.id);
    const json = assertProblem(answer, 410, 'hold_expired');
    assert.match(json.detail, /do not charge/);
    assert.equal((await hall.map(name)).seats[i], 'A');
    const { status, confirmedAt, confirmationCode } = await hall.got(ann, held.id);
    assert.deepEqual([status, confirmedAt, confirmationCode], ['EXPIRED', null, null]);
  };
  await Promise.all(modes.flatMap((name) => [0, 1, 2, 3, 4].map((i) => one(name, i))));
  assert.equal(await metric(slow, 'admitone_reservation_expiries_total'), 10, 'each once, whoever found it');
  assert.equal(await metric(slow, 'admitone_reservation_confirms_total'), 0);
  for (const name of modes) assert.deepEqual(await hall.counts(name), { available: 5, held: 0, confirmed: 0 });
  await assertHotIsLedger(hall);
  audit(slow);
  await slow.stop();
});

for (const how of ['stop', 'kill9'])
  test(`a restart (${how}) recovers what is held and confirmed, with its times, and resets nothing (trap 31)`, async () => {
    const folder = tempFolder();
    const dataDir = path.join(folder, 'data');
    const sections = [...new Set(Object.values(MODE_OF))].map((mode) => ({ id: mode, capacity: 8, mode, price: 10 }));
    let own = await start({ dataDir, args: QUICK });
    let hall = await Hall.open(own, 'RESTART/1', {}, { ...MANY, sections });
    const brief = await Hall.open(own, 'RESTART/2', {}, { ...MANY, sections, holdSeconds: 1 });
    const [ann, ben, tom] = [await hall.buyer('ann'), await hall.buyer('ben'), await brief.buyer('tom')];
    const kept = {};
    const ended = [];
    for (const { id: name } of sections) {
      kept[name] = await hall.held(ann, { section: name, seats: [2, 3] });
      const sold = await hall.held(ben, { section: name, seats: [5] });
      const back = await hall.held(ben, { section: name, seats: [7] });
      kept[`${name} sold`] = await hall.confirmed(ben, sold.id);
      ended.push(await hall.cancelled(ben, back.id));
    }
    const lost = await Promise.all(sections.map(({ id: name }) => brief.held(tom, { section: name, quantity: 8 })));
    const shown = await hall.sections();
    await own[how]();
    await timeIsOver(lost.at(-1));

    own = await start({ dataDir, args: QUICK });
    hall = new Hall(own, 'RESTART/1');
    assert.deepEqual(await hall.sections(), shown);
    for (const { id: name } of sections) assert.equal((await hall.map(name)).seats, 'AHHACAAA');
    for (const [name, one] of Object.entries(kept)) {
      const who = name.includes('sold') ? ben : ann;
      assert.deepEqual(await hall.got(who, one.id), one);
      assert.ok((await hall.list(who)).some(({ id }) => id === one.id));
    }
    for (const one of ended) assert.deepEqual(await hall.got(ben, one.id), one);
    assert.equal((await hall.status(ann.token)).reserving, true);
    await assertHotIsLedger(hall);

    const after = new Hall(own, 'RESTART/2');
    await until('what ran out meanwhile is free', async () => (await after.sections()).every(({ available }) => available === 8));
    for (const { id } of lost) await refuses(after.confirm(tom, id), 410, 'hold_expired');
    for (const { id: name } of sections) {
      await refuses(hall.hold(ben, { section: name, seats: [2, 5] }), 409, 'seat_taken', { seats: [2, 5] });
      await hall.confirmed(ann, kept[name].id);
      await hall.cancelled(ben, kept[`${name} sold`].id);
      assert.equal((await hall.map(name)).seats, 'ACCAAAAA');
    }
    await assertHotIsLedger(hall);
    await assertHotIsLedger(after);
    audit(own);
    await own.stop();
    removeFolder(folder);
  });
