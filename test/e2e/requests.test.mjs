// Asynchronous requests (strategy queue): accepted at once, decided in order, and the result pushed.
import assert from 'node:assert/strict';
import path from 'node:path';
import { clock } from './support/clock.mjs';
import { holdCommits, releaseCommits } from './support/cluster.mjs';
import { messagesOf, partitionsOf, produceTo } from './support/feed.mjs';
import { assertProblemWith, bearer, eachOf, keepAlive, query, rewrite, users } from './support/queue.mjs';
import { RequestSale, assertAllDecided, assertRequest, isDecided } from './support/requests.mjs';
import { audit, metric } from './support/reservations.mjs';
import { Stream } from './support/sse.mjs';
import { assertProblem, hasKafka, onlyOn, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';

const MODES = ['slot', 'lock', 'adaptive', 'seat'];
const ACCEPT_ONLY = ['--feed-consume=false'];
const sections = (capacity) => MODES.map((mode) => ({ id: mode, capacity, mode }));

// One folder, several starts.
async function withFolder(act) {
  const folder = tempFolder();
  const dataDir = path.join(folder, 'data');
  await act((options) => start({ dataDir, ...options }));
  removeFolder(folder);
}

// The feed makes no difference here, or the same is tested with a feed in Kafka in feed-kafka and in
// chaos/kafka-nodes.
const OFTEN_ENOUGH = hasKafka && !process.env.TEST_FULL ? { skip: 'on Kafka with TEST_FULL=1 only' } : {};

test('a request is accepted, decided, looked up and pushed; its hold can be confirmed', async () => {
  const server = await start();
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: sections(10) });
  const ann = await sale.buyer('ann');
  for (const [i, section] of MODES.entries()) {
    const wish = i % 2 === 0 ? { section, quantity: 1 } : { section, seats: [3] };
    const { requestId } = await sale.accepted(ann, wish);
    const stream = await sale.subscribe(ann, requestId);
    assert.equal(stream.status, 200);
    await stream.hears('SUCCESS');
    await stream.toEnd();
    for (const event of stream.events) {
      assert.equal(event.type, 'RESERVATION_STATUS');
      assert.equal(event.id, `${requestId}:${event.data.status}`);
      assertRequest(event.data);
    }
    const result = await sale.decided(ann, requestId);
    assert.deepEqual(stream.last.data, result);
    assert.deepEqual([result.userId, result.section, result.quantity], ['ann', section, 1]);
    assert.deepEqual(result.seats, wish.seats ?? null);
    const held = await sale.got(ann, result.reservationId, 'HELD');
    assert.equal(held.expiresAt, result.expiresAt);
    assert.equal(held.strategy, section === 'seat' ? 'optimistic' : section);
    // A client that knows the result is told that nothing follows.
    const again = await sale.subscribe(ann, requestId, { lastEventId: stream.last.id });
    assert.equal(again.status, 204);
    again.destroy();
  }
  const first = (await sale.list(ann)).at(-1);
  await sale.confirmed(ann, first.id);
  assert.equal(await metric(server, 'admitone_requests_accepted_total'), 4);
  assert.equal(await metric(server, 'admitone_requests_decided_total', { result: 'SUCCESS' }), 4);
  assert.equal(await metric(server, 'admitone_request_decided_seconds_count'), 4);
  await assertAllDecided(sale, 4);
  await server.stop();
});

test('strategy queue on POST /reservations, seatId, and the strategy that decides', OFTEN_ENOUGH, async () => {
  const server = await start();
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: sections(10) });
  const ann = await sale.buyer('ann');
  const answer = await sale.hold(ann, { section: 'slot', quantity: 1, strategy: 'queue' });
  assert.equal(answer.status, 202, answer.text);
  assert.equal((await sale.decided(ann, answer.json.requestId)).status, 'SUCCESS');

  for (const strategy of ['pessimistic', 'distributed-lock']) {
    const { requestId } = await sale.accepted(ann, { section: 'seat', quantity: 1, strategy });
    const { reservationId } = await sale.decided(ann, requestId);
    assert.equal((await sale.got(ann, reservationId)).strategy, strategy);
  }
  const { firstSeatId } = await sale.map('slot');
  const bySeat = await server.call('POST', '/api/v4/queue', { headers: bearer(ann.token), body: { userId: 'ann', seatId: firstSeatId + 6 } });
  assert.equal(bySeat.status, 202, bySeat.text);
  const result = await sale.decided(ann, bySeat.json.requestId);
  assert.deepEqual([result.status, result.seats], ['SUCCESS', [7]]);

  assertProblem(await sale.request(ann, { section: 'slot', quantity: 1, strategy: 'optimistic' }), 409, 'strategy_not_allowed');
  assertProblem(await sale.request(ann, { section: 'slot', quantity: 1, strategy: 'none' }), 422, 'invalid_field');
  assertProblem(await sale.request(ann, { section: 'slot' }), 422, 'invalid_field');
  assertProblem(await sale.request(ann, { section: 'nowhere', quantity: 1 }), 404, 'section_not_found');
  assertProblem(await sale.request(ann, { section: 'slot', quantity: 5 }), 409, 'limit_exceeded');
  assertProblemWith(await sale.request(ann, { section: 'slot', seats: [11] }), 404, 'seat_not_found', { seats: [11] });
  await assertAllDecided(sale, 4);
  await server.stop();
});

test('only ACTIVE users are accepted, and only the own user may look', OFTEN_ENOUGH, async () => {
  const server = await start();
  const sale = await RequestSale.open(server, 'CONCERT/1', { maxActive: 1 });
  const ann = await sale.buyer('ann');
  const ben = { token: (await sale.enter('ben')).entryToken };
  assertProblem(await sale.request(ben), 403, 'not_active');
  assertProblem(await sale.request(ben, { quantity: 1, userId: 'ben' }), 403, 'not_active');
  assertProblem(await sale.request({ token: 'x' }), 401, 'token_invalid');
  assertProblem(await server.call('POST', '/api/v4/queue', { body: { eventType: 'CONCERT', eventId: '1', section: 'A', quantity: 1 } }), 401, 'token_required');
  assert.deepEqual(sale.acceptedIds(), []);

  const { requestId } = await sale.accepted(ann);
  await sale.decided(ann, requestId);
  assertProblem(await sale.look(ben, requestId), 403, 'not_yours');
  assertProblem(await server.call('GET', `/api/v4/status/${requestId}`), 401, 'token_required');
  assert.equal((await server.admin('GET', `/api/v4/status/${requestId}`)).status, 200);
  const unproven = await Stream.at(server, `/api/v4/subscribe/${requestId}`, { lastEventId: `${requestId}:SUCCESS` });
  assert.equal(unproven.status, 401);
  unproven.destroy();
  const foreign = await sale.subscribe(ben, requestId);
  assert.equal(foreign.status, 403);
  foreign.destroy();
  for (const unknown of ['01890000-0000-7000-8000-000000000000', 'x', requestId.toUpperCase().slice(1)])
    assertProblem(await sale.look(ann, unknown), 404, 'request_not_found');
  await server.stop();
});

test('sold out, a taken seat and the limit are results; no failure leaves anything behind', OFTEN_ENOUGH, async () => {
  const server = await start();
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { maxPerUser: 2, sections: sections(2) });
  const [ann, ben] = await sale.buyers(2);
  for (const section of MODES) {
    await sale.held(ann, { section, seats: [1] });
    const taken = await sale.decided(ben, (await sale.accepted(ben, { section, seats: [1] })).requestId);
    assert.deepEqual([taken.status, taken.reason], ['FAIL_ALREADY_RESERVED', 'seat_taken']);
    const soldOut = await sale.decided(ben, (await sale.accepted(ben, { section, quantity: 2 })).requestId);
    assert.deepEqual([soldOut.status, soldOut.reason], ['FAIL_SOLD_OUT', 'sold_out']);
    assert.equal(soldOut.message, 'Not enough free seats');
    const [{ id }] = await sale.list(ann);
    await sale.cancelled(ann, id);
  }
  await sale.held(ben, { section: 'slot', seats: [1, 2] });
  const limited = await sale.decided(ben, (await sale.accepted(ben, { section: 'lock', quantity: 1 })).requestId);
  assert.deepEqual([limited.status, limited.reason], ['FAIL', 'limit_exceeded']);
  await assertAllDecided(sale, 9);
  await server.stop();
});

// The first answer is stored in the ledger with the request. Kafka stores the request alone: a
// repeated request may become a second message, and its answer has the position of now.
function assertSameAcceptance(answers) {
  for (const { status, text } of answers) assert.equal(status, 202, text);
  const shown = answers.map(({ text, json }) => (hasKafka ? `${json.requestId} ${json.status}` : text));
  assert.equal(new Set(shown).size, 1, 'one answer');
}

// One of the bodies is accepted. Kafka may accept messages of both, with one id: the first is decided.
test('of two bodies with one key at once, one is accepted and decided', async () => {
  const server = await start();
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: sections(100), maxPerUser: 100 });
  const ann = await sale.buyer('ann');
  for (const section of MODES) {
    const headers = { 'idempotency-key': `both ${section}` };
    const ask = async (quantity) => ({ quantity, ...(await sale.request(ann, { section, quantity }, { headers })) });
    const all = await Promise.all(Array.from({ length: 12 }, (_, i) => ask(i % 2 === 0 ? 1 : 3)));
    const accepted = all.filter(({ status }) => status === 202);
    const ids = new Set(accepted.map(({ json }) => json.requestId));
    assert.equal(ids.size, 1);
    const result = await sale.decided(ann, [...ids][0]);
    assert.equal(result.status, 'SUCCESS');
    if (!hasKafka) assert.ok(accepted.every(({ quantity }) => quantity === result.quantity));
    for (const answer of all.filter(({ status }) => status !== 202)) assertProblem(answer, 422, 'idempotency_mismatch');
    assert.deepEqual(await sale.counts(section), { available: 100 - result.quantity, held: result.quantity, confirmed: 0 });
    const other = result.quantity === 1 ? 3 : 1;
    assertProblem(await ask(other), 422, 'idempotency_mismatch');
    assert.equal((await ask(result.quantity)).json.requestId, result.requestId);
  }
  await assertAllDecided(sale, MODES.length);
  await server.stop();
});

test('a repeated request with a key has one effect and the same answer', async () => {
  await withFolder(async (restart) => {
    let server = await restart();
    let sale = await RequestSale.open(server, 'CONCERT/1');
    const ann = await sale.buyer('ann');
    const keyed = (key, wish = { quantity: 1 }) => sale.request(ann, wish, { headers: { 'idempotency-key': key } });
    const all = await Promise.all(Array.from({ length: 20 }, () => keyed('k1')));
    assertSameAcceptance(all);
    if (!hasKafka) assert.equal(all.filter(({ headers }) => headers['idempotency-replayed'] === undefined).length, 1);
    const result = await sale.decided(ann, all[0].json.requestId);
    const again = await keyed('k1');
    assertSameAcceptance([all[0], again]);
    assert.equal(again.headers['idempotency-replayed'], 'true');
    assertProblem(await keyed('k1', { quantity: 2 }), 422, 'idempotency_mismatch');
    // The path is the scope of a key, whatever the strategy.
    const plain = (strategy) => sale.hold(ann, { quantity: 1, ...(strategy && { strategy }) }, { headers: { 'idempotency-key': 'k3' } });
    const queued = await plain('queue');
    assert.equal(queued.status, 202, queued.text);
    await sale.decided(ann, queued.json.requestId);
    assertProblem(await plain(), 422, 'idempotency_mismatch');
    const held = await sale.held(ann, { quantity: 1 }, { headers: { 'idempotency-key': 'k4' } });
    assertProblem(await sale.hold(ann, { quantity: 1, strategy: 'queue' }, { headers: { 'idempotency-key': 'k4' } }), 422, 'idempotency_mismatch');
    await sale.cancelled(ann, held.id);
    const other = await keyed('k2');
    assert.notEqual(other.json.requestId, all[0].json.requestId);
    await sale.decided(ann, other.json.requestId);
    await server.kill9();
    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    assertSameAcceptance([all[0], await sale.request(ann, { quantity: 1 }, { headers: { 'idempotency-key': 'k1' } })]);
    assert.deepEqual(await sale.looked(ann, all[0].json.requestId), result);
    assert.equal((await sale.list(ann)).length, 3);
    await assertAllDecided(sale, 3);
    // When the place has ended, too.
    assert.equal((await sale.leave(ann.token)).status, 204);
    assertProblem(await sale.request(ann), 403, 'not_active');
    assertSameAcceptance([all[0], await sale.request(ann, { quantity: 1 }, { headers: { 'idempotency-key': 'k1' } })]);
    await server.stop();
  });
});

// Nothing is decided: positions and what becomes of requests when the world has changed.
test('positions are the undecided requests ahead, and fall; what changed meanwhile is the reason', OFTEN_ENOUGH, async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: ACCEPT_ONLY });
    const event = { sections: [{ id: 'A', capacity: 10 }, { id: 'B', capacity: 10 }] };
    let sale = await RequestSale.open(server, 'CONCERT/1', {}, event);
    let closed = await RequestSale.open(server, 'CONCERT/2');
    let paused = await RequestSale.open(server, 'CONCERT/3');
    const deleted = await RequestSale.open(server, 'CONCERT/4');
    let timed = await RequestSale.open(server, 'CONCERT/5', {}, { sections: sections(10) });
    const buyers = await sale.buyers(5);
    const ids = [];
    for (const [i, who] of buyers.entries()) {
      const { requestId, position } = await sale.accepted(who);
      assert.equal(position, i);
      ids.push(requestId);
    }
    for (const [i, who] of buyers.entries()) {
      const { status, position } = await sale.looked(who, ids[i]);
      assert.deepEqual([status, position], [i === 0 ? 'PROCESSING' : 'PENDING', i]);
    }
    const stream = await sale.subscribe(buyers[4], ids[4]);
    await stream.hears(4);
    assert.equal(stream.last.data.status, 'PENDING');
    const [dan] = await closed.buyers(1, 'dan');
    const [eve] = await paused.buyers(1, 'eve');
    const [fay] = await deleted.buyers(1, 'fay');
    const [gus] = await timed.buyers(1, 'gus');
    const inTime = await eachOf(MODES, 4, (section) => timed.accepted(gus, { section, quantity: 1 }));
    const late = { dan: await closed.accepted(dan), eve: await paused.accepted(eve), fay: await deleted.accepted(fay) };
    await closed.did('deactivate');
    await paused.did('pause');
    assert.equal((await server.admin('DELETE', '/admin/events/CONCERT/4')).status, 204);
    assert.equal((await sale.leave(buyers[2].token)).status, 204);
    const closesAt = new Date(Date.now() + 300).toISOString();
    assert.equal((await server.admin('PATCH', '/admin/events/CONCERT/5', { closesAt })).status, 200);
    await until('the clock closes the event', async () => (await timed.status(gus.token)).eventState === 'CLOSED');
    await server.stop();
    await stream.toEnd();

    server = await restart();
    [sale, closed, paused, timed] = ['CONCERT/1', 'CONCERT/2', 'CONCERT/3', 'CONCERT/5'].map((name) => new RequestSale(server, name));
    const results = await Promise.all(buyers.map((who, i) => sale.decided(who, ids[i])));
    assert.deepEqual(results.map(({ status }) => status), ['SUCCESS', 'SUCCESS', 'FAIL_NOT_ACTIVE', 'SUCCESS', 'SUCCESS']);
    assert.deepEqual((await closed.decided(dan, late.dan.requestId)).reason, 'closed');
    for (const { requestId } of inTime) assert.equal((await timed.decided(gus, requestId)).reason, 'closed');
    assert.equal((await paused.decided(eve, late.eve.requestId)).status, 'SUCCESS');
    const gone = await sale.decided(fay, late.fay.requestId);
    assert.deepEqual([gone.status, gone.reason, gone.eventId], ['FAIL_NOT_FOUND', 'event_not_found', null]);
    assertProblem(await closed.request(dan), 403, 'closed');
    await assertAllDecided(sale, 5);
    await server.stop();
  });
});

// Each look has its own connection, so the workers of the node are asked in turn.
test('a position only falls, whichever connection to a node asks', OFTEN_ENOUGH, async (t) => {
  const count = times(1000);
  await withFolder(async (restart) => {
    let server = await restart({ args: ACCEPT_ONLY });
    const sale = await RequestSale.open(server, 'CONCERT/1', {}, { maxPerUser: count, sections: [{ id: 'A', capacity: count, mode: 'lock' }] });
    const ann = await sale.buyer('ann');
    const agent = keepAlive(20);
    await eachOf(Array.from({ length: count - 1 }, (_, i) => i), 20, () => sale.accepted(ann, { quantity: 1 }, { agent }));
    agent.release();
    const last = await sale.accepted(ann, { quantity: 1 });
    assert.equal(last.position, count - 1);
    await server.stop();
    server = await restart({ args: ['--workers', '4'] });
    const here = new RequestSale((server.nodes ?? [server])[0], 'CONCERT/1');
    const shown = [last.position];
    for (;;) {
      const { status, position } = await here.looked(ann, last.requestId);
      if (isDecided({ status })) break;
      assert.ok(position <= shown.at(-1), `${position} after ${shown.at(-1)}, of ${new Set(shown).size} positions`);
      shown.push(position);
    }
    t.diagnostic(`${shown.length} looks showed ${new Set(shown).size} positions`);
    await assertAllDecided(new RequestSale(server, 'CONCERT/1'), count);
    await server.stop();
  });
});

const HAS_ROWS = hasKafka ? { skip: 'on Kafka undecided requests have no rows' } : {};
test('a row of the ledger that names no event is decided with a reason', HAS_ROWS, async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: ACCEPT_ONLY });
    const sale = await RequestSale.open(server, 'CONCERT/1');
    const ann = await sale.buyer('ann');
    const { requestId } = await sale.accepted(ann);
    await server.stop();
    rewrite(server.dataDir, 'UPDATE requests SET event_id = 0');
    server = await restart();
    const { status, reason } = await new RequestSale(server, 'CONCERT/1').decided(ann, requestId);
    assert.deepEqual([status, reason], ['FAIL_NOT_FOUND', 'event_not_found']);
    await server.stop();
  });
});

// The result of a hold is written after the hold itself. A crash between the two leaves the hold
// without its result, as does this change of the rows. On Kafka the messages are then delivered again.
const forgetResults = (dataDir) =>
  rewrite(dataDir, hasKafka ? 'DELETE FROM requests' : "UPDATE requests SET status = 'PENDING', reservation_id = NULL, finished_at = NULL");

function deliverAgain(dataDir) {
  for (const { key, payload, partition } of messagesOf(dataDir)) produceTo(dataDir, [payload], { key, partition });
}

test('pitfall 34: a request that is decided again keeps its reservation', OFTEN_ENOUGH, async () => {
  await withFolder(async (restart) => {
    let server = await restart();
    let sale = await RequestSale.open(server, 'CONCERT/1', {}, { maxPerUser: 100, sections: sections(10) });
    const ann = await sale.buyer('ann');
    const wishes = MODES.flatMap((section) => [{ section, seats: [4] }, { section, quantity: 2 }]);
    const before = [];
    for (const wish of wishes) before.push(await sale.decided(ann, (await sale.accepted(ann, wish)).requestId));
    assert.ok(before.every(({ status }) => status === 'SUCCESS'));
    await server.kill9();
    forgetResults(server.dataDir);
    if (hasKafka) deliverAgain(server.dataDir);

    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    for (const { requestId, reservationId } of before) {
      const after = await sale.decided(ann, requestId);
      assert.deepEqual([after.status, after.reservationId], ['SUCCESS', reservationId]);
    }
    assert.equal((await sale.list(ann)).length, wishes.length);
    await assertAllDecided(sale, wishes.length);
    await server.stop();
  });
});

test('pitfall 36: what was answered with 202 is decided after kill -9', async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: ACCEPT_ONLY });
    let sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 50 }] });
    const buyers = await sale.buyers(40);
    const agent = keepAlive(20);
    const accepted = [];
    const sending = eachOf([...buyers, ...buyers, ...buyers, ...buyers], 20, async (who) => {
      const answer = await sale.request(who, { quantity: 1 }, { agent }).catch(() => null);
      if (answer?.status === 202) accepted.push({ who, id: answer.json.requestId });
    });
    await until('some are accepted', () => accepted.length >= 60);
    await server.kill9();
    await sending;
    agent.release();
    assert.ok(accepted.length < 4 * buyers.length, 'killed while they were sent');

    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    const results = await Promise.all(accepted.map(({ who, id }) => sale.decided(who, id)));
    const rows = await assertAllDecided(sale);
    assert.ok(rows.length >= accepted.length);
    const sold = rows.filter(({ status }) => status === 'SUCCESS').length;
    assert.deepEqual(await sale.counts(), { available: 50 - sold, held: sold, confirmed: 0 });
    assert.equal(sold, Math.min(50, rows.length));
    assert.ok(results.every(({ status }) => status === 'SUCCESS' || status === 'FAIL_SOLD_OUT'));
    await server.stop();
  });
});

// Each try is one seat of which three users ask, one after the other.
const SEATS = hasKafka && !process.env.TEST_FULL ? 25 : times(250);
test(`order: the first accepted request for a seat wins, ${4 * SEATS} times`, async (t) => {
  const server = await start();
  const capacity = SEATS;
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { maxPerUser: 1000, sections: sections(capacity) });
  const buyers = await sale.buyers(3);
  const agent = keepAlive(30);
  const tries = MODES.flatMap((section) => Array.from({ length: capacity }, (_, i) => ({ section, seats: [i + 1] })));
  const asked = [];
  await eachOf(tries, 10, async (wish) => {
    const ids = [];
    const [first, ...others] = wish.seats[0] % 2 === 0 ? buyers : [...buyers].reverse();
    for (const who of [first, ...others]) ids.push({ who, id: (await sale.accepted(who, wish, { agent })).requestId });
    asked.push(ids);
  });
  await assertAllDecided(sale, 3 * tries.length);
  await eachOf(asked, 10, async (ids) => {
    const results = await Promise.all(ids.map(({ who, id }) => sale.looked(who, id, { agent })));
    assert.deepEqual(results.map(({ status }) => status), ['SUCCESS', 'FAIL_ALREADY_RESERVED', 'FAIL_ALREADY_RESERVED']);
  });
  t.diagnostic(`${tries.length} seats, 3 requests each`);
  agent.release();
  await server.stop();
});

// The ledger's queue is so short that it would refuse some of them.
test('a result can be looked up for 30 minutes, an undecided request for as long as it is one', { ...onlyOn('memory+sqlite', 'the feed makes no difference') }, async () => {
  clock.set(new Date());
  await withFolder(async (restart) => {
    let server = await restart({ env: clock.env() });
    let sale = await RequestSale.open(server, 'CONCERT/1');
    const ann = await sale.buyer('ann');
    const { requestId: old } = await sale.accepted(ann, { quantity: 1 });
    await sale.decided(ann, old);
    await server.stop();
    server = await restart({ env: clock.env(), args: ACCEPT_ONLY });
    sale = new RequestSale(server, 'CONCERT/1');
    const operator = { token: server.adminKey };
    const { requestId: open } = await sale.accepted(ann, { quantity: 1 });
    const inMinutes = (minutes) => clock.set(new Date(Date.now() + minutes * 60000));
    inMinutes(29);
    assert.equal((await sale.looked(operator, old)).status, 'SUCCESS');
    inMinutes(31);
    assertProblem(await sale.look(operator, old), 404, 'request_not_found');
    assertProblem(await server.call('GET', `/api/v4/subscribe/${old}`, { headers: { authorization: `Bearer ${server.adminKey}` } }), 404, 'request_not_found');
    assert.equal((await sale.looked(operator, open)).status, 'PROCESSING');
    await server.stop();
  });
});

test('order: a full queue of the ledger does not change it', OFTEN_ENOUGH, async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: ACCEPT_ONLY });
    let sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 30 }] });
    const buyers = await sale.buyers(64);
    const ids = [];
    for (const who of buyers) ids.push((await sale.accepted(who)).requestId);
    await server.stop();
    server = await restart({ args: ['--ledger-queue-max', '16'] });
    sale = new RequestSale(server, 'CONCERT/1');
    const rows = await assertAllDecided(sale, 64);
    assert.deepEqual(rows.map(({ status }) => status), rows.map((_, i) => (i < 30 ? 'SUCCESS' : 'FAIL_SOLD_OUT')));
    await server.stop();
  });
});

// On Kafka requests for one section are in one partition: so many sections are in all partitions.
const NAMES = hasKafka ? [...'ABCDEFGHIJ'] : ['A'];
const sectionsOf = (names, capacity, mode = 'slot') => names.map((id) => ({ id, capacity: capacity / names.length, mode }));

async function sellOut(t, count, names, args = []) {
  const server = await start({ args });
  const sale = await RequestSale.open(server, 'CONCERT/1', { maxActive: 2000 }, { maxPerUser: 10, sections: sectionsOf(names, 100) });
  const agent = keepAlive(50);
  const buyers = [];
  const many = count / 10;
  await eachOf(users(many), 50, async (user) => buyers.push({ user, token: (await sale.enter(user, { agent })).entryToken }));
  const ids = new Set();
  const began = performance.now();
  await eachOf(Array.from({ length: count }, (_, i) => i), 50, async (i) => {
    const wish = { section: names[i % names.length], quantity: 1 };
    ids.add((await sale.accepted(buyers[i % many], wish, { agent })).requestId);
  });
  t.diagnostic(`accepted in ${Math.round(performance.now() - began)} ms`);
  assert.equal(ids.size, count);
  const rows = await assertAllDecided(sale, count);
  t.diagnostic(`decided after ${Math.round(performance.now() - began)} ms`);
  const by = (status) => rows.filter((row) => row.status === status).length;
  assert.deepEqual([by('SUCCESS'), by('FAIL_SOLD_OUT')], [100, count - 100]);
  for (const name of names) assert.deepEqual(await sale.counts(name), { available: 0, held: 100 / names.length, confirmed: 0 });
  assert.deepEqual(new Set(rows.map(({ id }) => id)), ids);
  if (!hasKafka) assert.equal(new Set(rows.map(({ seq }) => seq)).size, count);
  agent.release();
  await server.stop();
}

const REQUESTS = hasKafka ? 10000 : times(10000);
test(`${REQUESTS} requests of ${REQUESTS / 10} users for 100 seats: one result each, 100 seats are sold`, (t) =>
  sellOut(t, REQUESTS, NAMES));

const IN_ONE = process.env.TEST_FULL ? 10000 : 1000;
test(`${IN_ONE} requests in one partition of Kafka: one result each, 100 seats are sold`, { ...onlyOn('redis+postgres+kafka', 'it has partitions that a setting gives') }, (t) =>
  sellOut(t, IN_ONE, ['A', 'B'], ['--feed-partitions', '1']));

// Killed while requests are accepted and decided, several times over the same data.
test('kill -9 under load: a result that was shown stays, and every request gets one', OFTEN_ENOUGH, async () => {
  await withFolder(async (restart) => {
    const shown = new Map();
    const accepted = [];
    let buyers = null;
    // On Kafka the nodes of a round decide when the session of the killed ones has ended.
    for (let round = 0; round < (hasKafka ? 3 : 5); round++) {
      const server = await restart();
      const sale = buyers === null
        ? await RequestSale.open(server, 'CONCERT/1', {}, { maxPerUser: 1000, sections: sections(60) })
        : new RequestSale(server, 'CONCERT/1');
      buyers ??= await sale.buyers(8);
      const agent = keepAlive(16);
      let number = 0;
      const client = async (who) => {
        for (;;) {
          const section = MODES[number++ % MODES.length];
          const wish = number % 3 === 0 ? { section, quantity: 1 } : { section, seats: [1 + (number * 7) % 60] };
          const { requestId } = await sale.accepted(who, wish, { agent });
          accepted.push({ who, requestId });
          const json = await sale.looked(who, requestId, { agent });
          if (isDecided(json)) shown.set(requestId, json);
        }
      };
      const storm = Promise.all([...buyers, ...buyers].map((who) => client(who).catch((error) => assert.match(error.code ?? '', /ECONN|EPIPE|HPE_/, error.stack))));
      const begun = accepted.length;
      await until('requests are accepted', () => accepted.length >= begun + 150);
      // Kafka accepts faster than requests are decided, so the clients see none of their own decided.
      if (hasKafka) await until('a result is shown', async () => {
        const { who, requestId } = accepted[begun];
        const json = await sale.looked(who, requestId);
        if (isDecided(json)) shown.set(requestId, json);
        return isDecided(json);
      });
      await server.kill9();
      await storm;
      agent.release();
    }
    const server = await restart();
    const sale = new RequestSale(server, 'CONCERT/1');
    await assertAllDecided(sale);
    const held = new Set();
    await eachOf(accepted, 16, async ({ who, requestId }) => {
      const json = await sale.looked(who, requestId);
      assert.ok(isDecided(json));
      if (shown.has(requestId)) assert.deepEqual(json, shown.get(requestId));
      if (json.status !== 'SUCCESS') return;
      assert.ok(!held.has(json.reservationId), 'a reservation belongs to one request');
      held.add(json.reservationId);
    });
    const unasked = query(server.dataDir, "SELECT count(*) AS n FROM reservations WHERE status = 'HELD'")[0].n;
    assert.ok(unasked >= held.size, 'requests without an answer may have been decided, too');
    await server.stop();
  });
});

// Each decision of a `lock` section waits for the commit of the one before it, so that requests are
// accepted, and their streams opened, faster than they are decided. Kafka accepts without a commit of
// the ledger, so there all commits wait until the streams are open.
test('thousands of streams: each gets its own result, once', async (t) => {
  const count = hasKafka && !process.env.TEST_FULL ? 400 : times(5000);
  const server = await start({ args: ['--push-interval-ms', '2000'] });
  const sale = await RequestSale.open(server, 'CONCERT/1', { maxActive: 10000 }, { sections: sectionsOf(NAMES, count - 100, 'lock') });
  const agent = keepAlive(50);
  const streams = [];
  const subscribe = async (user, who, i) => {
    const { requestId } = await sale.accepted(who, { section: NAMES[i % NAMES.length], quantity: 1 }, { agent });
    streams.push({ user, requestId, stream: await sale.subscribe(who, requestId) });
  };
  // First all of them: no user is admitted when no seat is left.
  const buyers = await eachOf(users(count), 50, async (user) => ({ token: (await sale.enter(user, { agent })).entryToken }));
  if (hasKafka) {
    await until('each node has partitions', () => server.nodes.every((node) => partitionsOf(node) > 0));
    holdCommits();
  }
  await eachOf(users(count), 50, (user, i) => subscribe(user, buyers[i], i));
  if (hasKafka) releaseCommits();
  agent.release();
  const waited = streams.filter(({ stream }) => !isDecided(stream.events[0]?.data ?? stream.last?.data ?? { status: 'PENDING' })).length;
  let sold = 0;
  for (const { user, requestId, stream } of streams) {
    await stream.toEnd();
    const results = stream.events.filter(({ data }) => isDecided(data));
    assert.equal(results.length, 1, JSON.stringify(stream.events));
    assert.deepEqual([results[0].data.requestId, results[0].data.userId], [requestId, user]);
    const positions = stream.events.slice(0, -1).map(({ data }) => data.position);
    assert.deepEqual(positions, [...positions].sort((a, b) => b - a), 'positions fall');
    if (results[0].data.status === 'SUCCESS') sold++;
    stream.destroy();
  }
  assert.equal(sold, count - 100);
  t.diagnostic(`${waited} of ${count} had to wait`);
  assert.ok(waited > count / 100, `only ${waited} streams waited for their result`);
  await assertAllDecided(sale, count);
  if (hasKafka) {
    const decided = await Promise.all(server.nodes.map(async (node) => metric({ nodes: [node] }, 'admitone_requests_decided_total', { result: 'SUCCESS' })));
    assert.ok(decided.every((n) => n > 0), `each node has decided some: ${decided}`);
  }
  await server.stop();
});

// What one node has accepted may be another's to decide.
const HAS_LEASES = hasKafka ? { skip: 'on Kafka the group has the partitions: see chaos/kafka-nodes' } : onlyOn('redis+postgres', 'it needs two nodes');
test('a node that dies or stands still is replaced: its partitions are decided by the other', HAS_LEASES, async () => {
  const server = await start();
  const [first, second] = server.nodes;
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { maxPerUser: 1000, sections: [{ id: 'A', capacity: 400 }, { id: 'B', capacity: 400, mode: 'seat' }] });
  const buyers = await sale.buyers(8);
  const on = (node) => new RequestSale(node, 'CONCERT/1');
  const ask = (at, count) => eachOf(Array.from({ length: count }, (_, i) => i), 8, async (i) => {
    const who = buyers[i % 8];
    const wish = i % 2 === 0 ? { section: 'A', seats: [1 + (i * 13) % 400] } : { section: 'B', seats: [1 + (i * 7) % 400] };
    return { who, ...(await on(at).accepted(who, wish)) };
  });
  await ask(first, 60);
  await assertAllDecided(sale, 60);
  const owners = () => query(server.dataDir, 'SELECT node, count(*) AS n FROM request_leases WHERE node IS NOT NULL GROUP BY node');
  await until('both nodes have their share', () => owners().map(({ n }) => n).join() === '8,8');

  // SIGSTOP past the lease: what it was deciding is decided by the other node, and it finds that out.
  await ask(second, 40);
  first.signal('SIGSTOP');
  await ask(second, 40);
  await until('all are decided', () => sale.requestRows().every(isDecided));
  assert.equal(sale.requestRows().length, 140);
  first.signal('SIGCONT');
  await until('both nodes have their share again', () => owners().map(({ n }) => n).join() === '8,8');
  await ask(first, 40);
  await assertAllDecided(sale, 180);

  // kill -9 while it decides.
  const sending = ask(second, 120);
  await until('some are accepted', () => sale.requestRows().length >= 220);
  await first.kill9();
  await sending;
  await until('all are decided', () => sale.requestRows().every(isDecided));
  assert.equal(sale.requestRows().length, 300);
  await until('one node has all', () => owners().map(({ n }) => n).join() === '16');
  audit(server);
  await second.stop();
});

test('a stream at one node shows the result that the other node has decided, at once', { ...onlyOn('redis+postgres', 'it needs two nodes') }, async () => {
  // So rarely that only an announcement can be the reason.
  const server = await start({ args: ['--push-interval-ms', '60000'] });
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 100, mode: 'lock' }] });
  const [ann] = await sale.buyers(1);
  for (const node of server.nodes) {
    const here = new RequestSale(node, 'CONCERT/1');
    for (const seat of [1, 2]) {
      const wish = { seats: [seat + (node === server.nodes[0] ? 0 : 2)] };
      const { requestId } = await here.accepted(ann, wish);
      const streams = await Promise.all(server.nodes.map((one) => new RequestSale(one, 'CONCERT/1').subscribe(ann, requestId)));
      for (const stream of streams) {
        await stream.hears('SUCCESS');
        await stream.toEnd();
        stream.destroy();
      }
    }
  }
  await server.stop();
});
