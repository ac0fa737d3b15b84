// Which users may hold seats, confirm and cancel: in the three modes of users.auth, and with autoEnter
// (docs/pitfalls.md, 10).
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { jwt, startSigned } from './support/jwt.mjs';
import { assertProblemWith, bearer } from './support/queue.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, audit } from './support/reservations.mjs';
import { assertProblem, start, test } from './support/server.mjs';

const KEY = 'the shop\'s own key, 32 bytes or so';
const QUICK = ['--queue-tick-ms', '10'];
const MODES = [...new Set(Object.values(MODE_OF))];
const PATH_OF = { optimistic: '/api/v1/optimistic', pessimistic: '/api/v2/pessimistic', 'distributed-lock': '/api/v3/distributed-lock' };

const refuses = async (answer, status, code) => assertProblem(await answer, status, code);
const everyMode = (capacity = 5) => MODES.map((mode) => ({ id: mode, capacity, mode }));
// Looks it up, confirms or cancels it, with only the given proof of the user.
const finish = (server, what, id, { headers, body, search = '' } = {}) =>
  what === 'get'
    ? server.call('GET', `/reservations/${id}${search}`, { headers })
    : server.call('POST', `/reservations/${id}/${what}`, { headers, body });

// The public view of the seats and the rows of the ledger, which a refusal must not change. An adaptive
// section may choose another strategy at any time: on a slow machine a request waits long for the lock.
const seatsOf = async (sale) => {
  const sections = (await sale.sections()).map((s) => (s.mode === 'adaptive' ? { ...s, strategy: undefined } : s));
  return JSON.stringify([sections, sale.rows()]);
};

describe('trusted', () => {
  let server;
  before(async () => (server = await start({ args: QUICK })));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const open = (name, queue, more) => Sale.open(server, name, queue, { sections: everyMode(), maxPerUser: 100, ...more });

  test('the gate: only an ACTIVE place of this event holds seats, and only for its own user (pitfall 10)', async () => {
    const sale = await open('GATE/1', { maxActive: 1 });
    const other = await open('GATE/2');
    const ann = await sale.buyer('ann');
    const ben = { token: (await sale.enter('ben')).entryToken };
    const foreign = await other.buyer('ann');
    const before = await seatsOf(sale);
    const forged = `${ann.token.slice(0, -2)}${ann.token.at(-2) === 'A' ? 'B' : 'A'}${ann.token.at(-1)}`;
    for (const section of MODES) {
      const wish = { section, quantity: 1 };
      const missing = await sale.hold(undefined, wish);
      assertProblem(missing, 401, 'token_required');
      assert.match(missing.headers['www-authenticate'], /^Bearer /);
      await refuses(sale.hold(undefined, { ...wish, userId: 'ann' }), 401, 'token_required');
      await refuses(sale.hold({ token: forged }, wish), 401, 'token_invalid');
      assert.match(assertProblem(await sale.hold({ token: server.adminKey }, wish), 401, 'token_required').detail, /^A key was sent where an entry token is needed/);
      await refuses(sale.hold(foreign, wish), 403, 'token_foreign_event');
      await refuses(sale.hold(ben, wish), 403, 'not_active');
      await refuses(sale.hold(ben, { ...wish, userId: 'ann' }), 403, 'user_mismatch');
      await refuses(sale.hold(ann, { ...wish, userId: 'ben' }), 403, 'user_mismatch');
      await refuses(sale.hold(ann, { ...wish, userId: 7 }), 403, 'user_mismatch');
    }
    await refuses(server.call('POST', '/reservations?userId=ben', { headers: bearer(ann.token), body: { eventType: 'GATE', eventId: '1', section: 'slot', quantity: 1 } }), 403, 'user_mismatch');
    assert.equal(await seatsOf(sale), before);
    assert.equal((await sale.held(ann, { section: 'slot', quantity: 1, userId: 'ann' })).userId, 'ann');
    assert.equal((await sale.leave(ann.token)).status, 204);
    await refuses(sale.hold(ann, { section: 'slot', quantity: 1 }), 403, 'not_active');
    await sale.becomes(ben.token, 'ACTIVE');
    assert.equal((await sale.held(ben, { section: 'seat', quantity: 1 })).userId, 'ben');
  });

  test('a stay that is over holds nothing more', async () => {
    const sale = await open('GATE/3', { activeTtlSeconds: 1 });
    const ann = await sale.buyer('ann');
    await sale.becomes(ann.token, 'EXPIRED');
    for (const section of MODES) await refuses(sale.hold(ann, { section, quantity: 1 }), 403, 'not_active');
    assert.equal(sale.rows().length, 0);
  });

  test('the token may come in a header, another header or the query', async () => {
    const sale = await open('GATE/4');
    const { token } = await sale.buyer('ann');
    const body = { eventType: 'GATE', eventId: '4', section: 'slot', quantity: 1 };
    for (const [search, headers] of [['', { authorization: `bearer ${token}` }], ['', { 'x-queue-token': token }], [`?token=${token}`, {}]]) {
      const held = await server.call('POST', `/reservations${search}`, { headers, body });
      assert.equal(held.status, 201, held.text);
      const { id } = held.json;
      assert.equal((await server.call('GET', `/reservations/${id}${search}`, { headers })).status, 200);
      assert.equal((await server.call('POST', `/reservations/${id}/cancel${search}`, { headers })).json.status, 'CANCELLED');
      assert.deepEqual((await server.call('GET', `/reservations${search}`, { headers })).json, { reservations: [] });
    }
  });

  test('PAUSED and DRAINING sell to active users; CLOSED sells nothing, and can be confirmed', async () => {
    const sale = await open('STATE/1', {}, { maxPerUser: 100 });
    const ann = await sale.buyer('ann');
    const held = [];
    for (const verb of ['pause', 'drain']) {
      await sale.did(verb);
      for (const section of MODES) held.push(await sale.held(ann, { section, quantity: 1 }));
    }
    await sale.did('deactivate');
    const before = await seatsOf(sale);
    for (const section of MODES) await refuses(sale.hold(ann, { section, quantity: 1 }), 403, 'closed');
    assert.equal(await seatsOf(sale), before);
    await sale.cancelled(ann, held.pop().id);
    for (const { id } of held) await sale.confirmed(ann, id);
    assert.deepEqual((await sale.sections()).map(({ confirmed }) => confirmed), [2, 2, 2, 1]);
    await assertHotIsLedger(sale);
  });

  test('a section that is closed or in maintenance sells nothing, the others do', async () => {
    const sale = await open('STATE/2');
    const ann = await sale.buyer('ann');
    for (const section of MODES) {
      const { id } = await sale.held(ann, { section, quantity: 1 });
      for (const status of ['closed', 'maintenance']) {
        assert.equal((await server.admin('PATCH', `/admin/events/STATE/2/sections/${section}`, { status })).status, 200);
        await refuses(sale.hold(ann, { section, quantity: 1 }), 409, 'section_closed');
        await refuses(sale.hold(ann, { section, seats: [4] }), 409, 'section_closed');
      }
      assert.equal((await server.admin('PATCH', `/admin/events/STATE/2/sections/${section}`, { status: 'open' })).status, 200);
      await sale.held(ann, { section, quantity: 1 });
      await sale.cancelled(ann, id);
      assert.deepEqual(await sale.counts(section), { available: 4, held: 1, confirmed: 0 });
    }
  });

  test('a strategy that the section does not have is refused, each wrong pair, on every path', async () => {
    const sale = await open('PAIR/1', {}, { maxPerUser: 1000, sections: everyMode(50) });
    const ann = await sale.buyer('ann');
    for (const section of MODES)
      for (const strategy of STRATEGIES) {
        const wish = { section, quantity: 1 };
        const fixed = PATH_OF[strategy];
        const body = { eventType: 'PAIR', eventId: '1', ...wish };
        if (MODE_OF[strategy] === section) {
          assert.equal((await sale.held(ann, { ...wish, strategy })).strategy, strategy);
          if (fixed) assert.equal((await server.call('POST', fixed, { headers: bearer(ann.token), body })).json.strategy, strategy);
        } else {
          await refuses(sale.hold(ann, { ...wish, strategy }), 409, 'strategy_not_allowed');
          if (fixed) await refuses(server.call('POST', fixed, { headers: bearer(ann.token), body }), 409, 'strategy_not_allowed');
        }
      }
    assert.deepEqual((await sale.sections()).map(({ held }) => held), [1, 1, 1, 6]);
    for (const section of MODES) assert.equal((await sale.held(ann, { section, quantity: 1 })).strategy, section === 'seat' ? 'optimistic' : section);
  });

  test('a section with live reservations does not change between seat and the others', async () => {
    const sale = await open('MODE/1');
    const ann = await sale.buyer('ann');
    const patch = (section, mode) => server.admin('PATCH', `/admin/events/MODE/1/sections/${section}`, { mode });
    const [hot, cold] = [await sale.held(ann, { section: 'slot', seats: [2] }), await sale.held(ann, { section: 'seat', seats: [2] })];
    for (const sold of [false, true]) {
      if (sold) for (const { id } of [hot, cold]) await sale.confirmed(ann, id);
      await refuses(patch('slot', 'seat'), 409, 'section_in_use');
      for (const mode of ['slot', 'lock', 'adaptive']) await refuses(patch('seat', mode), 409, 'section_in_use');
    }
    for (const mode of ['lock', 'adaptive', 'slot']) assert.equal((await patch('slot', mode)).status, 200, 'these share their state');
    assert.equal((await sale.map('slot')).seats, 'ACAAA');
    const ben = await sale.buyer('ben');
    await sale.held(ben, { section: 'slot', seats: [1], strategy: 'slot' });
    for (const who of [ann, ben]) for (const { id } of await sale.list(who)) await sale.cancelled(who, id);
    assert.equal((await patch('slot', 'seat')).status, 200);
    assert.equal((await patch('seat', 'slot')).status, 200);
    assert.equal((await sale.held(ben, { section: 'slot', seats: [2] })).strategy, 'optimistic');
    assert.equal((await sale.held(ben, { section: 'seat', seats: [2] })).strategy, 'slot');
    await assertHotIsLedger(sale);
  });

  test('live reservations keep their event, their section and their seats', async () => {
    const sale = await open('KEPT/1');
    const ann = await sale.buyer('ann');
    const held = [];
    for (const section of MODES) held.push(await sale.held(ann, { section, seats: [4] }));
    const patch = (section, capacity) => server.admin('PATCH', `/admin/events/KEPT/1/sections/${section}`, { capacity });
    const refusesChanges = async () => {
      await refuses(server.admin('DELETE', '/admin/events/KEPT/1'), 409, 'event_in_use');
      await refuses(server.admin('PATCH', '/admin/events/KEPT/1', { sections: [{ id: 'new', capacity: 1 }] }), 409, 'section_in_use');
      for (const section of MODES) await refuses(patch(section, 3), 409, 'section_in_use');
    };
    await refusesChanges();
    for (const { id } of held) await sale.confirmed(ann, id);
    await refusesChanges();
    for (const section of MODES) {
      for (const capacity of [4, 6]) assert.equal((await patch(section, capacity)).status, 200);
      assert.equal((await sale.map(section)).seats, 'AAACAA');
    }
    for (const { id } of held) await sale.cancelled(ann, id);
    await assertHotIsLedger(sale);
    for (const section of MODES) assert.equal((await patch(section, 3)).status, 200);
    const ben = await sale.buyer('ben');
    assertProblemWith(await sale.hold(ben, { section: 'seat', seats: [4] }), 404, 'seat_not_found', { seats: [4] });
    assert.deepEqual((await sale.held(ben, { section: 'slot', quantity: 3 })).seats, [1, 2, 3]);
    await sale.leave(ben.token);
    assert.equal((await server.admin('DELETE', '/admin/events/KEPT/1')).status, 204);
    await refuses(sale.hold(ben, { section: 'slot', quantity: 1 }), 404, 'event_not_found');
  });

  test('confirm, cancel, look up: the owner, by token or by name, the admin, and no other user (pitfall 25)', async () => {
    const sale = await open('OWNER/1');
    const other = await open('OWNER/2');
    const [own, ben, elsewhere] = [await sale.buyer('owner'), await sale.buyer('benno'), await other.buyer('owner')];
    const { id } = await sale.held(own, { section: 'slot', quantity: 1 });
    const ask = (what, how) => finish(server, what, id, how);
    const before = await seatsOf(sale);
    for (const what of ['confirm', 'cancel', 'get']) {
      await refuses(ask(what), 401, 'token_required');
      await refuses(ask(what, { headers: bearer(ben.token) }), 403, 'not_yours');
      await refuses(ask(what, { headers: bearer(`${own.token.slice(0, -3)}AAA`) }), 401, 'token_invalid');
      const named = what === 'get' ? { search: '?userId=benno' } : { body: { userId: 'benno' } };
      await refuses(ask(what, named), 403, 'not_yours');
      await refuses(ask(what, { ...named, headers: bearer(server.adminKey) }), 403, 'not_yours');
      const stolen = what === 'get' ? { search: '?userId=owner' } : { body: { userId: 'owner' } };
      await refuses(ask(what, { ...stolen, headers: bearer(ben.token) }), 403, 'user_mismatch');
    }
    assert.equal(await seatsOf(sale), before);
    assert.equal((await ask('get', { headers: bearer(elsewhere.token) })).status, 200, 'the user\'s token of another event');
    assert.equal((await ask('get', { search: '?userId=owner' })).status, 200);
    assert.equal((await ask('get', { headers: bearer(server.adminKey) })).status, 200);
    const confirmation = { 'x-shop-confirmation': jwt(KEY, { reservation: id, amount: 0, exp: Math.floor(Date.now() / 1000) + 60 }) };
    for (const what of ['confirm', 'cancel'])
      assert.match(assertProblem(await ask(what, { headers: { ...bearer(own.token), ...confirmation } }), 401, 'confirmation_invalid').detail, /shop\.key_file/);
    assert.equal((await ask('confirm', { body: { userId: 'owner' } })).json.status, 'CONFIRMED');
    assert.equal((await ask('cancel', { headers: bearer(server.adminKey) })).json.status, 'CANCELLED');
    await refuses(server.call('GET', '/reservations'), 401, 'token_required');
    await refuses(server.admin('GET', '/reservations'), 400, 'invalid_parameter');
    await refuses(server.call('GET', '/reservations?userId=owner', { headers: bearer(ben.token) }), 403, 'user_mismatch');
    const nobody = '01a1e240-6ea8-7dac-badf-d111f7a4fd76';
    for (const what of ['confirm', 'cancel']) await refuses(sale[what](own, nobody), 404, 'reservation_not_found');
    await refuses(sale.get(own, nobody), 404, 'reservation_not_found');
  });

  test('v1 to v3: a user and the number of a seat suffice', async () => {
    const sale = await open('PATH/1', {}, { sections: [{ id: 'X', capacity: 3 }, { id: 'A', capacity: 20, mode: 'seat' }] });
    const ann = await sale.buyer('ann');
    const { firstSeatId } = await sale.map();
    const headers = bearer(ann.token);
    let seat = 0;
    for (const [strategy, target] of Object.entries(PATH_OF)) {
      const post = (body, more = headers) => server.call('POST', target, { headers: more, body });
      const seatId = firstSeatId + seat++;
      const before = await seatsOf(sale);
      await refuses(post({ userId: 'ann', seatId }, {}), 401, 'token_required');
      await refuses(post({ userId: 'ben', seatId }), 403, 'user_mismatch');
      for (const wrong of [firstSeatId - 1, 1, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
        const answer = await post({ userId: 'ann', seatId: wrong });
        assert.equal(answer.status, 404, answer.text);
        assert.equal(answer.json.code, 'seat_not_found');
      }
      assertProblemWith(await post({ userId: 'ann', seatId: firstSeatId + 20 }), 404, 'seat_not_found', { seats: [21] });
      await refuses(post({ userId: 'ann', seatId: (await sale.map('X')).firstSeatId }), 409, 'strategy_not_allowed');
      await refuses(post({ userId: 'ann', seatId, eventType: 'PATH', eventId: '1', section: 'X' }), 404, 'seat_not_found');
      for (const other of STRATEGIES) if (other !== strategy) await refuses(post({ userId: 'ann', seatId, strategy: other }), 422, 'invalid_field');
      assert.equal(await seatsOf(sale), before);

      const held = await post({ userId: 'ann', seatId });
      assert.equal(held.status, 201, held.text);
      assert.equal(held.headers.location, `/reservations/${held.json.id}`);
      const { section, seats, userId, strategy: used } = sale.reservation(held, 'HELD');
      assert.deepEqual([section, seats, userId, used], ['A', [seat], 'ann', strategy]);
      assertProblemWith(await post({ userId: 'ann', seatId }), 409, 'seat_taken', { seats: [seat] });
      const body = { eventType: 'PATH', eventId: '1', section: 'A' };
      assert.deepEqual((await post({ ...body, quantity: 2, strategy })).json.seats.length, 2);
      assert.equal((await post({ ...body, seatId: firstSeatId + 18 - seat })).status, 201);
      seat += 2;
    }
    const slot = (await sale.map('X')).firstSeatId;
    assert.deepEqual((await server.call('POST', '/reservations', { headers, body: { seatId: slot + 2 } })).json.seats, [3], 'and so they do without a strategy');
    await assertHotIsLedger(sale);
  });
});

describe('autoEnter', () => {
  let server;
  before(async () => (server = await start({ args: QUICK })));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const open = (name, queue, more) => Sale.open(server, name, queue, { autoEnter: true, maxPerUser: 100, sections: everyMode(), ...more });

  test('a request without a place takes one, and goes straight on when it is ACTIVE', async () => {
    const sale = await open('AUTO/1');
    for (const section of MODES) {
      const answer = await sale.hold(undefined, { userId: 'ann', section, quantity: 1 });
      assert.equal(answer.status, 201, answer.text);
      const { id, userId } = sale.reservation(answer, 'HELD');
      assert.equal(userId, 'ann');
      const ann = { token: answer.headers['x-queue-token'] };
      assert.equal((await sale.status(ann.token)).reserving, true);
      await sale.held(ann, { section, quantity: 1 });
      await sale.confirmed(ann, id);
    }
    assert.equal((await sale.numbers()).entered, 1, 'one place for all of it');
    await refuses(sale.hold(undefined, { section: 'slot', quantity: 1 }), 422, 'invalid_field');
    assert.equal((await sale.numbers()).entered, 1);
  });

  test('where there is no room it waits: 202 with position and token; and when it is in, 201', async () => {
    const sale = await open('AUTO/2', { maxActive: 1 });
    const first = await sale.buyer('first');
    const wish = (userId) => ({ userId, section: 'slot', quantity: 1 });
    const waits = async (answer, position) => {
      const place = sale.place(await answer, 202);
      assert.deepEqual([place.status, place.position], ['WAITING', position]);
      return place.entryToken;
    };
    const ann = { token: await waits(sale.hold(undefined, wish('ann')), 1) };
    const ben = { token: await waits(sale.hold(undefined, wish('ben')), 2) };
    assert.equal(await waits(sale.hold(undefined, wish('ann')), 1), ann.token, 'asking again keeps the place');
    assert.equal(await waits(sale.hold(ben, wish('ben')), 2), ben.token);
    assert.equal(await waits(sale.hold(ben, { section: 'seat', quantity: 1 }), 2), ben.token);
    assert.equal(sale.rows().length, 0);
    const { id } = await sale.held(first, { section: 'slot', quantity: 1 });
    await sale.confirmed(first, id);
    await sale.becomes(ann.token, 'ACTIVE');
    await sale.held(ann, wish('ann'));
    await waits(sale.hold(undefined, wish('ben')), 1);
    assert.equal((await sale.leave(ann.token)).status, 204);
    await sale.becomes(ben.token, 'ACTIVE');
    assert.equal((await sale.hold(undefined, wish('ben'))).status, 201);
    assert.equal((await sale.hold(ben, wish('ben'))).status, 201);
    assert.equal((await sale.numbers()).entered, 3);
  });

  test('a token whose place is over takes a new one; forged and foreign ones do not', async () => {
    const sale = await open('AUTO/3');
    const other = await open('AUTO/4');
    let ann = await sale.buyer('ann');
    for (const section of MODES) {
      assert.equal((await sale.leave(ann.token)).status, 204);
      const answer = await sale.hold(ann, { section, quantity: 1 });
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.json.userId, 'ann');
      assert.notEqual(answer.headers['x-queue-token'], ann.token);
      ann = { token: answer.headers['x-queue-token'] };
      assert.equal((await sale.status(ann.token)).status, 'ACTIVE');
    }
    await refuses(other.hold(ann, { section: 'slot', quantity: 1 }), 403, 'token_foreign_event');
    const forged = `${ann.token.slice(0, -3)}AAA`;
    for (const headers of [bearer(forged), { 'x-queue-token': forged }, { 'x-queue-token': 'x' }])
      await refuses(other.hold(undefined, { section: 'slot', quantity: 1, userId: 'ann' }, { headers }), 401, 'token_invalid');
    assert.equal((await other.numbers()).entered, 0);
  });

  test('a full or closed queue says so, and a refusal after entering keeps the place', async () => {
    const sale = await open('AUTO/5', { maxActive: 1, maxWaiting: 1 }, { sections: [{ id: 'slot', capacity: 1 }, { id: 'other', capacity: 1 }] });
    const ann = await sale.buyer('ann');
    await sale.held(ann, { section: 'slot', quantity: 1 });
    assert.equal((await sale.hold(undefined, { userId: 'ben', section: 'slot', quantity: 1 })).status, 202);
    const full = await sale.hold(undefined, { userId: 'cy', section: 'slot', quantity: 1 });
    assertProblemWith(full, 429, 'queue_full', { entryStatus: 'REJECTED', maxWaiting: 1 });
    await sale.patch({ maxActive: 10 });
    await sale.becomes((await sale.enter('ben')).entryToken, 'ACTIVE');
    const none = await sale.hold(undefined, { userId: 'dan', section: 'slot', quantity: 1 });
    assertProblem(none, 409, 'sold_out');
    assert.equal((await sale.status(none.headers['x-queue-token'])).status, 'ACTIVE');
    await sale.did('deactivate');
    await refuses(sale.hold(undefined, { userId: 'eve', section: 'slot', quantity: 1 }), 403, 'closed');
    assert.equal(sale.rows().length, 1);
  });

  test('without autoEnter no token is 401, whichever user is named', async () => {
    const sale = await open('AUTO/6', {}, { autoEnter: false });
    await refuses(sale.hold(undefined, { userId: 'ann', section: 'slot', quantity: 1 }), 401, 'token_required');
    assert.equal((await sale.numbers()).entered, 0);
  });
});

describe('signed', () => {
  let server;
  before(async () => (server = await startSigned(KEY, QUICK)));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const as = (sub, key = KEY) => ({ 'x-user-assertion': jwt(key, { sub }) });
  const enter = async (sale, sub) => {
    const answer = await server.call('POST', `/queue/${sale.name}/enter`, { headers: as(sub) });
    return { token: sale.place(answer, 200).entryToken };
  };

  test('the token or the shop\'s assertion gives access to the user\'s reservations, and naming a user gives none', async () => {
    const sale = await Sale.open(server, 'SIGNED/1', {}, { sections: everyMode(), confirmBy: 'user' });
    const [ann, ben] = [await enter(sale, 'ann'), await enter(sale, 'ben')];
    const wish = { section: 'slot', quantity: 1 };
    await refuses(sale.hold(undefined, wish, { headers: as('ann') }), 401, 'token_required');
    await refuses(sale.hold(ann, wish, { headers: as('ben') }), 403, 'user_mismatch');
    await refuses(sale.hold(ann, wish, { headers: as('ann', 'another key') }), 401, 'assertion_invalid');
    await refuses(sale.hold(ann, { ...wish, userId: 'ben' }), 403, 'user_mismatch');
    const { id } = await sale.held(ann, wish, { headers: as('ann') });
    const ask = (what, headers) => finish(server, what, id, { headers });
    const before = await seatsOf(sale);
    for (const what of ['confirm', 'cancel', 'get']) {
      await refuses(ask(what), 401, 'assertion_required');
      await refuses(ask(what, as('ben')), 403, 'not_yours');
      await refuses(ask(what, bearer(ben.token)), 403, 'not_yours');
      await refuses(ask(what, as('ann', 'another key')), 401, 'assertion_invalid');
      await refuses(ask(what, { ...bearer(ann.token), ...as('ben') }), 403, 'user_mismatch');
      await refuses(ask(what, { ...bearer(ben.token), ...as('ann') }), 403, 'user_mismatch');
    }
    for (const headers of [{}, as('ben')]) {
      const status = headers['x-user-assertion'] ? [403, 'user_mismatch'] : [401, 'assertion_required'];
      for (const what of ['confirm', 'cancel'])
        await refuses(server.call('POST', `/reservations/${id}/${what}`, { headers, body: { userId: 'ann' } }), ...status);
      await refuses(server.call('GET', `/reservations/${id}?userId=ann`, { headers }), ...status);
      await refuses(server.call('GET', '/reservations?userId=ann', { headers }), ...status);
    }
    assert.equal(await seatsOf(sale), before);
    assert.deepEqual(await sale.list(undefined, { headers: as('ben') }), []);
    for (const headers of [as('ann'), bearer(ann.token)]) {
      assert.deepEqual((await sale.list(undefined, { headers })).map((one) => one.id), [id]);
      assert.equal((await ask('get', headers)).json.status, 'HELD');
    }
    assert.equal((await ask('confirm', as('ann'))).json.status, 'CONFIRMED');
    assert.equal((await ask('cancel', bearer(ann.token))).json.status, 'CANCELLED');
  });

  test('with autoEnter the shop\'s word is enough to take a place, and needed', async () => {
    const sale = await Sale.open(server, 'SIGNED/2', {}, { sections: everyMode(), autoEnter: true });
    const wish = { section: 'seat', quantity: 1 };
    await refuses(sale.hold(undefined, { ...wish, userId: 'ann' }), 401, 'assertion_required');
    await refuses(sale.hold(undefined, { ...wish, userId: 'ann' }, { headers: as('ben') }), 403, 'user_mismatch');
    assert.equal((await sale.numbers()).entered, 0);
    const answer = await sale.hold(undefined, wish, { headers: as('ann') });
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.json.userId, 'ann');
    assert.match(answer.headers['set-cookie'].join(), new RegExp(`admitone_entry_\\d+=${answer.headers['x-queue-token']};`));
    await sale.held({ token: answer.headers['x-queue-token'] }, wish);
  });
});

describe('anonymous', () => {
  let server;
  before(async () => (server = await start({ args: [...QUICK, '--users-auth', 'anonymous'] })));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const jarOf = (answer) => ({ cookie: answer.headers['set-cookie'].map((line) => line.split(';')[0]).join('; ') });
  const userOf = ({ cookie }) => ({ cookie: cookie.split('; ').find((one) => one.startsWith('admitone_user=')) });
  const enter = async (sale) => {
    const answer = await server.call('POST', `/queue/${sale.name}/enter`);
    const { userId, entryToken } = sale.place(answer, 200);
    return { userId, token: entryToken, jar: jarOf(answer) };
  };

  test('the cookies give access to the user\'s reservations, and naming a user gives none', async () => {
    const sale = await Sale.open(server, 'ANON/1', {}, { sections: everyMode(), confirmBy: 'user' });
    const [ann, ben] = [await enter(sale), await enter(sale)];
    const wish = { section: 'slot', quantity: 1 };
    await refuses(sale.hold(undefined, { ...wish, userId: ann.userId }), 401, 'token_required');
    await refuses(sale.hold(undefined, wish, { headers: userOf(ann.jar) }), 401, 'token_required');
    await refuses(sale.hold(ann, wish, { headers: userOf(ben.jar) }), 403, 'user_mismatch');
    const { id, userId } = await sale.held(undefined, wish, { headers: ann.jar });
    assert.equal(userId, ann.userId);
    const ask = (what, headers) => finish(server, what, id, { headers });
    const before = await seatsOf(sale);
    for (const what of ['confirm', 'cancel', 'get']) {
      await refuses(ask(what), 401, 'token_required');
      await refuses(ask(what, ben.jar), 403, 'not_yours');
      await refuses(ask(what, bearer(ben.token)), 403, 'not_yours');
      await refuses(ask(what, { ...bearer(ben.token), ...userOf(ann.jar) }), 403, 'user_mismatch');
      await refuses(ask(what, { ...bearer(ann.token), ...userOf(ben.jar) }), 403, 'user_mismatch');
    }
    for (const headers of [{}, ben.jar]) {
      for (const what of ['confirm', 'cancel'])
        await refuses(server.call('POST', `/reservations/${id}/${what}`, { headers, body: { userId } }), 403, 'user_mismatch');
      await refuses(server.call('GET', `/reservations/${id}?userId=${userId}`, { headers }), 403, 'user_mismatch');
      await refuses(server.call('GET', `/reservations?userId=${userId}`, { headers }), 403, 'user_mismatch');
    }
    assert.equal(await seatsOf(sale), before);
    // The userId is in every answer about the user: knowing it opens nothing.
    for (const what of ['confirm', 'cancel', 'get']) await refuses(ask(what, { cookie: `admitone_user=${userId}` }), 401, 'token_required');
    await refuses(server.call('GET', '/reservations', { headers: { cookie: `admitone_user=${userId}` } }), 401, 'token_required');
    for (const headers of [ann.jar, userOf(ann.jar), bearer(ann.token)]) {
      assert.deepEqual((await sale.list(undefined, { headers })).map((one) => one.id), [id]);
      assert.equal((await ask('get', headers)).json.status, 'HELD');
    }
    assert.equal((await ask('confirm', userOf(ann.jar))).json.status, 'CONFIRMED');
    assert.equal((await ask('cancel', ann.jar)).json.status, 'CANCELLED');
  });

  test('with autoEnter a new user gets a name, a place and seats at once', async () => {
    const sale = await Sale.open(server, 'ANON/2', {}, { sections: everyMode(), autoEnter: true });
    const wish = { section: 'slot', quantity: 1 };
    const answer = await sale.hold(undefined, wish);
    assert.equal(answer.status, 201, answer.text);
    const jar = jarOf(answer);
    assert.match(answer.json.userId, /^anon-/);
    assert.match(userOf(jar).cookie, /^admitone_user=[A-Za-z0-9_-]{46}$/);
    assert.deepEqual((await sale.list(undefined, { headers: jar })).map(({ id }) => id), [answer.json.id]);
    assert.equal((await sale.held(undefined, wish, { headers: jar })).userId, answer.json.userId);
    await refuses(sale.hold(undefined, { ...wish, userId: answer.json.userId }), 403, 'user_mismatch');
    const evil = await sale.hold(undefined, wish, { headers: { origin: 'https://evil.example' } });
    assertProblem(evil, 403, 'foreign_origin');
    assert.equal((await sale.numbers()).entered, 1);
  });

  test('a page of another site can\'t confirm or cancel for its visitor', async () => {
    const sale = await Sale.open(server, 'ANON/3', {}, { sections: everyMode() });
    const ann = await enter(sale);
    const { id } = await sale.held(undefined, { section: 'slot', quantity: 1 }, { headers: ann.jar });
    for (const what of ['confirm', 'cancel'])
      await refuses(server.call('POST', `/reservations/${id}/${what}`, { headers: { ...userOf(ann.jar), origin: 'https://evil.example' } }), 403, 'foreign_origin');
    assert.equal((await sale.got(ann, id)).status, 'HELD');
  });
});
