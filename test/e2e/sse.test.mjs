// Live positions by server-sent events.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { EventSource } from 'eventsource';
import { WaitingRoom, assertPlace, eachOf, keepAlive, rewrite, users } from './support/queue.mjs';
import { metricOf, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';
import { Stream } from './support/sse.mjs';

const QUICK = ['--queue-tick-ms', '10', '--push-interval-ms', '10'];

let server;
let rooms = 0;
const WORKERS = 2;
before(async () => (server = await start({ args: [...QUICK, '--sse-heartbeat-seconds', '1', '--workers', `${WORKERS}`] })));
after(() => server.stop());

// A room whose one active place is taken, so that all other users wait until that user leaves.
async function busy(queue = {}, on = server) {
  const room = await WaitingRoom.open(on, `SSE/${++rooms}`, { maxActive: 1, entryBatchSize: 100000, ...queue });
  room.first = await room.enter('first');
  return room;
}

const leave = async (room, place) => assert.equal((await room.leave(place.entryToken)).status, 204);

async function withServer(args, use) {
  const own = await start({ args });
  try {
    await use(own);
  } finally {
    await own.stop();
  }
}

describe('a stream', () => {
  test('keeps its place while the whole server stands still, or its clock jumps', async () => {
    const room = await busy({ graceSeconds: 3 });
    const stream = await Stream.open(room, (await room.enter('me')).entryToken);
    await stream.hears(1);
    server.signal('SIGSTOP');
    await new Promise((resolve) => setTimeout(resolve, 4000)); // time has to pass
    server.signal('SIGCONT');
    await leave(room, room.first);
    await stream.hears('ACTIVE');
    stream.destroy();
  });

  test('of one place there may be eight; the oldest makes room', async () => {
    const room = await busy();
    const { entryToken } = await room.enter('me');
    const streams = [];
    // They may be on different workers, each of which has its own limit. The limit is per node, and
    // this is one.
    for (let i = 0; i < 40; i++) streams.push(await Stream.open(new WaitingRoom(server.nodes[0], room.name), entryToken));
    await until('the oldest have ended', () => streams.filter(({ ended }) => ended).length >= 40 - 8 * WORKERS);
    assert.ok(!streams.at(-1).ended);
    await leave(room, room.first);
    await streams.at(-1).hears('ACTIVE');
    for (const stream of streams) stream.destroy();
  });

  test('sees its position fall to ACTIVE, gets the pass, and is closed; with the last id there is nothing more to come', async () => {
    const room = await busy();
    const ahead = await room.enterAll(users(4));
    const me = await room.enter('me');
    const stream = await Stream.open(room, me.entryToken);
    assert.equal(stream.status, 200);
    assert.equal(stream.headers['content-type'], 'text/event-stream');
    assert.equal(stream.headers['cache-control'], 'no-store');
    assert.equal(stream.headers['x-accel-buffering'], 'no');
    await stream.hears(5);
    assert.ok(stream.retryMs >= 1000 && stream.retryMs <= 5000, `${stream.retryMs}`);
    for (const [i, place] of [...ahead].reverse().entries()) {
      await leave(room, place);
      await stream.hears(4 - i);
    }
    await leave(room, room.first);
    const active = await stream.hears('ACTIVE');
    await stream.toEnd();
    assert.deepEqual(stream.events.map(({ data }) => data.position), [5, 4, 3, 2, 1, 0], 'one for each change, none twice');
    for (const { type, data } of stream.events) {
      assert.equal(type, 'queue-status');
      assertPlace(data);
      assert.equal(data.userId, 'me');
      assert.equal(data.entryToken, me.entryToken);
    }
    assert.equal(new Set(stream.events.map(({ id }) => id)).size, 6);
    assert.equal(active.admissionPass.split('.').length, 3);
    assert.equal((await room.gate(active.entryToken)).status, 204, 'good at its first use (pitfall 5)');

    const delivered = await Stream.open(room, me.entryToken, { lastEventId: stream.last.id });
    assert.equal(delivered.status, 204);
    delivered.destroy();
    for (const lastEventId of [undefined, stream.events[0].id, '1-ACTIVE', 'x', '', '-', `${stream.last.id}x`]) {
      const again = await Stream.open(room, me.entryToken, { lastEventId });
      assert.equal(again.status, 200, `not what was delivered: ${lastEventId}`);
      await again.hears('ACTIVE');
      await again.toEnd();
    }
  });

  test('is told at once that the queue is paused, closed or open again', async () => {
    const room = await busy();
    const stream = await Stream.open(room, (await room.enter('me')).entryToken);
    const heard = () => stream.events.map(({ data }) => [data.position, data.eventState, data.admitting, data.estimatedWaitSeconds !== null]);
    const wanted = [[1, 'OPEN', true, true]];
    for (const [act, state, admitting] of [['pause', 'PAUSED', false], ['deactivate', 'CLOSED', false], ['activate', 'OPEN', true]]) {
      await room.did(act);
      wanted.push([1, state, admitting, admitting]);
      await until(`the stream hears ${state}`, () => stream.events.length >= wanted.length);
    }
    assert.deepEqual(heard(), wanted);
    for (const { data } of stream.events) assertPlace(data);
    stream.destroy();
  });

  test('is told the notice, and each change of it, and nothing else changes', async () => {
    const room = await busy();
    const me = await room.enter('me');
    assert.equal(me.notice, null);
    // On every worker and, in a cluster, on every node.
    const streams = await Promise.all(Array.from({ length: 8 }, () => Stream.open(room, me.entryToken)));
    const told = [null];
    for (const notice of ['Two more minutes,\nplease', '<script>"\\ 잠시만', null, 'x'.repeat(500)]) {
      await room.patch({ notice });
      told.push(notice);
      for (const stream of streams) await until(`a stream is told ${notice}`, () => stream.events.length >= told.length);
      assert.equal((await room.status(me.entryToken)).notice, notice);
    }
    const late = await Stream.open(room, me.entryToken);
    await late.hears(1);
    assert.deepEqual(late.events.map(({ data }) => data.notice), told.slice(-1));
    await room.patch({ notice: told.at(-1), activeTtlSeconds: 601 });
    assert.equal((await room.enter('me')).notice, told.at(-1));
    const other = await room.enter('other');
    assert.equal(other.notice, told.at(-1));
    assert.equal((await server.call('POST', '/queue/token', { body: { userId: 'third', eventType: 'SSE', eventId: room.id } })).json.notice, told.at(-1));
    await leave(room, room.first);
    assert.equal((await late.hears('ACTIVE')).notice, told.at(-1));
    for (const stream of streams) {
      await stream.toEnd();
      const heard = stream.events.map(({ data }) => data);
      assert.deepEqual(heard.filter(({ status }) => status === 'WAITING').map(({ notice }) => notice), told, 'one event for each change');
      for (const data of heard) assertPlace(data);
    }
    late.destroy();
  });

  test('an ACTIVE or ended user gets just that', async () => {
    const room = await busy({ graceSeconds: 1 });
    const [left, silent] = await room.enterAll(['left', 'silent']);
    await leave(room, left);
    await until('the silent one has expired', async () => (await room.numbers()).expired === 1);
    for (const [place, status] of [[room.first, 'ACTIVE'], [left, 'LEFT'], [silent, 'EXPIRED']]) {
      const stream = await Stream.open(room, place.entryToken);
      await stream.hears(status);
      await stream.toEnd();
      assert.equal(stream.events.length, 1);
      assert.equal((await Stream.open(room, place.entryToken, { lastEventId: stream.last.id })).status, 204);
    }
  });

  test('gets heartbeats while nothing happens, and costs nothing else', async () => {
    const room = await busy();
    const stream = await Stream.open(room, (await room.enter('me')).entryToken);
    await until('two heartbeats', () => stream.comments.length >= 2);
    assert.deepEqual([...new Set(stream.comments)], ['hb']);
    assert.equal(stream.events.length, 1, 'a position that is the same is not said again');
    stream.destroy();
  });

  test('two streams of one user: the end of the old one leaves the new one alone (pitfall 16)', async () => {
    const room = await busy();
    const [ahead, me] = await room.enterAll(['ahead', 'me']);
    const streams = [];
    for (let i = 0; i < 6; i++) streams.push(await Stream.open(room, me.entryToken));
    const closed = await server.metric('admitone_sse_closed_total');
    for (const i of [0, 2, 4]) streams[i].destroy();
    await until('the server has seen them go', async () => (await server.metric('admitone_sse_closed_total')) >= closed + 3);
    await leave(room, ahead);
    for (const i of [1, 3, 5]) await streams[i].hears(1);
    // The same when a client connects again while the old stream is still open.
    const again = await Stream.open(room, me.entryToken, { lastEventId: streams[1].last.id });
    for (const i of [1, 3]) streams[i].destroy();
    await until('they are gone', async () => (await server.metric('admitone_sse_closed_total')) >= closed + 5);
    await leave(room, room.first);
    for (const stream of [again, streams[5]]) {
      await stream.hears('ACTIVE');
      await stream.toEnd();
    }
  });

  test('keeps its user\'s place beyond graceSeconds, without a single poll', async () => {
    const room = await busy({ graceSeconds: 1 });
    const [me] = await room.enterAll(['me', 'silent']);
    const stream = await Stream.open(room, me.entryToken);
    await until('the silent one has gone', async () => (await room.numbers()).expired === 1);
    const began = Date.now();
    await until('three times graceSeconds', () => Date.now() - began > 3000);
    assert.equal((await room.numbers()).waiting, 1);
    await leave(room, room.first);
    await stream.hears('ACTIVE');
    await stream.toEnd();
  });

  test('keeps it also when graceSeconds becomes shorter than the time since the last heartbeat', async () => {
    const room = await busy({ graceSeconds: 300 });
    const [me] = await room.enterAll(['me', 'silent']);
    const stream = await Stream.open(room, me.entryToken);
    await stream.hears(1);
    const began = Date.now();
    await until('three seconds of silence', () => Date.now() - began > 3000);
    await room.patch({ graceSeconds: 1 });
    await until('the silent one has gone', async () => (await room.numbers()).expired >= 1);
    const patched = Date.now();
    await until('and a while', () => Date.now() - patched > 2000);
    assert.deepEqual(stream.events.map(({ data }) => data.status), ['WAITING'], 'a live stream is no silence');
    assert.equal((await room.numbers()).waiting, 1);
    stream.destroy();
  });

  test('ends when its event is deleted, and its last event says so', async () => {
    const room = await busy();
    const { entryToken } = await room.enter('me');
    const streams = await Promise.all([1, 2, 3].map(() => Stream.open(room, entryToken)));
    for (const stream of streams) await stream.hears(1);
    assert.equal((await server.admin('DELETE', `/admin/events/${room.name}`)).status, 204);
    for (const stream of streams) {
      await stream.toEnd();
      assert.deepEqual(stream.events.map(({ type }) => type), ['queue-status', 'event-deleted']);
      const { serverTime, ...data } = stream.last.data;
      assert.deepEqual(data, { eventType: room.type, eventId: room.id });
      assert.match(serverTime, /^\d{4}-\d\d-\d\dT/);
    }
    assert.equal((await Stream.open(room, entryToken)).status, 404);
  });

  test('is for those with a token of this event', async () => {
    const room = await busy();
    const other = await busy();
    const status = async (token, options, at = room) => {
      const stream = await Stream.open(at, token, options);
      await until('all has come', () => stream.rest.includes('}') || stream.ended);
      stream.destroy();
      return [stream.status, JSON.parse(stream.rest).code];
    };
    const { entryToken } = room.first;
    assert.deepEqual(await status('x'), [401, 'token_invalid']);
    assert.deepEqual(await status(`${entryToken.slice(0, -1)}${entryToken.endsWith('A') ? 'B' : 'A'}`), [401, 'token_invalid']);
    assert.deepEqual(await status(other.first.entryToken), [403, 'token_foreign_event']);
    assert.deepEqual(await status(`${entryToken}?userId=somebody`), [403, 'user_mismatch']);
    assert.deepEqual(await status(entryToken, {}, new WaitingRoom(server, 'SSE/none')), [404, 'event_not_found']);
  });
});

describe('when updates are sent', () => {
  test('the end is sent at once, however rarely positions are', () =>
    withServer(['--push-interval-ms', '60000'], async (own) => {
      const room = await busy({}, own);
      const [a, b, c] = await room.enterAll(['a', 'b', 'c']);
      const streams = [];
      for (const place of [a, b, c]) streams.push(await Stream.open(room, place.entryToken));
      await leave(room, b);
      await streams[1].hears('LEFT', 30000);
      await streams[1].toEnd();
      assert.equal((await Stream.open(room, b.entryToken, { lastEventId: streams[1].last.id })).status, 204);
      await leave(room, room.first);
      await streams[0].hears('ACTIVE', 30000);
      await streams[0].toEnd();
      assert.equal(streams[2].events.length, 1, 'and this position has changed twice');
      streams[2].destroy();
    }));

  test('changes are sent together, once per interval, and the last update is right', () =>
    withServer(['--push-interval-ms', '1000'], async (own) => {
      const room = await busy({}, own);
      const ahead = await room.enterAll(users(100));
      const me = await room.enter('me');
      const began = Date.now();
      const stream = await Stream.open(room, me.entryToken);
      for (const place of ahead.slice(1)) await leave(room, place);
      await stream.hears(2);
      const intervals = Math.ceil((Date.now() - began) / 1000);
      assert.ok(stream.events.length <= intervals + 1, `${stream.events.length} events in ${intervals} intervals`);
      stream.destroy();
    }));

  test('after sse.max_seconds it ends in order, and an EventSource comes back by itself; after the end it does not', () =>
    withServer([...QUICK, '--sse-max-seconds', '1', '--sse-heartbeat-seconds', '1'], async (own) => {
      const room = await busy({}, own);
      const [ahead, me] = await room.enterAll(['ahead', 'me']);
      const raw = await Stream.open(room, me.entryToken);
      await raw.toEnd();
      assert.equal(raw.last.data.position, 2);

      const heard = [];
      let opened = 0;
      let errors = 0;
      const source = new EventSource(`${own.url}/queue/${room.name}/subscribe/${me.entryToken}`);
      source.addEventListener('open', () => opened++);
      source.addEventListener('error', () => errors++);
      source.addEventListener('queue-status', (event) => heard.push(JSON.parse(event.data)));
      try {
        await until('it has come back', () => opened >= 2);
        assert.ok(heard.every(({ position }) => position === 2));
        await leave(room, ahead);
        await until('it hears its new place', () => heard.at(-1).position === 1, 30000);
        await leave(room, room.first);
        await until('it hears ACTIVE', () => heard.at(-1).status === 'ACTIVE', 30000);
        // It reconnects once more, as the standard requires, gets 204, and stops.
        await until('it has given up', () => source.readyState === EventSource.CLOSED);
      } finally {
        source.close();
      }
      assert.equal(heard.filter(({ status }) => status === 'ACTIVE').length, 1, 'it does not loop');
      assert.ok(errors >= 2);
    }));
});

test('after a restart, an ended user gets the final state once: with the last id nothing more comes', async () => {
  const folder = tempFolder();
  const dataDir = path.join(folder, 'data');
  const first = await start({ dataDir, args: QUICK });
  let room = await busy({ activeTtlSeconds: 1 }, first);
  const [left, forgotten] = await room.enterAll(['left', 'forgotten']);
  await leave(room, left);
  await room.becomes(room.first.entryToken, 'EXPIRED');
  const tokens = [[room.first.entryToken, 'EXPIRED'], [left.entryToken, 'LEFT'], [forgotten.entryToken, 'NONE']];
  await room.enter('last');
  await first.stop();
  rewrite(dataDir, "DELETE FROM queue_entries WHERE user_id = 'forgotten'");
  const second = await start({ dataDir, args: QUICK });
  room = new WaitingRoom(second, room.name);
  for (const [token, status] of tokens) {
    const stream = await Stream.open(room, token);
    await stream.hears(status);
    await stream.toEnd();
    const again = await Stream.open(room, token, { lastEventId: stream.last.id });
    assert.equal(again.status, 204, `an EventSource would come again and again (${stream.last.id})`);
    again.destroy();
  }
  await second.stop();
  removeFolder(folder);
});

describe('many streams, and bad ones', () => {
  test('a client that does not read is dropped; the others are not', async () =>
    withServer([...QUICK, '--sse-lag-bytes', '1024'], async (own) => {
      const room = await busy({}, own);
      const me = await room.enter('me'.padEnd(64, '"'));
      const deaf = await Stream.open(room, me.entryToken, { paused: true });
      const stream = await Stream.open(room, me.entryToken);
      // A user in a better lane who enters and leaves changes all positions.
      const agent = keepAlive(1);
      let dropped = 0;
      while (dropped === 0) {
        const place = room.place(await room.askAsAdmin('vip', { lane: 0, agent }), 202);
        await stream.hears(2);
        await leave(room, place);
        await stream.hears(1);
        dropped = await own.metric('admitone_sse_dropped_total');
        assert.ok(stream.events.length < 20000, 'it is kept however much it lags');
      }
      agent.release();
      assert.equal(dropped, 1);
      assert.ok(stream.events.length > 10 && !stream.closed, 'whoever reads goes on');
      await leave(room, room.first);
      await stream.hears('ACTIVE');
      assert.equal(await own.metric('admitone_sse_dropped_total'), 1);
      deaf.destroy();
    }));

  test('SIGTERM ends them all at once, in order, and the exit is good', async () => {
    const own = await start({ args: QUICK });
    const room = await busy({}, own);
    const places = await room.enterAll(users(30));
    const streams = await Promise.all(places.map((place) => Stream.open(room, place.entryToken)));
    own.signal('SIGTERM');
    for (const stream of streams) await stream.toEnd();
    await own.stop();
    assert.doesNotMatch(own.stderr, /stop deadline/, 'no stream held the stop up');
  });

  test('clients that come and go at random leave nothing behind', async () => {
    const room = await busy();
    const places = await room.enterAll(users(20));
    const { text } = await server.call('GET', '/metrics');
    const before = metricOf(text, 'admitone_sse_opened_total') - metricOf(text, 'admitone_sse_closed_total');
    await eachOf(Array.from({ length: 400 }), 20, async (_, i) => {
      const stream = await Stream.open(room, places[i % 20].entryToken, { paused: i % 3 === 0 });
      stream.destroy();
    });
    await until('all are gone', async () => {
      const { text: now } = await server.call('GET', '/metrics');
      return metricOf(now, 'admitone_sse_opened_total') - metricOf(now, 'admitone_sse_closed_total') <= before;
    });
    for (const place of places) assert.equal((await room.status(place.entryToken)).status, 'WAITING');
  });

  const STREAMS = times(5000);
  test(`${STREAMS} streams at once: each sees its place, and each gets ACTIVE (pitfall 17)`, async (t) =>
    withServer(['--queue-tick-ms', '10'], async (own) => {
      const room = await busy({ graceSeconds: 3600 }, own);
      const agent = keepAlive(32);
      const places = await eachOf(users(STREAMS), 32, (user) => room.enter(user, { agent }));
      agent.release();
      const began = performance.now();
      const streams = await eachOf(places, 64, (place) => Stream.open(room, place.entryToken));
      const opened = performance.now();
      await until('each has its first event', () => streams.every((stream) => stream.events.length > 0));
      for (const [i, stream] of streams.entries()) assert.equal(stream.events[0].data.position, places[i].position);
      assert.equal((await own.metric('admitone_sse_opened_total')) - (await own.metric('admitone_sse_closed_total')), STREAMS);
      await room.patch({ maxActive: 10000 });
      await until('all are ACTIVE', () => streams.every((stream) => stream.last.data.status === 'ACTIVE' || stream.closed));
      const done = performance.now();
      for (const [i, stream] of streams.entries()) {
        assert.equal(stream.last.data.status, 'ACTIVE', `${stream.error}`);
        assert.equal(stream.last.data.entryToken, places[i].entryToken);
        await stream.toEnd(60000);
      }
      t.diagnostic(`opened in ${Math.round(opened - began)} ms, all ACTIVE after ${Math.round(done - opened)} ms`);
      assert.equal(await own.metric('admitone_sse_dropped_total'), 0);
    }));
});
