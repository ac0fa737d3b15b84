// The waiting room over HTTP: places and their order, admission, and how a place ends
// (docs/pitfalls.md, 1 to 18).
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { WaitingRoom, assertAudit, assertProblemWith, bearer, entriesOf, rewrite, users } from './support/queue.mjs';
import { assertProblem, concert, metricsOf, pause, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

// Most tests have their own room in one server. It ticks often, so that the tests are fast.
let server;
let rooms = 0;
before(async () => (server = await start({ args: ['--queue-tick-ms', '10'] })));
after(async () => {
  assertAudit(server.dataDir);
  await server.stop();
});

const open = (queue, more) => WaitingRoom.open(server, `Q/${++rooms}`, queue, more);

// A room whose one active place is taken, so that all other users wait until that user leaves.
async function busy(queue = {}, more = {}) {
  const room = await open({ maxActive: 1, entryBatchSize: 100, ...queue }, more);
  room.first = await room.enter('first');
  assert.equal(room.first.status, 'ACTIVE');
  return room;
}

const soon = (ms) => new Date(Date.now() + ms).toISOString();
const leave = async (room, token) => assert.equal((await room.leave(token)).status, 204);

describe('taking a place', () => {
  test('ACTIVE at once while there is room, then WAITING; the estimate is rounded up, never 0 (pitfall 15)', async () => {
    const room = await open({ maxActive: 2, entryBatchSize: 3, entryIntervalSeconds: 3600 });
    for (const user of ['a', 'b']) {
      const place = await room.enter(user);
      assert.equal(place.status, 'ACTIVE');
      assert.equal(place.userId, user);
      assert.equal(place.totalWaiting, 0);
      assert.equal(place.remainingSeats, 100);
      const stay = Date.parse(place.activeExpiresAt) - Date.parse(place.serverTime);
      assert.ok(stay > 590000 && stay <= 600000, `${stay}`);
    }
    for (const [at, batches] of [1, 1, 1, 2, 2, 2, 3].entries()) {
      const place = await room.enter(`w${at}`);
      assert.equal(place.status, 'WAITING');
      assert.equal(place.position, at + 1);
      assert.equal(place.ahead, at);
      assert.equal(place.totalWaiting, at + 1);
      assert.equal(place.estimatedWaitSeconds, batches * 3600);
    }
  });

  test('at once only out of the interval\'s batch: the next one waits although there is room', async () => {
    const room = await open({ maxActive: 100, entryBatchSize: 2, entryIntervalSeconds: 3600 });
    const statuses = (await room.enterAll(users(4))).map((place) => place.status);
    assert.deepEqual(statuses, ['ACTIVE', 'ACTIVE', 'WAITING', 'WAITING']);
  });

  test('entering again is the same place, not a new one at the end (pitfall 1)', async () => {
    const room = await busy();
    const [a, b] = await room.enterAll(['a', 'b', 'c']);
    for (let i = 0; i < 3; i++) {
      const again = await room.enter('a');
      assert.equal(again.entryToken, a.entryToken);
      assert.equal(again.position, 1);
      assert.equal((await room.enter('b')).entryToken, b.entryToken);
      assert.equal((await room.enter('b')).position, 2);
    }
    const first = await room.enter('first');
    assert.equal(first.entryToken, room.first.entryToken);
    assert.equal(first.activeExpiresAt, room.first.activeExpiresAt, 'no longer stay either');
    const { waiting, active, entered } = await room.numbers();
    assert.deepEqual({ waiting, active, entered }, { waiting: 3, active: 1, entered: 4 });
  });

  test('the order is that of arrival, not of names (pitfall 2), and so is admission (pitfall 18: first in, first out)', async () => {
    const room = await busy();
    const names = ['user10', 'user9', 'user1', 'zoe', 'Zoe', '9', '10', 'a'];
    const places = await room.enterAll(names);
    assert.deepEqual(places.map((place) => place.position), names.map((_, i) => i + 1));
    let last = room.first;
    for (const [i, place] of places.entries()) {
      await leave(room, last.entryToken);
      const active = await room.becomes(place.entryToken, 'ACTIVE');
      assert.equal(active.userId, names[i]);
      for (const [j, later] of places.slice(i + 1).entries()) assert.equal((await room.status(later.entryToken)).position, j + 1);
      last = active;
    }
  });

  test('a user is a string or an integer, which is the same as its decimal text', async () => {
    const room = await busy();
    const named = async (json) => {
      const answer = await server.call('POST', `/queue/${room.name}/enter`, { body: `{"userId":${json}}` });
      return room.place(answer, 202);
    };
    const one = await named('42');
    assert.equal(one.userId, '42');
    assert.equal((await named('"42"')).entryToken, one.entryToken);
    assert.equal((await named('-1')).userId, '-1');
    assert.equal((await named('9007199254740993')).userId, '9007199254740993', 'beyond what a double can say');
    assert.equal((await named('"042"')).position, 4, 'another text is another user');
    assert.equal((await named(JSON.stringify('é'.repeat(32)))).userId, 'é'.repeat(32));
    assert.equal((await named('"a b/c?\\"\\\\"')).userId, 'a b/c?"\\');
    assert.equal((await room.numbers()).waiting, 6);
  });

  test('errors of a request are reported precisely, and it takes no place', async () => {
    const room = await busy();
    const send = (body, headers) => server.call('POST', `/queue/${room.name}/enter`, { body, headers });
    const refused = async (body, status, code, detail, headers) => {
      const problem = assertProblem(await send(body, headers), status, code);
      assert.match(problem.detail, detail, JSON.stringify(body));
    };
    await refused({ userId: 'a', seat: 1 }, 422, 'unknown_field', /seat/);
    await refused({ userId: 'a', eventType: 'Q' }, 422, 'unknown_field', /eventType/);
    await refused({}, 422, 'invalid_field', /userId is required/);
    await refused(undefined, 422, 'invalid_field', /userId is required/);
    for (const userId of ['', 'x'.repeat(65), 'é'.repeat(33), 'a\nb', '\u007f', '\u0085', 1.5, 1e300, true, null, ['a'], { id: 'a' }])
      await refused({ userId }, 422, 'invalid_field', /userId/);
    for (const lane of [-1, 16, 1.5, '8', null]) await refused({ userId: 'a', lane }, 422, 'invalid_field', /lane/);
    for (const lane of [0, 7, 9, 15]) await refused({ userId: 'a', lane }, 403, 'lane_not_allowed', /8/);
    await refused('{"userId":"a\\u0000b"}', 400, 'bad_json', /u0000/);
    await refused('{"userId":"a"', 400, 'bad_json', /./);
    await refused('[]', 400, 'bad_json', /./);
    await refused('{"userId":"a","userId":"b"}', 400, 'bad_json', /./);
    await refused('{"userId":"a"}', 415, 'unsupported_media_type', /./, { 'content-type': 'text/plain' });
    assertProblem(await server.call('POST', '/queue/Q/none/enter', { body: { userId: 'a' } }), 404, 'event_not_found');
    assertProblem(await server.call('POST', '/queue/NONE/1/enter', { body: { userId: 'a' } }), 404, 'event_not_found');
    assertProblem(await server.call('GET', `/queue/${room.name}/enter`), 405, 'method_not_allowed');
    assert.equal((await room.numbers()).waiting, 0);
    assert.equal((await room.enter('a', { lane: 8 })).position, 1, 'the default may be said');
  });

  test('a lane is the admin key\'s to choose: lower ones first, whenever they came', async () => {
    const room = await busy();
    const lanes = [8, 15, 0, 7, 8, 0];
    const places = [];
    for (const [i, lane] of lanes.entries()) places.push(room.place(await room.askAsAdmin(`u${i}`, { lane }), 202));
    assert.deepEqual(places.map((place) => place.position), [1, 2, 1, 2, 4, 2], 'as it was when each came');
    const now = await Promise.all(places.map((place) => room.status(place.entryToken)));
    assert.deepEqual(now.map((place) => place.position), [4, 6, 1, 3, 5, 2]);
    assert.equal(room.place(await room.askAsAdmin('u1', { lane: 0 }), 202).position, 6, 'and who is there stays there');
    assertProblem(await room.askAsAdmin(undefined, { lane: 0 }), 422, 'invalid_field');
    assertProblem(await room.ask('x', { lane: 0, headers: bearer(`${server.adminKey}x`) }), 403, 'lane_not_allowed');
  });

  test('an active place is one event\'s, not the user\'s everywhere (pitfall 9)', async () => {
    const [one, other] = [await busy(), await busy()];
    assert.equal((await one.enter('first')).status, 'ACTIVE');
    assert.equal((await other.enter('x')).status, 'WAITING');
    assert.equal((await one.enter('x')).status, 'WAITING');
    await leave(one, one.first.entryToken);
    const x = await one.becomes((await one.enter('x')).entryToken, 'ACTIVE');
    assert.equal((await other.enter('x')).status, 'WAITING');
    assertProblem(await other.gate(x.entryToken), 403, 'token_foreign_event');
    assertProblem(await server.call('GET', `/queue/${other.name}/status`, { headers: bearer(x.entryToken) }), 403, 'token_foreign_event');
  });
});

describe('a full queue', () => {
  test('429 queue_full with REJECTED and Retry-After; waiting users stay; leaving makes room (pitfall 12)', async () => {
    const room = await busy({ maxWaiting: 2, entryIntervalSeconds: 7 });
    const [a] = await room.enterAll(['a', 'b']);
    for (let i = 0; i < 3; i++) {
      const answer = await room.ask('late');
      assertProblemWith(answer, 429, 'queue_full', { entryStatus: 'REJECTED', maxWaiting: 2 });
      assert.match(answer.headers['retry-after'], /^[1-9]\d*$/);
    }
    assert.equal((await room.enter('a')).entryToken, a.entryToken, 'entering again needs no room');
    assert.equal((await room.numbers()).rejected, 3);
    await leave(room, a.entryToken);
    assert.equal((await room.enter('late')).position, 2);
    assert.equal((await room.ask('later')).status, 429);
  });

  test('with maxWaiting 0 no user waits: ACTIVE at once, or refused', async () => {
    const room = await busy({ maxWaiting: 0 });
    assert.equal((await room.ask('a')).status, 429);
    await leave(room, room.first.entryToken);
    assert.equal((await room.enter('a')).status, 'ACTIVE');
    assert.equal((await room.ask('b')).status, 429);
  });

  test('of fifty at once exactly as many get in as there is room for (pitfall 4)', async () => {
    const room = await open({ maxActive: 3, maxWaiting: 5, entryBatchSize: 100 });
    const answers = await Promise.all(users(50).map((user) => room.ask(user)));
    const count = (status) => answers.filter((answer) => answer.status === status).length;
    assert.deepEqual([200, 202, 429].map(count), [3, 5, 42]);
    const { waiting, active, rejected } = await room.numbers();
    assert.deepEqual({ waiting, active, rejected }, { waiting: 5, active: 3, rejected: 42 });
  });
});

describe('the state of the event', () => {
  test('a draft has not opened, and the answer is the same with and without opensAt', async () => {
    const key = { headers: bearer(server.adminKey) };
    const answers = [];
    for (const opensAt of [null, soon(3600_000)]) {
      const room = await open({}, { state: 'DRAFT', opensAt });
      const byToken = (options) => server.call('POST', '/queue/token', { ...options, body: { userId: 'a', eventType: room.type, eventId: room.id } });
      for (const answer of [await room.ask('a'), await byToken()]) {
        const { instance, requestId, ...shown } = assertProblem(answer, 403, 'not_open');
        assert.equal(answer.headers['retry-after'], undefined);
        answers.push(shown);
      }
      // A key that may read drafts is told.
      assertProblemWith(await byToken(key), 403, 'not_open', { opensAt });
      assert.equal((await room.numbers()).entering, false);
    }
    for (const shown of answers) assert.deepEqual(shown, answers[0]);
  });

  for (const state of ['DRAFT', 'OPEN'])
    test(`it opens by itself at opensAt (${state}), and only what is announced says when that is`, async () => {
      const opensAt = soon(2000);
      const room = await open({}, { state, opensAt });
      const answer = await room.ask('a');
      if (state === 'DRAFT') {
        assertProblem(answer, 403, 'not_open');
      } else {
        assertProblemWith(answer, 403, 'not_open', { opensAt });
        assert.match(answer.headers['retry-after'], /^[12]$/, 'in whole seconds, rounded up');
      }
      const { entering, admitting } = await room.numbers();
      assert.deepEqual({ entering, admitting }, { entering: false, admitting: false });
      const entered = await until('it has opened', async () => {
        const now = await room.ask('a');
        return now.status !== 403 && now;
      });
      assert.equal(room.place(entered, 200).status, 'ACTIVE');
      assert.ok(Date.now() >= Date.parse(opensAt), 'not before');
    });

  for (const act of ['pause', 'drain', 'activate'])
    test(`${act} does not open it before opensAt`, async () => {
      const opensAt = soon(3600_000);
      const room = await open({}, { state: 'OPEN', opensAt });
      const { entering, admitting } = await room.did(act);
      assert.deepEqual({ entering, admitting }, { entering: false, admitting: false });
      assertProblemWith(await room.ask('a'), 403, 'not_open', { opensAt });
    });

  test('PAUSED: users may enter, none is admitted, actives go on; resume goes on in order', async () => {
    const room = await busy();
    await room.enter('a');
    assert.equal((await room.did('pause')).state, 'PAUSED');
    const b = await room.enter('b');
    assert.equal(b.position, 2);
    assert.equal((await room.status(room.first.entryToken)).status, 'ACTIVE');
    assert.equal((await room.gate(room.first.entryToken)).status, 204);
    await leave(room, room.first.entryToken);
    const c = await room.enter('c');
    assert.equal(c.status, 'WAITING', 'nobody goes in, also not at once');
    // It ticks every 10 ms: one second of nothing is a hundred chances.
    for (const end = Date.now() + 1000; Date.now() < end; await pause(50))
      assert.equal((await room.numbers()).active, 0, 'nobody is admitted');
    assert.equal((await room.did('resume')).state, 'OPEN');
    await room.becomes((await room.enter('a')).entryToken, 'ACTIVE');
    assert.equal((await room.status(b.entryToken)).position, 1);
  });

  test('every answer says the state in force, and an estimate only while users are admitted', async () => {
    const room = await busy();
    const { entryToken } = await room.enter('a');
    const shown = ({ eventState, admitting, estimatedWaitSeconds }) => [eventState, admitting, estimatedWaitSeconds !== null];
    const expect = async (...wanted) => {
      assert.deepEqual(shown(await room.status(entryToken)), wanted, 'a poll');
      assert.deepEqual(shown(await room.enter('a')), wanted, 'entering again');
      const own = await server.call('GET', '/queue/status', { headers: { 'x-queue-token': entryToken } });
      assert.deepEqual(shown(own.json), wanted, 'a poll without the name');
      const active = await room.status(room.first.entryToken);
      assert.deepEqual([active.eventState, active.admitting, active.estimatedWaitSeconds], [...wanted.slice(0, 2), 0], 'an ACTIVE user');
    };
    await expect('OPEN', true, true);
    for (const [act, ...wanted] of [
      ['pause', 'PAUSED', false, false],
      ['resume', 'OPEN', true, true],
      ['drain', 'DRAINING', true, true],
      ['deactivate', 'CLOSED', false, false],
      ['activate', 'OPEN', true, true],
    ]) {
      await room.did(act);
      await expect(...wanted);
    }
    const change = (body) => server.admin('PATCH', `/admin/events/${room.name}`, body);
    await change({ opensAt: soon(3600_000) });
    await expect('DRAFT', false, false);
    await change({ opensAt: null, state: 'DRAFT' });
    await expect('DRAFT', false, false);
    await change({ opensAt: '2000-01-01T00:00:00Z' });
    await expect('OPEN', true, true);
  });

  test('an empty paused queue admits no user at once', async () => {
    const room = await open({}, { state: 'PAUSED' });
    assert.equal((await room.enter('a')).status, 'WAITING');
    await room.did('activate');
    await room.becomes((await room.enter('a')).entryToken, 'ACTIVE');
  });

  test('DRAINING: no new users, but waiting users are still admitted', async () => {
    const room = await busy();
    const [a, b] = await room.enterAll(['a', 'b']);
    assert.equal((await room.did('drain')).state, 'DRAINING');
    assertProblem(await room.ask('new'), 403, 'closed');
    assert.equal((await room.enter('a')).entryToken, a.entryToken, 'who is in is not new');
    await leave(room, room.first.entryToken);
    await room.becomes(a.entryToken, 'ACTIVE');
    await leave(room, a.entryToken);
    await room.becomes(b.entryToken, 'ACTIVE');
    assertProblem(await room.ask('a'), 403, 'closed');
  });

  test('CLOSED: no user enters or is admitted; waiting users are kept and go on when it is activated', async () => {
    const room = await busy();
    const places = await room.enterAll(['a', 'b', 'c']);
    assert.equal((await room.did('deactivate')).state, 'CLOSED');
    assertProblem(await room.ask('new'), 403, 'closed');
    await leave(room, room.first.entryToken);
    for (const end = Date.now() + 500; Date.now() < end; await pause(50))
      for (const [i, place] of places.entries()) assert.equal((await room.status(place.entryToken)).position, i + 1);
    assert.equal((await room.did('activate')).state, 'OPEN');
    await room.becomes(places[0].entryToken, 'ACTIVE');
    assert.equal((await room.status(places[2].entryToken)).position, 2);
    assert.equal((await room.enter('new')).position, 3, 'behind those who waited');
  });
});

describe('how a place ends', () => {
  test('leave gives the place back at once, may be repeated, and what has ended stays so', async () => {
    const room = await busy();
    const [a, b, c] = await room.enterAll(['a', 'b', 'c']);
    for (let i = 0; i < 3; i++) {
      const answer = await room.leave(b.entryToken);
      assert.equal(answer.status, 204);
      assert.equal(answer.text, '');
    }
    assert.equal((await room.status(b.entryToken)).status, 'LEFT');
    assert.equal((await room.status(c.entryToken)).position, 2, 'who was behind moves up');
    const again = await room.enter('b');
    assert.equal(again.position, 3, 'and who comes back comes last');
    assert.notEqual(again.entryToken, b.entryToken);
    assert.equal((await room.leave(b.entryToken)).status, 204);
    assert.equal((await room.status(again.entryToken)).position, 3, 'the old token ends nothing of the new place');
    await leave(room, room.first.entryToken);
    await room.becomes(a.entryToken, 'ACTIVE');
    assert.equal((await room.numbers()).left, 2);
    assertProblem(await server.call('DELETE', `/queue/${room.name}/leave`), 401, 'token_required');
    assertProblem(await server.call('DELETE', '/queue/Q/none/leave', { headers: bearer(a.entryToken) }), 404, 'event_not_found');
  });

  test('a stay that is over gives its place to the next, also without a request (pitfalls 6, 11 and 12)', async () => {
    const room = await open({ maxActive: 2, activeTtlSeconds: 1, entryBatchSize: 100 });
    const places = await room.enterAll(users(8));
    assert.deepEqual(places.slice(0, 3).map((place) => place.status), ['ACTIVE', 'ACTIVE', 'WAITING']);
    // Only the operator polls: the limit holds all the time, and every user is admitted.
    await until('all have had their stay', async () => {
      const now = await room.numbers();
      assert.ok(now.active <= 2, `${now.active}`);
      return now.expired === 8 && now.active === 0;
    }, 15000);
    for (const place of places) assert.equal((await room.status(place.entryToken)).status, 'EXPIRED');
    assert.equal((await room.numbers()).admitted, 8, 'a cap on those who are there, not on those who ever were');
    const rows = await until('the ledger has followed', () => {
      const all = entriesOf(room);
      return all.every((row) => row.status === 'EXPIRED') && all;
    });
    assert.equal(rows.length, 8);
    for (const row of rows) assert.equal(row.active_expires_at - row.admitted_at, 1000);
  });

  test('an expired stay has ended in every view, and entering again is a new place', async () => {
    const room = await open({ maxActive: 1, activeTtlSeconds: 1 });
    const a = await room.enter('a');
    const b = await room.enter('b');
    await room.becomes(a.entryToken, 'EXPIRED');
    assertProblem(await room.gate(a.entryToken), 403, 'not_active');
    await room.becomes(b.entryToken, 'ACTIVE');
    const again = await room.enter('a');
    assert.notEqual(again.entryToken, a.entryToken);
    assert.equal((await room.status(a.entryToken)).status, 'EXPIRED');
  });

  test('a user who is silent for graceSeconds loses the place; one who polls keeps it', async () => {
    const room = await busy({ graceSeconds: 2 });
    const [silent, polling, other] = await room.enterAll(['silent', 'polling', 'other']);
    await until('the silent one is gone', async () => {
      assert.equal((await room.status(polling.entryToken)).status, 'WAITING');
      return (await room.numbers()).expired >= 1;
    });
    await until('both silent ones are gone', async () => {
      assert.equal((await room.status(polling.entryToken)).status, 'WAITING');
      return (await room.numbers()).expired === 2;
    });
    for (const place of [silent, other]) assert.equal((await room.status(place.entryToken)).status, 'EXPIRED');
    assert.equal((await room.status(polling.entryToken)).position, 1, 'nobody waits behind ghosts');
    assert.equal((await room.numbers()).waiting, 1);
    assert.equal((await room.status(room.first.entryToken)).status, 'ACTIVE', 'grace is for those who wait');
  });

  test('grace does not run while admission is stopped, and starts again with it', async () => {
    const room = await busy({ graceSeconds: 1 });
    await room.did('pause');
    const a = await room.enter('a');
    const began = Date.now();
    await until('long after', () => Date.now() - began > 2500);
    assert.equal((await room.numbers()).waiting, 1);
    // Not by a poll of the user, which would count as a sign of presence.
    const resumed = Date.now();
    await room.did('resume');
    await until('it ends after all', async () => (await room.numbers()).expired === 1);
    assert.ok(Date.now() - resumed >= 1000 - 50, 'a whole graceSeconds after it opened');
    assert.equal((await room.status(a.entryToken)).status, 'EXPIRED');
  });

  test('a token has its own lifetime (tokenTtlSeconds); the place outlives it', async () => {
    const room = await busy({ tokenTtlSeconds: 1 });
    await room.enter('a');
    const b = await room.enter('b');
    const expired = await until('the token is too old', async () => {
      const answer = await server.call('GET', `/queue/${room.name}/status`, { headers: bearer(b.entryToken) });
      return answer.status !== 200 && answer;
    });
    assertProblem(expired, 401, 'token_expired');
    assertProblem(await room.gate(room.first.entryToken), 401, 'token_expired');
    assertProblem(await room.leave(b.entryToken), 401, 'token_expired');
    const again = await room.enter('b');
    assert.equal(again.position, 2, 'the same place');
    assert.notEqual(again.entryToken, b.entryToken);
    assert.equal((await room.status(again.entryToken)).position, 2);
  });
});

describe('POST /queue/token and GET /queue/status', () => {
  const token = (body, options) => server.call('POST', '/queue/token', { ...options, body });
  const own = (text) => server.call('GET', '/queue/status', { headers: bearer(text) });

  test('expiresIn is the time that is really left, and falls; the estimate is another field (pitfall 8)', async () => {
    const room = await busy({ activeTtlSeconds: 100, graceSeconds: 77, entryIntervalSeconds: 5 });
    const name = { eventType: room.type, eventId: room.id };
    const first = await token({ userId: 'first', ...name });
    assert.equal(first.status, 200);
    assert.equal(first.json.token, room.first.entryToken);
    assert.equal(first.json.position, 0);
    assert.ok(first.json.expiresIn > 95 && first.json.expiresIn <= 100, first.text);
    assert.equal(first.json.estimatedWaitSeconds, 0);
    const later = await until('it falls', async () => {
      const now = (await token({ userId: 'first', ...name })).json;
      return now.expiresIn < first.json.expiresIn && now;
    });
    assert.equal(later.activeExpiresAt, first.json.activeExpiresAt);
    assert.equal(later.expiresIn, Math.ceil((Date.parse(later.activeExpiresAt) - Date.parse(later.serverTime)) / 1000));

    const waiting = await token({ userId: 'a', ...name });
    room.place(waiting, 202);
    assert.equal(waiting.json.position, 1);
    assert.equal(waiting.json.expiresIn, 77);
    assert.equal(waiting.json.estimatedWaitSeconds, 5);
  });

  test('GET /queue/status knows the event by the token, and says the same', async () => {
    const room = await busy({ activeTtlSeconds: 100 });
    const a = await room.enter('a');
    const answer = await own(a.entryToken);
    assert.equal(room.place(answer, 200).position, 1);
    assert.equal(answer.json.token, a.entryToken);
    assert.equal(answer.json.expiresIn, 300);
    const first = room.place(await own(room.first.entryToken), 200);
    assert.ok(first.expiresIn > 90 && first.expiresIn <= 100, JSON.stringify(first));
    // The earlier of the two ends counts: here the token's.
    await room.patch({ tokenTtlSeconds: 50 });
    const { entryToken } = await room.enter('a');
    const before = (await own(entryToken)).json.expiresIn;
    assert.ok(before > 45 && before <= 50, `${before}`);
    await until('it falls', async () => (await own(entryToken)).json.expiresIn < before);
    assertProblem(await server.call('GET', '/queue/status'), 401, 'token_required');
    assertProblem(await own('x'), 401, 'token_invalid');
  });

  test('an event is named by both its parts or not at all', async () => {
    const room = await busy();
    assertProblem(await token({ userId: 'a', eventType: room.type }), 422, 'invalid_field');
    assertProblem(await token({ userId: 'a', eventId: room.id }), 422, 'invalid_field');
    assertProblem(await token({ userId: 'a', eventType: room.type, eventId: 'none' }), 404, 'event_not_found');
    assertProblem(await token({ userId: 'a' }), 404, 'event_not_found', 'there are many, and none is the default');
    assertProblem(await token({ userId: 'a', eventType: room.type, eventId: room.id, seats: 1 }), 422, 'unknown_field');
    assertProblem(await token({ eventType: room.type, eventId: room.id }), 422, 'invalid_field');
  });

  test('the default event is the configured one, or the only public one', async () => {
    const alone = await start({ args: ['--queue-default-event', 'CONCERT/2'] });
    const ask = () => alone.call('POST', '/queue/token', { body: { userId: 'a' } });
    assertProblem(await ask(), 404, 'event_not_found');
    await alone.admin('PUT', '/admin/events/CONCERT/1', concert());
    assertProblem(await ask(), 404, 'event_not_found');
    await alone.admin('PUT', '/admin/events/CONCERT/2', concert());
    assert.equal((await ask()).json.eventId, '2');
    await alone.stop();

    const only = await start();
    const askOnly = () => only.call('POST', '/queue/token', { body: { userId: 'a' } });
    await only.admin('PUT', '/admin/events/CONCERT/1', concert({ state: 'DRAFT', opensAt: soon(3600_000) }));
    assertProblem(await askOnly(), 404, 'event_not_found');
    const refused = await only.call('POST', '/queue/token', { body: { userId: 'a', eventType: 'CONCERT', eventId: '1' } });
    assertProblem(refused, 403, 'not_open');
    assert.equal(refused.headers['retry-after'], undefined, 'nothing of a draft but that the name is in use');
    await only.admin('PUT', '/admin/events/CONCERT/2', concert());
    assert.equal((await askOnly()).json.eventId, '2');
    await only.admin('PUT', '/admin/events/CONCERT/1', concert({ state: 'OPEN' }));
    assertProblem(await askOnly(), 404, 'event_not_found');
    await only.stop();
  });
});

describe('what the operator does', () => {
  const last = async () => {
    const { audit } = (await server.admin('GET', '/admin/audit?limit=1')).json;
    return audit[0];
  };

  test('every number changes while it runs, by either PATCH, and lowering a limit evicts no user', async () => {
    const room = await open({ maxActive: 3, maxWaiting: 3, entryBatchSize: 100 });
    const places = await room.enterAll(users(6));
    assert.equal((await room.ask('late')).status, 429);

    // maxWaiting below the number of waiting users: all stay, and no new user may enter.
    const lowered = await room.patch({ maxActive: 1, maxWaiting: 1 });
    assert.deepEqual([lowered.active, lowered.waiting, lowered.queue.maxActive, lowered.queue.maxWaiting], [3, 3, 1, 1]);
    const { act, subject, detail } = await last();
    assert.deepEqual({ act, subject, detail }, { act: 'queue.patch', subject: room.name, detail: { maxActive: 1, maxWaiting: 1 } });
    assert.equal((await room.ask('late')).status, 429);
    for (const i of [0, 1]) await leave(room, places[i].entryToken);
    assert.equal((await room.numbers()).active, 1, 'down to the new cap');
    assert.equal((await room.status(places[3].entryToken)).position, 1);
    await leave(room, places[2].entryToken);
    await room.becomes(places[3].entryToken, 'ACTIVE');

    const more = await server.admin('PATCH', `/admin/events/${room.name}`, { queue: { maxActive: 2, maxWaiting: 10 } });
    assert.equal(more.status, 200, more.text);
    await room.becomes(places[4].entryToken, 'ACTIVE');
    assert.equal((await room.enter('late')).position, 2);

    await room.patch({ entryBatchSize: 1, entryIntervalSeconds: 1800 });
    assert.equal((await room.enter('late')).estimatedWaitSeconds, 3600);
    await room.patch({ entryBatchSize: 100, entryIntervalSeconds: 1, activeTtlSeconds: 50, tokenTtlSeconds: 60 });
    await leave(room, places[3].entryToken);
    const next = await room.becomes(places[5].entryToken, 'ACTIVE');
    const stay = Date.parse(next.activeExpiresAt) - Date.parse(next.serverTime);
    assert.ok(stay > 0 && stay <= 51000, `${stay}: by the old rule it would be 600,000`);
    await room.patch({ graceSeconds: 1 });
    await until('who is silent goes by the new rule', async () => (await room.numbers()).expired === 1);
    await room.patch({ tokenTtlSeconds: 1 });
    await until('so do tokens', async () => (await room.gate(next.entryToken)).status === 401);
    await room.patch({ tokenTtlSeconds: 0 });
    assert.equal((await room.gate(next.entryToken)).status, 204);
  });

  test('a batch that grows in the middle of its interval admits at once', async () => {
    const room = await open({ maxActive: 100, entryBatchSize: 1, entryIntervalSeconds: 3600 });
    const places = await room.enterAll(users(4));
    assert.deepEqual(places.map((place) => place.status), ['ACTIVE', 'WAITING', 'WAITING', 'WAITING']);
    await room.patch({ entryBatchSize: 3 });
    await room.becomes(places[2].entryToken, 'ACTIVE');
    assert.equal((await room.status(places[3].entryToken)).position, 1);
  });

  test('activate takes the new configuration along (pitfall 15)', async () => {
    const room = await busy();
    const places = await room.enterAll(['a', 'b', 'c']);
    await room.did('deactivate');
    const now = await room.did('activate', { maxActive: 3, activeTtlSeconds: 30 });
    assert.equal(now.state, 'OPEN');
    assert.deepEqual([now.queue.maxActive, now.queue.activeTtlSeconds, now.queue.entryBatchSize], [3, 30, 100]);
    const b = await room.becomes(places[1].entryToken, 'ACTIVE');
    assert.ok(Date.parse(b.activeExpiresAt) - Date.parse(b.serverTime) <= 30000);
    assert.equal((await room.status(places[2].entryToken)).position, 1);
    assertProblem(await room.act('activate', { maxActive: 0 }), 422, 'invalid_field');
    assertProblem(await room.act('activate', { seats: 0 }), 422, 'unknown_field');
    assertProblem(await room.act('pause', { maxActive: 1 }), 422, 'unknown_field');
    assertProblem(await server.admin('PATCH', `/admin/queue/${room.name}`, { maxActive: 'many' }), 422, 'invalid_field');
    assert.equal((await room.numbers()).queue.maxActive, 3);
    assert.equal((await room.numbers()).state, 'OPEN', 'what was refused did nothing');
  });

  // The actions that each state allows, and the new state.
  const STATES = {
    DRAFT: { activate: 'OPEN', deactivate: 'CLOSED' },
    OPEN: { activate: 'OPEN', pause: 'PAUSED', resume: 'OPEN', process: 'OPEN', drain: 'DRAINING', deactivate: 'CLOSED' },
    PAUSED: { activate: 'OPEN', pause: 'PAUSED', resume: 'OPEN', drain: 'DRAINING', deactivate: 'CLOSED' },
    DRAINING: { activate: 'OPEN', pause: 'PAUSED', process: 'DRAINING', drain: 'DRAINING', deactivate: 'CLOSED' },
    CLOSED: { activate: 'OPEN', deactivate: 'CLOSED' },
  };
  for (const [state, allowed] of Object.entries(STATES))
    test(`the acts on a queue that is ${state}: done and in the audit trail, or 409 wrong_state and not in it`, async () => {
      const room = await open({}, { state });
      for (const verb of ['activate', 'pause', 'resume', 'process', 'drain', 'deactivate']) {
        await server.admin('PATCH', `/admin/events/${room.name}`, { state });
        const before = await last();
        const answer = await room.act(verb);
        if (verb in allowed) {
          assert.equal(answer.status, 200, `${verb}: ${answer.text}`);
          assert.equal(answer.json.state, allowed[verb], verb);
          const { actor, act, subject } = await last();
          assert.deepEqual({ actor, act, subject }, { actor: 'admin', act: `queue.${verb}`, subject: room.name });
        } else {
          assertProblem(answer, 409, 'wrong_state');
          assert.equal((await room.numbers()).state, state, verb);
          assert.deepEqual(await last(), before);
        }
      }
    });

  test('only with the admin key, and only on an event that exists', async () => {
    const room = await busy();
    for (const verb of ['activate', 'pause', 'resume', 'process', 'drain', 'deactivate']) {
      assertProblem(await server.call('POST', `/admin/queue/${room.name}/${verb}`), 401, 'admin_key_required');
      assertProblem(await server.call('POST', `/admin/queue/${room.name}/${verb}`, { headers: bearer(room.first.entryToken) }), 401, 'admin_key_required');
      assertProblem(await server.admin('POST', `/admin/queue/Q/none/${verb}`), 404, 'event_not_found');
    }
    assertProblem(await server.call('GET', `/admin/queue/${room.name}/status`), 401, 'admin_key_required');
    assertProblem(await server.call('PATCH', `/admin/queue/${room.name}`, { body: { maxActive: 1 } }), 401, 'admin_key_required');
    assertProblem(await server.admin('GET', '/admin/queue/Q/none/status'), 404, 'event_not_found');
    assertProblem(await server.admin('PATCH', '/admin/queue/Q/none', {}), 404, 'event_not_found');
    assert.equal((await room.numbers()).state, 'OPEN');
  });

  test('process admits whom the rules allow now, and says how many', async () => {
    const slow = await start({ args: ['--queue-tick-ms', '1000'] });
    const room = await WaitingRoom.open(slow, 'CONCERT/1', { maxActive: 3, entryBatchSize: 100 }, { state: 'PAUSED' });
    const places = await room.enterAll(users(5));
    await room.did('resume');
    // The tick may have come before; together they admit three.
    const { processed } = await room.did('process');
    assert.ok(processed === 3 || processed === 0, `${processed}`);
    assert.equal((await room.numbers()).active, 3);
    assert.equal((await room.did('process')).processed, 0, 'not beyond the cap');
    assert.equal((await room.status(places[3].entryToken)).position, 1);
    await slow.stop();
  });

  test('the numbers add up, and those of the metrics agree', async () => {
    const alone = await start({ args: ['--queue-tick-ms', '10'] });
    const room = await WaitingRoom.open(alone, 'CONCERT/1', { maxActive: 2, maxWaiting: 4, entryBatchSize: 100, activeTtlSeconds: 2 });
    const places = await room.enterAll(users(6));
    await room.ask('late');
    await leave(room, places[0].entryToken);
    await room.becomes(places[2].entryToken, 'ACTIVE');
    await leave(room, places[5].entryToken);
    await room.patch({ maxActive: 1 });
    // A user whose admission is pending counts as waiting and as active until it is durable.
    const now = await until('the stays are over and nothing is under way', async () => {
      const numbers = await room.numbers();
      const { entered, waiting, active, left, expired } = numbers;
      return expired >= 2 && entered === waiting + active + left + expired && numbers;
    });
    assert.equal(now.entered, 6);
    assert.equal(now.left, 2);
    assert.equal(now.rejected, 1);
    assert.equal(now.completed, 0);
    assert.equal(now.admitted, now.active + now.expired + 1, 'one of them has left');
    assert.ok(now.maxWaitSeconds > 0 && now.maxWaitSeconds < 300, JSON.stringify(now));
    assert.ok(now.avgWaitSeconds <= now.maxWaitSeconds);
    const text = await metricsOf(alone);
    const metric = (name) => Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1]);
    assert.equal(metric('admitone_queue_rejections_total'), 1);
    assert.equal(metric('admitone_queue_leaves_total'), 2);
    assert.ok(metric('admitone_queue_expiries_total\\{status="active"\\}') >= now.expired);
    assert.ok(metric('admitone_queue_admissions_total') >= now.admitted - 2, text);
    await alone.stop();
  });
});

describe('"not found" is not a number (pitfall 18)', () => {
  test('a token of an event that was deleted, or created again under its name, opens nothing', async () => {
    const room = await busy();
    const { entryToken } = room.first;
    assert.equal((await server.admin('DELETE', `/admin/events/${room.name}`)).status, 204);
    for (const target of [`/queue/${room.name}/status`, `/gate/${room.name}`, '/queue/status'])
      assertProblem(await server.call('GET', target, { headers: bearer(entryToken) }), 404, 'event_not_found');
    assertProblem(await room.leave(entryToken), 404, 'event_not_found');
    const anew = await WaitingRoom.open(server, room.name, { maxActive: 5 });
    assertProblem(await anew.gate(entryToken), 403, 'token_foreign_event');
    assertProblem(await server.call('GET', `/queue/${room.name}/status`, { headers: bearer(entryToken) }), 403, 'token_foreign_event');
    const first = await anew.enter('first');
    assert.notEqual(first.entryToken, entryToken);
  });

  test('a valid token of an entry that has been forgotten: NONE, and the gate stays shut', async () => {
    const folder = tempFolder();
    const dataDir = path.join(folder, 'data');
    const before = await start({ dataDir });
    let room = await WaitingRoom.open(before, 'CONCERT/1', { maxActive: 1 });
    const active = await room.enter('active');
    const waiting = await room.enter('waiting');
    const left = await room.enter('left');
    await leave(room, left.entryToken);
    const kept = await room.enter('kept');
    await before.stop();
    // Removes them as retention would.
    rewrite(dataDir, "DELETE FROM queue_entries WHERE user_id IN ('active', 'waiting', 'left')");

    const next = await start({ dataDir });
    room = new WaitingRoom(next, 'CONCERT/1');
    for (const place of [active, waiting, left]) {
      const now = await room.status(place.entryToken);
      assert.equal(now.status, 'NONE');
      assert.equal(now.userId, null);
      assertProblem(await room.gate(place.entryToken), 403, 'not_active');
      assert.equal((await room.leave(place.entryToken)).status, 204);
    }
    await room.becomes(kept.entryToken, 'ACTIVE');
    const again = await room.enter('active');
    assert.notEqual(again.entryToken, active.entryToken, 'an old token never names a new entry');
    await next.stop();
    removeFolder(folder);
  });

  test('what retention removes is NONE afterwards', async () => {
    const folder = tempFolder();
    const dataDir = path.join(folder, 'data');
    const before = await start({ dataDir });
    let room = await WaitingRoom.open(before, 'CONCERT/1', { maxActive: 1 });
    const old = await room.enter('old');
    await leave(room, old.entryToken);
    const left = await room.enter('left');
    await leave(room, left.entryToken);
    await room.enter('last');
    await before.stop();
    rewrite(dataDir, "UPDATE queue_entries SET joined_at = joined_at - 200000000, finished_at = finished_at - 200000000 WHERE user_id = 'old'");
    const next = await start({ dataDir, args: ['--retention-ended-days', '1'] });
    room = new WaitingRoom(next, 'CONCERT/1');
    await room.becomes(old.entryToken, 'NONE');
    assert.equal((await room.status(left.entryToken)).status, 'LEFT');
    assertProblem(await room.gate(old.entryToken), 403, 'not_active');
    await next.stop();
    removeFolder(folder);
  });
});
