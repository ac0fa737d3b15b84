// GET /admin/stats and its stream: the figures of all events, for operators.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { redis } from './support/cluster.mjs';
import { TIME, WaitingRoom, assertProblemWith, bearer, eachOf, users } from './support/queue.mjs';
import { Sale } from './support/reservations.mjs';
import { concert, onlyOn, start, test, until } from './support/server.mjs';
import { Stream } from './support/sse.mjs';

const COUNTS = ['waiting', 'active', 'entered', 'admitted', 'completed', 'left', 'expired', 'rejected', 'admissionsPerSecond', 'avgWaitSeconds', 'maxWaitSeconds'];

let server;
before(async () => (server = await start({ args: ['--sse-heartbeat-seconds', '1'] })));
after(() => server.stop());

const nodes = (of = server) => of.nodes ?? [of];
const key = (of = server) => bearer(of.adminKey);
const watch = (query = '', of = server, options = {}) => Stream.at(of, `/admin/stats/stream${query}`, { headers: key(of), ...options });

async function stats(query = '', at = server, of = server) {
  const answer = await at.call('GET', `/admin/stats${query}`, { headers: key(of) });
  assert.equal(answer.status, 200, answer.text);
  return assertStats(answer.json);
}

// Every answer has the same shape, and its parts agree.
function assertStats(json) {
  const members = ['connections', 'degraded', 'eventCount', 'events', 'hot', 'latency', 'ledger', 'nodes', 'serverTime', 'sseStreams', 'totals', 'truncated', 'undecidedRequests'];
  assert.deepEqual(Object.keys(json).sort(), members);
  assert.match(json.serverTime, TIME);
  assert.deepEqual([json.hot, json.ledger], ['ok', 'ok']);
  assert.equal(json.truncated, json.eventCount > json.events.length);
  for (const event of json.events) {
    const own = ['eventType', 'eventId', 'title', 'state', 'eventState', ...COUNTS, 'successRate', 'seats', 'sseStreams'];
    assert.deepEqual(Object.keys(event).sort(), own.sort());
    assert.ok(event.completed <= event.admitted && event.admitted <= event.entered, JSON.stringify(event));
    assert.equal(event.successRate, event.entered === 0 ? 0 : Number((event.completed / event.entered).toFixed(3)));
    for (const name of ['waiting', 'active', 'entered', 'admitted', 'completed', 'rejected']) assert.ok(event[name] <= json.totals[name], name);
  }
  for (const name of ['requests', 'hot', 'ledger']) {
    const { perSecond, p50Ms, p99Ms } = json.latency[name];
    assert.ok(perSecond >= 0);
    if (p50Ms !== null) assert.ok(p50Ms <= p99Ms, `${name}: ${p50Ms} above ${p99Ms}`);
    else assert.deepEqual([p99Ms, perSecond], [null, 0]);
  }
  return json;
}

const rowOf = (json, name) => json.events.find(({ eventType, eventId }) => `${eventType}/${eventId}` === name);
const shows = (name, what, at = server, of = server) =>
  until(`${name} shows ${JSON.stringify(what)}`, async () => {
    const row = rowOf(await stats(`?event=${name}`, at, of), name);
    return row !== undefined && Object.entries(what).every(([member, value]) => JSON.stringify(row[member]) === JSON.stringify(value)) && row;
  });

test('an event shows what its users did, on every node, as the answer about its queue does', async () => {
  const of = await Sale.open(server, 'DID/1', { maxActive: 3, maxWaiting: 2 }, { confirmBy: 'user', sections: [{ id: 'A', capacity: 6 }, { id: 'B', capacity: 4 }] });
  const first = rowOf(await stats('?event=DID/1'), 'DID/1');
  assert.deepEqual([first.title, first.state, first.eventState, first.sseStreams], ['Winter tour', 'OPEN', 'OPEN', 0]);
  assert.deepEqual(first.seats, { available: 10, held: 0, confirmed: 0 }, 'it has just been created');
  const [ann, ben, cara] = await of.buyers(3);
  const places = await of.enterAll(users(2, 'waits'));
  assertProblemWith(await of.ask('late'), 429, 'queue_full', { entryStatus: 'REJECTED', maxWaiting: 2 });
  await of.held(ann, { quantity: 2 });
  const bought = await of.held(ben, { section: 'B', quantity: 3 });
  await shows('DID/1', { waiting: 2, active: 3, entered: 5, admitted: 3, rejected: 1, seats: { available: 5, held: 5, confirmed: 0 } });
  await of.confirmed(ben, bought.id);
  await of.leave(cara.token);
  for (const { entryToken } of places) await of.becomes(entryToken, 'ACTIVE');
  for (const node of nodes()) {
    const row = await shows('DID/1', { waiting: 0, active: 3, entered: 5, admitted: 5, completed: 1, left: 1, successRate: 0.2, seats: { available: 5, held: 2, confirmed: 3 } }, node);
    assert.ok(row.avgWaitSeconds > 0 && row.maxWaitSeconds >= row.avgWaitSeconds, JSON.stringify(row));
    const queue = await of.numbers();
    for (const name of COUNTS) if (name !== 'admissionsPerSecond') assert.equal(row[name], queue[name], name);
  }
  const all = await stats();
  assert.deepEqual(Object.keys(all.totals).sort(), ['active', 'admitted', 'completed', 'entered', 'rejected', 'seats', 'waiting']);
});

test('the list begins with the busiest events, is limited, and has drafts; totals are of all', async () => {
  const own = await start();
  assert.deepEqual((await stats('', own, own)).events, []);
  await eachOf(Array.from({ length: 130 }), 8, async (_, i) => {
    const { status } = await own.admin('PUT', `/admin/events/MANY/${i}`, concert(i === 7 ? { state: 'DRAFT' } : { queue: { maxActive: 1 } }));
    assert.equal(status, 201);
  });
  const busy = new WaitingRoom(own, 'MANY/99');
  await busy.enterAll(users(3));
  await new WaitingRoom(own, 'MANY/55').enterAll(users(2));
  for (const node of nodes(own)) {
    const all = await until('all are counted', async () => {
      const json = await stats('', node, own);
      return json.totals.entered === 5 && json.eventCount === 130 && json;
    });
    assert.deepEqual(all.events.slice(0, 2).map(({ eventId, waiting, active }) => [eventId, waiting, active]), [['99', 2, 1], ['55', 1, 1]]);
    assert.deepEqual([all.events.length, all.truncated], [100, true]);
    assert.equal(all.totals.seats.available, 130 * 100);
    assert.equal(rowOf(all, 'MANY/7')?.eventState ?? 'DRAFT', 'DRAFT');
    const one = await stats('?event=MANY/7', node, own);
    assert.deepEqual([one.events.length, one.eventCount, one.truncated, one.events[0].state], [1, 1, false, 'DRAFT']);
    assert.equal(one.totals.entered, 5, 'totals are those of all events');
  }
  await own.stop();
});

test('latencies, streams and connections are those of the node', async () => {
  const own = await start();
  const room = await WaitingRoom.open(own, 'FAST/1', { maxActive: 1 });
  const [, second] = await room.enterAll(users(2));
  for (const node of nodes(own)) {
    for (let i = 0; i < 32; i++) await new WaitingRoom(Object.assign(Object.create(own), { call: node.call }), 'FAST/1').status(second.entryToken);
    const { latency, nodes: count } = await until('it has measured', async () => {
      const json = await stats('', node, own);
      const { requests, hot } = json.latency;
      return requests.p50Ms > 0 && hot.p50Ms > 0 && json.nodes === nodes(own).length && json;
    });
    assert.ok(latency.windowSeconds > 0 && latency.requests.perSecond > 0);
    assert.equal(count, nodes(own).length);
    const stream = await Stream.at(node, `/queue/FAST/1/subscribe/${second.entryToken}`);
    await until('its stream is counted', async () => {
      const json = await stats('', node, own);
      return json.events[0].sseStreams === 1 && json.sseStreams === 1 && json.connections >= 1;
    });
    for (const other of nodes(own)) if (other !== node) assert.equal((await stats('', other, own)).events[0].sseStreams, 0);
    stream.destroy();
    await until('it is gone', async () => (await stats('', node, own)).events[0].sseStreams === 0);
  }
  await own.stop();
});

test('the stream sends the figures at once and then every second, while nothing happens, too', async () => {
  const room = await WaitingRoom.open(server, 'LIVE/1', { maxActive: 1 });
  for (const node of nodes()) {
    for (const query of ['', '?event=LIVE/1']) {
      const stream = await watch(query, node, { headers: key() });
      await until('the third event', () => stream.events.length >= 3);
      assert.equal(stream.headers['content-type'], 'text/event-stream');
      assert.ok(stream.retryMs >= 1000 && stream.retryMs <= 5000);
      for (const [i, { type, data, atMs }] of stream.events.entries()) {
        assert.equal(type, 'stats');
        assertStats(data);
        if (query !== '') assert.deepEqual(data.events.map(({ eventType, eventId }) => `${eventType}/${eventId}`), ['LIVE/1']);
        if (i > 0) assert.ok(atMs - stream.events[i - 1].atMs >= 700, 'at most one a second');
      }
      stream.destroy();
    }
  }
  const stream = await watch('?event=LIVE/1');
  await room.enterAll(users(3));
  await until('the users are shown', () => stream.last?.data.events[0].waiting === 2 && stream.last.data.events[0].active === 1);
  await room.did('pause');
  await until('the pause is shown', () => stream.last.data.events[0].state === 'PAUSED');
  assert.equal((await server.admin('DELETE', '/admin/events/LIVE/1')).status, 204);
  await until('the event is gone', () => stream.last.data.events.length === 0 && stream.last.data.eventCount === 0);
  stream.destroy();
});

test('a wrong request gets an error', async () => {
  for (const path of ['/admin/stats', '/admin/stats/stream']) {
    for (const event of ['', 'CONCERT', '/', 'A/', '/1', 'A/1/2', 'A/%FF', `${'A'.repeat(33)}/1`, 'A%20B/1'])
      assertProblemWith(await server.admin('GET', `${path}?event=${event}`), 400, 'invalid_parameter', {});
    assertProblemWith(await server.admin('GET', `${path}?event=NO/SUCH`), 404, 'event_not_found', {});
    assertProblemWith(await server.call('GET', path), 401, 'admin_key_required', {});
    assertProblemWith(await server.call('GET', `${path}?key=${server.adminKey}`), 401, 'admin_key_required', {});
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      const answer = await server.call(method, path, { headers: key() });
      assertProblemWith(answer, 405, 'method_not_allowed', {});
    }
  }
});

test('many streams get the same, leave nothing behind, and end with the server', async () => {
  const own = await start();
  await eachOf(Array.from({ length: 300 }), 8, (_, i) => own.admin('PUT', `/admin/events/MANY/${i}`, concert()));
  const streams = await eachOf(Array.from({ length: 200 }), 16, (_, i) => watch(i % 2 === 0 ? '' : `?event=MANY/${i}`, own));
  for (const [i, stream] of streams.entries()) {
    await until('three events', () => stream.events.length >= 3);
    assert.equal(stream.last.data.events.length, i % 2 === 0 ? 100 : 1);
  }
  assert.equal(await own.metric('admitone_sse_dropped_total'), 0);
  for (const stream of streams.splice(0, 100)) stream.destroy();
  await until('half of them are gone', async () => (await own.metric('admitone_sse_streams')) === 100);
  own.signal('SIGTERM');
  for (const stream of streams) await stream.toEnd();
  await own.stop();
  assert.doesNotMatch(own.stderr, /stop deadline/, 'no stream held the stop up');
});

test('while Redis does not answer, the last counts are shown, and the server may stop', onlyOn('redis+postgres', 'memory always answers'), async () => {
  const own = await start({ args: ['--hot-deadline-ms', '100'] });
  const room = await WaitingRoom.open(own, 'MUTE/1', { maxActive: 1 });
  await room.enterAll(users(3));
  for (const node of nodes(own)) await shows('MUTE/1', { waiting: 2, active: 1 }, node, own);
  const stream = await watch('', nodes(own)[0], { headers: key(own) });
  assert.equal(redis(own.dataDir, 'CLIENT', 'PAUSE', 4000), 'OK');
  await until('it says so', () => stream.last?.data.degraded === true);
  const { waiting, active } = rowOf(stream.last.data, 'MUTE/1');
  assert.deepEqual([waiting, active], [2, 1]);
  await until('it is well again', () => stream.last.data.degraded === false, 30000);
  assert.equal(redis(own.dataDir, 'CLIENT', 'PAUSE', 3000), 'OK');
  own.signal('SIGTERM');
  await stream.toEnd();
  await own.stop();
});
