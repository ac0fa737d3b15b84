// The top ten of a board, pushed when it changes.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { EventSource } from 'eventsource';
import { redis } from './support/cluster.mjs';
import { assertProblemWith, eachOf } from './support/queue.mjs';
import { Sale } from './support/reservations.mjs';
import { lasting, onlyOn, start, test, until } from './support/server.mjs';
import { Stream } from './support/sse.mjs';

const BOARDS = ['soldout', 'daily', 'weekly', 'monthly'];
const TOLD_MS = 3000; // counted twice a second, looked at once
// A second, less what this process may have been busy when the first of two came.
const GAP_MS = 750;

let server;
before(async () => (server = await start({ args: ['--sse-heartbeat-seconds', '1'] })));
after(() => server.stop());

const nodes = (of = server) => of.nodes ?? [of];
const watch = (board, of = server, options) => Stream.at(of, `/rankings/stream${board === undefined ? '' : `?board=${board}`}`, options);
const sale = (name, capacity = 1000, of = server) => Sale.open(of, name, {}, { sections: [{ id: 'A', capacity }], maxPerUser: 100 });
const countOf = (json, { type, id }) => json?.rankings.find((row) => row.eventType === type && row.eventId === id)?.reservationCount;

const get = async (path, at) => {
  const answer = await at.call('GET', path);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
};

const hears = (stream, of, count, timeoutMs = TOLD_MS) =>
  until(`${count} of ${of.name} (the last is ${JSON.stringify(stream.last)})`, () => countOf(stream.last?.data, of) === count, timeoutMs);

test('a stream begins with what the GET of its board says', async () => {
  const sales = []; // of which three are sold out
  for (let i = 0; i < 12; i++) {
    sales.push(await sale(`FIRST/${i}`, i < 3 ? i + 1 : 100));
    const who = await sales[i].buyer('ann');
    for (let n = 0; n <= i; n++) await sales[i].held(who);
  }
  for (const node of nodes()) {
    for (const board of BOARDS)
      for (const [i, { name }] of sales.entries())
        await until(`${board} has counted ${name}`, async () => (await get(`/rankings/${board}/${name}`, node)).reservationCount === i + 1);
    for (const board of [undefined, ...BOARDS]) {
      const stream = await watch(board, node);
      await until('the first event', () => stream.events.length > 0, TOLD_MS);
      assert.equal(stream.status, 200);
      assert.equal(stream.headers['content-type'], 'text/event-stream');
      assert.equal(stream.headers['cache-control'], 'no-store');
      assert.equal(stream.headers['x-accel-buffering'], 'no');
      assert.ok(stream.retryMs >= 1000 && stream.retryMs <= 5000, `${stream.retryMs}`);
      const [{ type, id, data }] = stream.events;
      assert.deepEqual([type, Number(id)], ['ranking', Date.parse(data.serverTime)]);
      assert.equal(data.rankings.length, 10);
      assert.deepEqual(lasting(data), lasting(await get(`/rankings/${board ?? 'soldout'}?topN=10`, node)));
      stream.destroy();
    }
  }
});

test('a sale and a cancellation are sent to all streams, on every node', async (t) => {
  const of = await sale('SALE/1');
  const who = await of.buyer('ann');
  const first = await of.held(who);
  for (let i = 0; i < 20; i++) await of.held(who); // ahead of all others here
  const streams = [];
  for (const node of nodes()) for (const board of BOARDS) streams.push(await watch(board, node));
  for (const stream of streams) await hears(stream, of, 21);
  const began = performance.now();
  await of.held(who);
  for (const stream of streams) await hears(stream, of, 22);
  t.diagnostic(`told after ${Math.round(Math.max(...streams.map(({ last }) => last.atMs)) - began)} ms`);
  await of.cancelled(who, first.id);
  for (const stream of streams) await hears(stream, of, 21);
  const renamed = { title: 'Another name', sections: [{ id: 'A', capacity: 1000 }] };
  assert.equal((await server.admin('PUT', '/admin/events/SALE/1', renamed)).status, 200);
  for (const stream of streams) {
    await until('the title is told', () => stream.last.data.rankings.some(({ title }) => title === renamed.title), TOLD_MS);
    assert.equal(new Set(stream.events.map(({ id }) => id)).size, stream.events.length);
    stream.destroy();
  }
});

test('while nothing changes there are heartbeats, and nothing else', async () => {
  const own = await start({ args: ['--sse-heartbeat-seconds', '1'] });
  const of = await sale('CALM/1', 10, own);
  await of.held(await of.buyer('ann'));
  for (const node of nodes(own)) await until('it is counted', async () => countOf(await get('/rankings/soldout', node), of) === 1);
  const streams = await Promise.all(BOARDS.map((board) => watch(board, own)));
  for (const stream of streams) await until('three heartbeats', () => stream.comments.length >= 3);
  for (const stream of streams) {
    assert.equal(stream.events.length, 1, JSON.stringify(stream.events));
    assert.deepEqual([...new Set(stream.comments)], ['hb']);
    stream.destroy();
  }
  // A client that connects after a second without subscribers gets the current board.
  await until('no stream is open', async () => (await own.metric('admitone_sse_streams')) === 0);
  const alone = performance.now();
  await of.held(await of.buyer('bo'));
  for (const node of nodes(own)) await until('it is counted', async () => countOf(await get('/rankings/daily', node), of) === 2);
  await until('a second has passed', () => performance.now() - alone > 1000);
  const late = await watch('daily', own);
  await until('the first event', () => late.events.length > 0, TOLD_MS);
  assert.equal(countOf(late.events[0].data, of), 2);
  late.destroy();
  await own.stop();
});

test('fifty sales in a row are sent once a second to each stream, and the last update is right', async () => {
  const of = await sale('ROW/1');
  const who = await of.buyer('ann');
  const streams = [];
  // They come at all times of a second, and on all workers.
  const open = async () => {
    const stream = await watch('daily', nodes()[0]);
    await until('the first event', () => stream.events.length > 0, TOLD_MS);
    streams.push(stream);
  };
  const began = performance.now();
  for (let i = 0; i < 50; i++) {
    await of.held(who);
    if (i < 30) await open();
    await until('a moment', () => performance.now() - began >= (i + 1) * 80);
  }
  for (const stream of streams) await hears(stream, of, 50);
  const seconds = (performance.now() - began) / 1000;
  for (const stream of streams) {
    assert.ok(stream.events.length >= 3, 'it has heard of changes');
    assert.ok(stream.events.length <= seconds + 2, `${stream.events.length} in ${seconds} s`);
    for (const [i, { atMs }] of stream.events.entries())
      if (i > 0) assert.ok(atMs - stream.events[i - 1].atMs >= GAP_MS, `${atMs - stream.events[i - 1].atMs} ms apart`);
    stream.destroy();
  }
});

test('a wrong request gets an error', async () => {
  const { detail } = (await server.call('GET', '/rankings/stream?board=hourly')).json;
  assert.equal(detail, `Known values: ${BOARDS.join(', ')}.`);
  for (const board of ['hourly', 'Daily', 'soldout%20', '', '%FF', 'popularity'])
    assertProblemWith(await server.call('GET', `/rankings/stream?board=${board}`), 400, 'unknown_period', {});
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    const answer = await server.call(method, '/rankings/stream');
    assertProblemWith(answer, 405, 'method_not_allowed', {});
    assert.equal(answer.headers.allow, 'OPTIONS, GET, HEAD');
  }
  const head = await server.call('HEAD', '/rankings/stream');
  assert.deepEqual([head.status, head.headers['content-type'], head.text], [200, 'text/event-stream', '']);
});

test('an EventSource that is cut reconnects by itself, and gets the current state', async () => {
  const own = await start({ args: ['--sse-max-seconds', '1', '--sse-heartbeat-seconds', '1'] });
  const heard = [];
  let opened = 0;
  const source = new EventSource(`${own.url}/rankings/stream?board=weekly`);
  source.addEventListener('open', () => opened++);
  source.addEventListener('ranking', ({ data }) => heard.push(JSON.parse(data)));
  try {
    await until('it has come back and heard it again', () => opened >= 2 && heard.length >= 2);
    assert.deepEqual(heard.map(({ period }) => period).slice(0, 2), ['weekly', 'weekly']);
  } finally {
    source.close();
  }
  await own.stop();
});

test('many streams get the same as one, leave nothing behind, and end with the server', async (t) => {
  const own = await start();
  const of = await sale('MANY/1', 1000, own);
  const who = await of.buyer('ann');
  await of.held(who);
  for (const node of nodes(own)) await until('it is counted', async () => countOf(await get('/rankings/daily', node), of) === 1);
  const streams = await eachOf(Array.from({ length: 1000 }), 32, (_, i) => watch(BOARDS[i % BOARDS.length], own));
  for (const stream of streams) await hears(stream, of, 1);
  assert.equal(await own.metric('admitone_sse_streams'), 1000);
  const events = await own.metric('admitone_sse_events_total');
  const began = performance.now();
  await of.held(who);
  for (const stream of streams) await hears(stream, of, 2);
  t.diagnostic(`all told after ${Math.round(Math.max(...streams.map(({ last }) => last.atMs)) - began)} ms`);
  assert.equal((await own.metric('admitone_sse_events_total')) - events, 1000);
  assert.equal(await own.metric('admitone_sse_dropped_total'), 0);

  for (const stream of streams.splice(0, 500)) stream.destroy();
  await until('half of them are gone', async () => (await own.metric('admitone_sse_streams')) === 500);
  own.signal('SIGTERM');
  for (const stream of streams) await stream.toEnd();
  await own.stop();
  assert.doesNotMatch(own.stderr, /stop deadline/, 'no stream held the stop up');
});

test('while Redis does not answer they stay, others may come, and the server may stop', onlyOn('redis+postgres', 'memory always answers'), async () => {
  const own = await start({ args: ['--hot-deadline-ms', '100', '--sse-heartbeat-seconds', '1'] });
  const of = await sale('MUTE/1', 1000, own);
  const who = await of.buyer('ann');
  const mute = (ms) => assert.equal(redis(own.dataDir, 'CLIENT', 'PAUSE', ms), 'OK');
  const streams = await Promise.all(BOARDS.map((board) => watch(board, own)));
  await of.held(who);
  for (const stream of streams) await hears(stream, of, 1);
  mute(3000);
  for (const node of nodes(own)) assert.equal((await node.call('GET', '/rankings/daily')).status, 503);
  const late = await watch('daily', own.nodes[0]);
  assert.equal(late.status, 200);
  await until('it lives', () => late.comments.length > 0);
  assert.equal(late.events.length, 0);
  await hears(late, of, 1, 10000);
  await until('it is sold', async () => (await of.hold(who)).status === 201);
  for (const stream of [...streams, late]) await until('it is told', () => countOf(stream.last.data, of) > 1);
  for (const stream of streams) assert.ok(!stream.ended && !stream.closed);
  mute(3000);
  own.signal('SIGTERM');
  for (const stream of [...streams, late]) await stream.toEnd();
  await own.stop();
});
