// Special cases of reservations: a hold and its expiry, its idempotency key, or its user's leaving at
// the same time; headers of a shop in front of the server; requests that can't be satisfied.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { jwt, startSigned } from './support/jwt.mjs';
import { assertProblemWith, bearer, eachOf, entriesOf, keepAlive, query } from './support/queue.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
import { assertProblem, isCluster, pause, start, test, until } from './support/server.mjs';
import { withShim } from './support/shim.mjs';

const QUICK = ['--queue-tick-ms', '10'];
const KEY = 'the shop\'s own key, 32 bytes or so';
const SHOPS_OWN = bearer('the-session-of-the-shop-itself');
const LEDGER_DECIDES = STRATEGIES.filter((strategy) => MODE_OF[strategy] === 'seat');
// A section for each strategy, so that none waits for another one's lock.
const SECTIONS = STRATEGIES.map((id) => ({ id, capacity: 20, mode: MODE_OF[id] }));
const ALL_FREE = { available: 20, held: 0, confirmed: 0 };

const wishOf = (strategy) => ({ section: strategy, strategy, quantity: 1 });
const refuses = async (answer, status, code) => assertProblem(await answer, status, code);

// Waits until that many records wait for the disk; on a cluster also records that nodes write for each
// other.
const isWritten = (depth, count) => (isCluster ? depth >= count : depth === count);
const written = (server, count) =>
  until(`${count} records`, async () => isWritten(await server.metric('admitone_ledger_queue_depth'), count));
const begun = (server, strategy, count) =>
  until(`${count} attempts`, async () => (await metric(server, 'admitone_reservation_attempts_total', { strategy })) === count);

// Checks that no seat is held any more, in the public view and in the ledger.
async function assertAllFree(sale) {
  for (const { id } of SECTIONS)
    await until(`the seats of ${id} return`, async () => (await sale.counts(id)).held === 0);
  for (const { id } of SECTIONS) assert.deepEqual(await sale.counts(id), ALL_FREE, id);
  await assertHotIsLedger(sale);
  audit(sale.server);
}

// So that a hold which shows that the seats are free is not late itself on a busy machine.
async function setHoldSeconds(sale, holdSeconds) {
  const { status } = await sale.server.admin('PATCH', `/admin/events/${sale.name}`, { holdSeconds });
  assert.equal(status, 200);
}

describe('a hold whose time is over', () => {
  test('before it is on disk is answered with 410, and its seats return', () =>
    withShim(async (server) => {
      const sale = await Sale.open(server, 'LATE/1', {}, { sections: SECTIONS, holdSeconds: 1 });
      const buyers = await sale.buyers(STRATEGIES.length);
      server.hold();
      const holds = STRATEGIES.map((strategy, i) => sale.hold(buyers[i], wishOf(strategy)));
      await written(server, holds.length);
      await pause(1100);
      server.release();
      for (const answer of await Promise.all(holds)) assertProblem(answer, 410, 'hold_expired');
      await assertAllFree(sale);
      assert.deepEqual(sale.rows().map(({ status }) => status), STRATEGIES.map(() => 'EXPIRED'));
      await setHoldSeconds(sale, 300);
      for (const [i, buyer] of buyers.entries()) await sale.held(buyer, wishOf(STRATEGIES[i]));
    }, QUICK));

  test('before it is on disk, and asked for again with the same key, is 410 or the same answer', () =>
    withShim(async (server) => {
      const sale = await Sale.open(server, 'LATE/2', {}, { sections: SECTIONS, holdSeconds: 1 });
      const ann = await sale.buyer('ann');
      const options = { headers: { 'idempotency-key': 'late' } };
      server.hold();
      const first = sale.hold(ann, wishOf('slot'), options);
      await written(server, 1);
      await pause(1100);
      const second = sale.hold(ann, wishOf('slot'), options);
      await begun(server, 'slot', 2);
      server.release();
      assertProblem(await first, 410, 'hold_expired');
      const again = await second;
      if (again.status === 201) assert.equal(again.headers['idempotency-replayed'], 'true');
      else assertProblem(again, 410, 'hold_expired');
      await assertAllFree(sale);
      assert.equal(sale.rows().length, 1);
      await setHoldSeconds(sale, 300);
      await sale.held(ann, wishOf('slot'));
    }, QUICK));

  test('is EXPIRED in every answer, also before the ledger has written that', () =>
    withShim(async (server) => {
      const sale = await Sale.open(server, 'LATE/4', {}, { sections: SECTIONS, holdSeconds: 6, maxPerUser: 100 });
      const ann = await sale.buyer('ann');
      const held = await sale.held(ann, wishOf('slot'));
      const inSeats = await sale.held(ann, wishOf('optimistic'));
      // Late, because nodes whose commits take too long give up their connections.
      await until('they end soon', () => Date.now() > Date.parse(held.expiresAt) - 1500);
      server.hold();
      const own = (path, headers) => server.call('GET', path, { headers });
      const keys = [{ 'x-queue-token': ann.token }, { authorization: `Bearer ${server.adminKey}` }];
      for (const { id, expiresAt } of [held, inSeats])
        for (const headers of keys) {
          const json = await until(`${id} is EXPIRED`, async () => {
            const now = (await own(`/reservations/${id}`, headers)).json;
            return now.status === 'EXPIRED' && now;
          });
          assert.deepEqual([json.endedAt, json.confirmedAt], [expiresAt, null]);
        }
      for (const [path, headers] of [['/reservations', keys[0]], ['/reservations?userId=ann', keys[1]]])
        assert.deepEqual((await own(path, headers)).json.reservations, [], 'it is not live');
      assert.deepEqual(sale.rows().map(({ status }) => status), ['HELD', 'HELD'], 'nothing was written');
      server.release();
      await until('the ledger has written it', () => sale.rows().every(({ status }) => status === 'EXPIRED'));
    }, QUICK));

  test('can\'t be cancelled, whether or not the tick has ended it: 410, and it is EXPIRED', async () => {
    const server = await start({ args: ['--queue-tick-ms', '1000'] });
    const sale = await Sale.open(server, 'LATE/3', {}, { sections: SECTIONS, holdSeconds: 1, maxPerUser: 100 });
    const ann = await sale.buyer('ann');
    for (let round = 0; round < 2; round++) {
      const held = await Promise.all(STRATEGIES.map((strategy) => sale.held(ann, wishOf(strategy))));
      const over = Math.max(...held.map(({ expiresAt }) => Date.parse(expiresAt)));
      await until('they are over', () => Date.now() > over);
      const refused = await Promise.all(held.map(({ id }) => sale.cancel(ann, id)));
      for (const answer of refused) assertProblem(answer, 410, 'hold_expired');
      assert.deepEqual(new Set(sale.rows().map(({ status }) => status)), new Set(['EXPIRED']));
      for (const { id } of held) await sale.got(ann, id, 'EXPIRED');
    }
    const { id } = await sale.held(ann, wishOf('slot'));
    await until('the tick has ended it', () => sale.rows().every(({ status }) => status === 'EXPIRED'));
    await refuses(sale.cancel(ann, id), 410, 'hold_expired');
    assert.equal(await server.metric('admitone_reservation_expiries_total'), sale.rows().length);
    await assertAllFree(sale);
    await server.stop();
  });
});

describe('leaving while a hold is being written', () => {
  // Both were answered: the hold was refused, or else it was there for the leave to cancel. `rows`:
  // what the user has in the ledger.
  function assertGivenBack(rows, held, left) {
    assert.equal(left.status, 204, left.text);
    if (held.status === 201) assert.deepEqual(rows.map(({ id }) => id), [held.json.id]);
    else assertProblem(held, 403, 'not_active');
    assert.ok(rows.length <= 1 && rows.every(({ status }) => status === 'CANCELLED'), JSON.stringify(rows));
  }

  test('on a disk that stands still: nothing stays held', () =>
    withShim(async (server) => {
      const sale = await Sale.open(server, 'LEAVE/1', {}, { sections: SECTIONS });
      for (const strategy of STRATEGIES) {
        const buyer = await sale.buyer(strategy);
        server.hold();
        const held = sale.hold(buyer, wishOf(strategy));
        await written(server, 1);
        const left = sale.leave(buyer.token);
        await written(server, 2);
        server.release();
        const answers = [await held, await left];
        assertGivenBack(sale.rows().filter((row) => row.user_id === strategy), ...answers);
        assert.equal((await sale.status(buyer.token)).status, 'LEFT');
      }
      await assertAllFree(sale);
    }));

  test('hundreds of times, at every moment: no reservation is HELD whose place is LEFT', async (t) => {
    const ROUNDS = 200;
    const server = await start();
    const sections = LEDGER_DECIDES.map((id) => ({ id, capacity: ROUNDS, mode: 'seat' }));
    const sale = await Sale.open(server, 'LEAVE/2', {}, { sections });
    const agent = keepAlive(16);
    const seen = {};
    const race = async ({ strategy, seat }) => {
      const buyer = await sale.buyer(`${strategy} ${seat}`);
      const hold = sale.hold(buyer, { section: strategy, strategy, seats: [seat] }, { agent });
      await pause(Math.random() * 4);
      const leave = server.call('DELETE', `/queue/${sale.name}/leave`, { agent, headers: bearer(buyer.token) });
      const [held, left] = await Promise.all([hold, leave]);
      const what = held.json.code ?? held.status;
      seen[what] = (seen[what] ?? 0) + 1;
      return { buyer, held, left };
    };
    const races = LEDGER_DECIDES.flatMap((strategy) => Array.from({ length: ROUNDS }, (_, i) => ({ strategy, seat: i + 1 })));
    const raced = await eachOf(races, 4, race);
    agent.release();
    t.diagnostic(JSON.stringify(seen));

    const rowsOf = new Map(raced.map(({ buyer }) => [buyer.userId, []]));
    for (const row of sale.rows()) rowsOf.get(row.user_id).push(row);
    for (const { buyer, held, left } of raced) assertGivenBack(rowsOf.get(buyer.userId), held, left);
    assert.ok(entriesOf(sale).every(({ status }) => status === 'LEFT'));
    for (const { id } of sections) assert.deepEqual(await sale.counts(id), { available: ROUNDS, held: 0, confirmed: 0 });
    await assertHotIsLedger(sale);
    audit(server);
    await server.stop();
  });

  test('while it waits for a lock takes no new place, though the event has autoEnter', () =>
    withShim(async (server) => {
      const sale = await Sale.open(server, 'LEAVE/3', {}, { sections: SECTIONS, autoEnter: true });
      const [first, next, leaver] = await sale.buyers(3);
      server.hold();
      const holds = [];
      for (const buyer of [first, next, leaver]) {
        holds.push(sale.hold(buyer, wishOf('lock')));
        await begun(server, 'lock', holds.length);
      }
      await written(server, 1);
      const left = sale.leave(leaver.token);
      await written(server, 2); // so it is over before the next one's hold is written, and the lock free
      server.release();
      const [one, two, refused] = await Promise.all(holds);
      assert.deepEqual([one.status, two.status, (await left).status], [201, 201, 204]);
      assertProblem(refused, 403, 'not_active');
      assert.equal(refused.headers['x-queue-token'], undefined);
      assert.equal((await sale.status(leaver.token)).status, 'LEFT');
      assert.equal((await sale.numbers()).entered, 3);
      assert.deepEqual(await sale.counts('lock'), { available: 18, held: 2, confirmed: 0 });
      audit(server);
    }, ['--workers', '1']));
});

test('without a token, a request whose place is completed before its seats are claimed takes a new place', () =>
  withShim(async (server) => {
    const sale = await Sale.open(server, 'DONE/1', {}, { sections: SECTIONS, autoEnter: true, maxPerUser: 20 });
    for (const strategy of STRATEGIES) {
      const wish = { ...wishOf(strategy), userId: `buyer of ${strategy}` };
      const first = await sale.hold(undefined, wish);
      const token = first.headers['x-queue-token'];
      server.hold();
      const confirmed = sale.confirm({ token }, first.json.id);
      await written(server, 1);
      // A transaction that has changed the row is seen by the row's xmax before it is committed.
      const changed = `SELECT xmax::text AS by FROM reservations WHERE id = '${first.json.id}'`;
      if (isCluster) await until('the confirm is written', () => query(server.dataDir, changed)[0].by !== '0');
      const second = sale.hold(undefined, wish);
      await written(server, 2);
      server.release();
      sale.found(await confirmed, 'CONFIRMED');
      const answer = await second;
      assert.equal(answer.status, 201, `${strategy}: ${answer.text}`);
      assert.notEqual(answer.headers['x-queue-token'], token);
      assert.equal((await sale.status(token)).status, 'COMPLETED');
      const { status, reserving } = await sale.status(answer.headers['x-queue-token']);
      assert.deepEqual([status, reserving], ['ACTIVE', true]);
    }
    await assertHotIsLedger(sale);
    audit(server);
  }, ['--workers', '1']));

describe('trusted', { concurrency: 4 }, () => {
  let server;
  before(async () => (server = await start({ args: QUICK })));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const open = (name, more, queue) => Sale.open(server, name, queue, { sections: SECTIONS, maxPerUser: 20, ...more });

  for (const strategy of STRATEGIES)
    test(`${strategy}: a key that the ledger has forgotten may be used again, while its reservation is live`, async () => {
      const sale = await open(`FORGET/${strategy}`);
      const ann = await sale.buyer(`ann of ${strategy}`);
      const forget = () => query(server.dataDir, `DELETE FROM idempotency WHERE key = '${strategy}'`);
      const ask = (more) => sale.hold(ann, { ...wishOf(strategy), ...more }, { headers: { 'idempotency-key': strategy } });
      const isNew = (answer) => {
        assert.equal(answer.headers['idempotency-replayed'], undefined);
        return sale.reservation(answer, 'HELD').id;
      };
      await sale.held(ann, wishOf(strategy)); // so that its place outlives the confirming
      const ids = [isNew(await ask())];
      await refuses(ask({ quantity: 2 }), 422, 'idempotency_mismatch');
      forget();
      ids.push(isNew(await ask()));
      await sale.confirmed(ann, ids[0]);
      await sale.confirmed(ann, ids[1]);
      forget();
      ids.push(isNew(await ask({ quantity: 2 })));
      await refuses(ask(), 422, 'idempotency_mismatch');
      forget();
      const answers = await Promise.all(Array.from({ length: 8 }, () => ask()));
      for (const { status, text } of answers) assert.deepEqual([status, text], [201, answers[0].text]);
      ids.push(answers[0].json.id);
      assert.equal(new Set(ids).size, 4);
      assert.equal(sale.rows().length, 5);
      await assertHotIsLedger(sale);
    });

  test('a shop\'s own Authorization is no entry token: the userId counts', async () => {
    const sale = await open('BEARER/1', { autoEnter: true });
    const call = (method, target, body) => server.call(method, target, { body, headers: SHOPS_OWN });
    for (const strategy of STRATEGIES) {
      const answer = await sale.hold(undefined, { ...wishOf(strategy), userId: 'shopper' }, { headers: SHOPS_OWN });
      assert.equal(answer.status, 201, answer.text);
      const { id } = sale.reservation(answer, 'HELD');
      sale.found(await call('GET', `/reservations/${id}?userId=shopper`), 'HELD');
      assert.deepEqual((await call('GET', '/reservations?userId=shopper')).json.reservations.map((one) => one.id), [id]);
      sale.found(await call('POST', `/reservations/${id}/confirm`, { userId: 'shopper' }), 'CONFIRMED');
      for (const verb of ['confirm', 'cancel'])
        await refuses(call('POST', `/reservations/${id}/${verb}`, { userId: 'other' }), 403, 'not_yours');
      sale.found(await call('POST', `/reservations/${id}/cancel`, { userId: 'shopper' }), 'CANCELLED');
      await refuses(call('GET', `/reservations/${id}`), 401, 'token_required');
    }
    await refuses(sale.hold(undefined, wishOf('slot'), { headers: SHOPS_OWN }), 422, 'invalid_field');
    const admins = await sale.hold({ token: server.adminKey }, { ...wishOf('slot'), userId: 'guest' });
    assert.equal(admins.status, 201, admins.text);
    assert.equal(sale.reservation(admins, 'HELD').userId, 'guest');
    const closed = await open('BEARER/2');
    await refuses(closed.hold(undefined, { ...wishOf('slot'), userId: 'shopper' }, { headers: SHOPS_OWN }), 401, 'token_invalid');
  });

  test('confirm and cancel take the userId from the query, too', async () => {
    const sale = await open('QUERY/1');
    const { id } = await sale.held(await sale.buyer('of the query'), wishOf('slot'));
    const post = (verb, search) => server.call('POST', `/reservations/${id}/${verb}${search}`);
    for (const verb of ['confirm', 'cancel']) {
      await refuses(post(verb, ''), 401, 'token_required');
      await refuses(post(verb, '?userId=other'), 403, 'not_yours');
      await refuses(post(verb, '?userId='), 400, 'invalid_parameter');
    }
    sale.found(await post('confirm', '?userId=of%20the%20query'), 'CONFIRMED');
    sale.found(await post('cancel', '?userId=of%20the%20query'), 'CANCELLED');
  });

  test('with autoEnter no user enters, or waits, for seats that can\'t be had', async () => {
    for (const maxActive of [100, 1]) {
      const sale = await open(`HOPELESS/${maxActive}`, { autoEnter: true, maxPerUser: 4 }, { maxActive });
      if (maxActive === 1) await sale.buyer('in the way');
      const before = (await sale.numbers()).entered;
      for (const strategy of STRATEGIES) {
        const wish = { section: strategy, strategy, userId: `wants ${strategy}` };
        const many = await sale.hold(undefined, { ...wish, quantity: 5 });
        assertProblem(many, 409, 'limit_exceeded');
        const beyond = await sale.hold(undefined, { ...wish, seats: [20, 21, 30] });
        assertProblemWith(beyond, 404, 'seat_not_found', { seats: [21, 30] });
        for (const { headers } of [many, beyond]) assert.equal(headers['x-queue-token'], undefined);
      }
      const { entered, waiting } = await sale.numbers();
      assert.deepEqual([entered, waiting], [before, 0]);
      assert.equal((await sale.hold(undefined, { section: 'slot', seats: [17, 18, 19, 20], userId: 'modest' })).status, maxActive === 1 ? 202 : 201);
    }
  });

  test('with autoEnter no user enters for seats that are all confirmed, and the answer comes at once', async () => {
    // The last one is for nobody: users are admitted as long as the event has seats.
    const sections = [...STRATEGIES.map((id) => ({ id, capacity: 2, mode: MODE_OF[id] })), { id: 'other', capacity: 1 }];
    const sale = await open('SOLD/1', { autoEnter: true, sections }, { entryBatchSize: 1000, maxActive: 1000 });
    const ids = {};
    for (const strategy of STRATEGIES) {
      const wish = { section: strategy, strategy };
      const one = await sale.hold(undefined, { ...wish, quantity: 2, userId: `first of ${strategy}` });
      const who = { token: one.headers['x-queue-token'] };
      const hopes = await sale.hold(undefined, { ...wish, quantity: 1, userId: `hopes for ${strategy}` });
      assertProblem(hopes, 409, 'sold_out');
      assert.ok(hopes.headers['x-queue-token'] !== undefined, 'a place, for what is held may come back');
      await sale.confirmed(who, one.json.id);
      ids[strategy] = [who, one.json.id];
    }
    const before = entriesOf(sale).length;
    assert.equal(before, 2 * STRATEGIES.length);
    const refusals = () => metric(server, 'admitone_reservation_sold_out_answers_total');
    const refused = await refusals();
    for (const strategy of STRATEGIES) {
      const ask = (wish, i) => sale.hold(undefined, { section: strategy, strategy, userId: `late ${i} for ${strategy}`, ...wish });
      const answers = await Promise.all(Array.from({ length: 5 }, (_, i) => ask({ quantity: 1 }, i)));
      answers.push(await ask({ quantity: 1, userId: `hopes for ${strategy}` }));
      for (const answer of answers) assertProblem(answer, 409, 'sold_out');
      const named = await ask({ seats: [2] });
      assertProblemWith(named, 409, 'seat_taken', { seats: [2] });
      for (const { headers } of [...answers, named]) assert.equal(headers['x-queue-token'], undefined);
    }
    assert.equal(entriesOf(sale).length, before, 'nothing was written');
    assert.equal((await sale.numbers()).entered, before);
    assert.ok((await refusals()) >= refused + 6 * STRATEGIES.length);
    for (const strategy of STRATEGIES) {
      await sale.cancelled(...ids[strategy]);
      const answer = await sale.hold(undefined, { section: strategy, strategy, quantity: 2, userId: `late 0 for ${strategy}` });
      assert.equal(answer.status, 201, answer.text);
    }
  });
});

describe('signed', () => {
  let server;
  before(async () => (server = await startSigned(KEY, QUICK)));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const as = (sub) => ({ 'x-user-assertion': jwt(KEY, { sub }) });
  const enter = async (sale, sub, status = 200) => {
    const answer = await server.call('POST', `/queue/${sale.name}/enter`, { headers: as(sub) });
    return { token: sale.place(answer, status).entryToken };
  };

  test('with autoEnter the token of a place that has ended takes no new one without the shop\'s word', async () => {
    const sale = await Sale.open(server, 'SIGNED/1', { maxActive: 1 }, { sections: SECTIONS, autoEnter: true });
    const wish = wishOf('slot');
    const ann = await enter(sale, 'ann');
    assert.equal((await sale.leave(ann.token)).status, 204);
    for (const more of [{}, { userId: 'ann' }]) await refuses(sale.hold(ann, { ...wish, ...more }), 403, 'not_active');
    assert.equal((await sale.numbers()).entered, 1);
    const back = await sale.hold(ann, wish, { headers: as('ann') });
    assert.equal(back.status, 201, back.text);
    assert.notEqual(back.headers['x-queue-token'], ann.token);
    assert.equal((await sale.status(back.headers['x-queue-token'])).status, 'ACTIVE');

    const ben = await enter(sale, 'ben', 202);
    const waits = sale.place(await sale.hold(ben, wish), 202);
    assert.deepEqual([waits.status, waits.position, waits.entryToken], ['WAITING', 1, ben.token]);
    assert.equal((await sale.leave(ben.token)).status, 204);
    await refuses(sale.hold(ben, wish), 403, 'not_active');
    const anew = sale.place(await sale.hold(ben, wish, { headers: as('ben') }), 202);
    assert.notEqual(anew.entryToken, ben.token);
    assert.equal((await sale.numbers()).entered, 4);
  });

  test('a shop\'s own Authorization is no entry token: its assertion counts', async () => {
    const sale = await Sale.open(server, 'SIGNED/2', {}, { sections: SECTIONS, autoEnter: true, confirmBy: 'user' });
    const headers = { ...SHOPS_OWN, ...as('cat') };
    const answer = await sale.hold(undefined, wishOf('slot'), { headers });
    assert.equal(answer.status, 201, answer.text);
    const { id, userId } = sale.reservation(answer, 'HELD');
    assert.equal(userId, 'cat');
    sale.found(await sale.get(undefined, id, { headers }), 'HELD');
    assert.deepEqual((await sale.list(undefined, { headers })).map((one) => one.id), [id]);
    for (const what of ['confirm', 'cancel', 'get']) {
      await refuses(sale[what](undefined, id, { headers: { ...SHOPS_OWN, ...as('ben') } }), 403, 'not_yours');
      await refuses(sale[what](undefined, id, { headers: SHOPS_OWN }), 401, 'assertion_required');
    }
    await sale.confirmed(undefined, id, { headers });
    await sale.cancelled(undefined, id, { headers });
    const admins = await sale.hold({ token: server.adminKey }, { ...wishOf('slot'), userId: 'guest' });
    assert.equal(sale.reservation(admins, 'HELD').userId, 'guest');
  });
});

test('anonymous: a page of another site can\'t hold seats for its visitor', async () => {
  const server = await start({ args: [...QUICK, '--users-auth', 'anonymous'] });
  for (const autoEnter of [false, true]) {
    const sale = await Sale.open(server, `ANON/${autoEnter}`, {}, { sections: SECTIONS, autoEnter });
    const entered = await server.call('POST', `/queue/${sale.name}/enter`);
    const cookie = entered.headers['set-cookie'].map((line) => line.split(';')[0]).join('; ');
    const [node] = server.nodes; // whose own address is a good origin
    const from = (origin) => new Sale(node, sale.name).hold(undefined, wishOf('slot'), { headers: { cookie, origin } });
    for (const origin of ['https://evil.example', 'null']) await refuses(from(origin), 403, 'foreign_origin');
    assert.equal(sale.rows().length, 0);
    assert.equal((await from(node.url)).status, 201);
  }
  audit(server);
  await server.stop();
});

test('the list of a user\'s own goes through thousands of events, not ever deeper, and shows what is live', async () => {
  // Each change of an event has every other node read them all.
  const EVENTS = isCluster ? 200 : 3000;
  // A quarter of a MB of stack for each thread: too little to go deeper with each event.
  const server = await start({ wrap: ['prlimit', '--stack=262144:', '--'] });
  await eachOf(Array.from({ length: EVENTS }, (_, i) => `MANY/${i}`), 64, (name) => Sale.open(server, name));
  const live = [];
  for (const i of [0, EVENTS / 2, EVENTS - 1]) {
    const sale = new Sale(server, `MANY/${i}`);
    const ann = await sale.buyer('ann');
    const [cancels, holds, confirms] = [await sale.held(ann), await sale.held(ann), await sale.held(ann)];
    await sale.cancelled(ann, cancels.id);
    await sale.confirmed(ann, confirms.id);
    live.push(holds.id, confirms.id);
  }
  const answer = await server.call('GET', '/reservations?userId=ann');
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(answer.json.reservations.map(({ id }) => id).sort(), live.sort());
  assert.deepEqual((await server.call('GET', '/reservations?userId=nobody')).json, { reservations: [] });
  await server.stop();
});
