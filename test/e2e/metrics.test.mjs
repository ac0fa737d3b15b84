// The paths about the server itself: /health, /ready, /metrics, /openapi.json.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { Raw, ask, request } from './support/raw.mjs';
import { WaitingRoom } from './support/queue.mjs';
import { concert, start, test, until } from './support/server.mjs';

let server;
before(async () => (server = await start()));
after(() => server.stop());

// The Prometheus text format, strictly: { families: name → { type, help, samples } }.
function parse(text) {
  assert.ok(text.endsWith('\n'));
  const families = new Map();
  let current = null;
  for (const line of text.slice(0, -1).split('\n')) {
    const help = /^# HELP ([a-z_]+) (\S.*)$/.exec(line);
    const type = /^# TYPE ([a-z_]+) (counter|gauge|histogram)$/.exec(line);
    if (help) {
      assert.ok(!families.has(help[1]), `${help[1]} stands twice`);
      families.set(help[1], (current = { name: help[1], help: help[2], samples: [] }));
    } else if (type) {
      assert.equal(type[1], current.name);
      current.type = type[2];
    } else {
      const sample = /^([a-z_]+)(?:\{([a-z_]+="[^"\\\n]*"(?:,[a-z_]+="[^"\\\n]*")*)\})? (\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/.exec(line);
      assert.ok(sample, `not a sample: ${line}`);
      const [, name, labels = '', value] = sample;
      const suffix = name.slice(current.name.length);
      assert.ok(name.startsWith(current.name) && (current.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']).includes(suffix), line);
      assert.ok(!current.samples.some((one) => one.name === name && one.labels === labels), `${line} stands twice`);
      current.samples.push({ name, labels, suffix, value: Number(value) });
    }
  }
  return families;
}

const scrape = async () => {
  const answer = await server.call('GET', '/metrics');
  assert.equal(answer.status, 200);
  assert.match(answer.headers['content-type'], /^text\/plain; version=0\.0\.4/);
  return parse(answer.text);
};
const value = (families, name, labels = '') => families.get(name).samples.find((one) => one.labels === labels && one.suffix === '').value;
// The labels of a bucket without its bound: those of its histogram.
const withoutBound = (labels) => labels.replace(/,?le="[^"]*"$/, '');

test('/metrics is well-formed: names, types, help, no doubles, counters that end in _total', async () => {
  const families = await scrape();
  assert.ok(families.size >= 15);
  for (const { name, type, help, samples } of families.values()) {
    assert.match(name, /^admitone_/);
    assert.ok(help.length > 0 && type !== undefined && samples.length > 0, name);
    assert.equal(type === 'counter', name.endsWith('_total'), name);
  }
});

test('docs/operations.md lists what /metrics has, each name once, and nothing else', async () => {
  const doc = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
  const rows = doc.split('\n').filter((line) => line.startsWith('| `admitone_'));
  const listed = rows.flatMap((row) => [...row.split(' | ')[0].matchAll(/`(admitone_\w+)(?:\{([a-z_,]+)\})?`/g)]);
  // Some gauges are of events, and one only of adaptive sections.
  await server.admin('PUT', '/admin/events/LISTED/1', concert({ sections: [{ id: 'A', capacity: 1, mode: 'adaptive' }] }));
  const families = await scrape();
  assert.deepEqual(listed.map(([, name]) => name).sort(), [...families.keys()].sort());
  for (const [, name, labels = ''] of listed) {
    const there = families.get(name).samples.map((one) => withoutBound(one.labels).replaceAll(/="[^"]*"/g, ''));
    assert.deepEqual([...new Set(there)], [labels], name);
  }
});

// Nobody reserves in the test below, so what reservations feed is there and empty.
const UNFED = ['admitone_request_decided_seconds', 'admitone_lock_wait_seconds', 'admitone_lock_hold_seconds', 'admitone_slot_claim_seconds'];

test('/metrics: buckets of a histogram grow, end in +Inf, and agree with the count, for each set of labels', async () => {
  const room = await WaitingRoom.open(server, 'H/1', {}, { state: 'PAUSED' });
  const { entryToken } = await room.enter('ann');
  await server.admin('POST', '/admin/queue/H/1/activate');
  await until('ann is in', async () => (await room.status(entryToken)).status === 'ACTIVE');
  const families = await scrape();
  const histograms = [...families.values()].filter((family) => family.type === 'histogram');
  assert.ok(histograms.length >= 3);
  for (const { name, samples } of histograms) {
    const sets = new Set(samples.map((one) => withoutBound(one.labels)));
    for (const set of sets) {
      const own = samples.filter((one) => withoutBound(one.labels) === set);
      const buckets = own.filter((one) => one.suffix === '_bucket').map((one) => [/(?:^|,)le="([^"]*)"$/.exec(one.labels)[1], one.value]);
      const bounds = buckets.map(([le]) => (le === '+Inf' ? Infinity : Number(le)));
      for (let i = 1; i < buckets.length; i++) {
        assert.ok(bounds[i] > bounds[i - 1], `${name}{${set}}: ${bounds[i]} behind ${bounds[i - 1]}`);
        assert.ok(buckets[i][1] >= buckets[i - 1][1], `${name}{${set}}: a bucket shrinks`);
      }
      assert.equal(bounds.at(-1), Infinity);
      const count = own.find((one) => one.suffix === '_count').value;
      assert.equal(buckets.at(-1)[1], count);
      assert.equal(count > 0, !UNFED.includes(name), `${name}{${set}}`);
      assert.ok(own.find((one) => one.suffix === '_sum').value >= 0);
    }
  }
  const strategies = (name) => families.get(name).samples.filter((one) => one.suffix === '_count').map((one) => one.labels);
  const locking = ['strategy="lock"', 'strategy="adaptive"', 'strategy="distributed-lock"'];
  assert.deepEqual(strategies('admitone_lock_wait_seconds'), locking);
  assert.deepEqual(strategies('admitone_lock_hold_seconds'), locking);
});

test('/metrics: counters count what they say, by exactly as much', async () => {
  const before = await scrape();
  for (let i = 0; i < 5; i++) await server.call('GET', '/health');
  for (let i = 0; i < 3; i++) await server.call('GET', '/nothing');
  await ask(server, 'BAD\r\n\r\n');
  for (let i = 0; i < 4; i++) await server.admin('PUT', `/admin/events/COUNT/${i}`, concert());
  await server.admin('DELETE', '/admin/events/COUNT/0');
  // The same scrape that saw the others closed: in another one this connection might still be closing.
  const after = await until('the other connections are closed', async () => {
    const now = await scrape();
    const open = value(now, 'admitone_connections_accepted_total') - value(now, 'admitone_connections_closed_total');
    return value(now, 'admitone_connections') === 1 && open === 1 && now;
  });
  const grew = (name, labels) => value(after, name, labels) - value(before, name, labels);
  assert.equal(grew('admitone_http_responses_total', 'class="4xx"'), 4);
  assert.equal(grew('admitone_http_responses_total', 'class="5xx"'), 0);
  assert.equal(grew('admitone_ledger_records_total'), 5);
  assert.equal(grew('admitone_events'), 3);
  assert.ok(grew('admitone_http_responses_total', 'class="2xx"') >= 10 + 1);
  // Each call had its own connection, and so had the scrapes.
  const requests = ['2xx', '3xx', '4xx', '5xx'].reduce((sum, one) => sum + grew('admitone_http_responses_total', `class="${one}"`), 0);
  assert.equal(grew('admitone_connections_accepted_total'), requests);
  assert.equal(value(after, 'admitone_ledger_queue_depth'), 0);
  assert.equal(value(after, 'admitone_ledger_writable'), 1);
  assert.equal(grew('admitone_ledger_batch_failures_total'), 0);
  const count = (families) => families.get('admitone_request_duration_seconds').samples.find((one) => one.suffix === '_count').value;
  assert.equal(count(after) - count(before), requests);
});

test('/metrics: admitone_events counts no drafts, but for keys that may read them', async () => {
  const key = { headers: { authorization: `Bearer ${server.adminKey}` } };
  const events = async (options) => value(parse((await server.call('GET', '/metrics', options)).text), 'admitone_events');
  const before = [await events(), await events(key)];
  await server.admin('PUT', '/admin/events/DRAFTS/1', concert({ state: 'DRAFT' }));
  await server.admin('PUT', '/admin/events/DRAFTS/2', concert({ state: 'OPEN' }));
  assert.deepEqual([await events(), await events(key)], [before[0] + 1, before[1] + 2]);
});

test('/metrics: the gauge of connections follows those that are open', async () => {
  const connections = await Promise.all(Array.from({ length: 20 }, () => Raw.connect(server)));
  for (const raw of connections) await raw.write(request('GET', '/health')).answer();
  await until('they are counted', async () => value(await scrape(), 'admitone_connections') === 21);
  for (const raw of connections) raw.destroy();
  await until('they are gone', async () => value(await scrape(), 'admitone_connections') === 1);
});

test('/metrics says which version runs since when, as the rest of the program does', async () => {
  const families = await scrape();
  const { version } = (await server.call('GET', '/health')).json;
  assert.equal(families.get('admitone_build_info').samples[0].labels, `version="${version}"`);
  const started = value(families, 'admitone_start_time_seconds') * 1000;
  assert.ok(Date.now() - started < 600000 && started <= Date.now());
});

test('/health and /ready are JSON, 200, and need no key', async () => {
  const health = await server.call('GET', '/health');
  assert.equal(health.status, 200);
  assert.equal(health.json.status, 'ok');
  assert.match(health.json.version, /^\d+\.\d+\.\d+$/);
  const ready = await server.call('GET', '/ready');
  assert.equal(ready.status, 200);
  assert.deepEqual(ready.json, { ready: true, ledger: 'ok', hot: 'ok', events: 'ok', feed: 'ok', stopping: false });
  assert.equal(ready.headers['retry-after'], undefined);
});

test('/openapi.json describes exactly the paths and methods that exist', async () => {
  const answer = await server.call('GET', '/openapi.json');
  assert.equal(answer.status, 200);
  assert.equal(answer.headers['content-type'], 'application/json');
  const { paths, openapi } = answer.json;
  assert.match(openapi, /^3\./);
  for (const [pattern, methods] of Object.entries(paths)) {
    const target = pattern.replaceAll(/\{\w+\}/g, 'x');
    const { status, headers } = await server.call('OPTIONS', target);
    assert.equal(status, 204, pattern);
    const described = Object.keys(methods).filter((name) => name !== 'parameters').map((name) => name.toUpperCase());
    const there = headers.allow.split(', ').filter((name) => !['OPTIONS', 'HEAD'].includes(name));
    assert.deepEqual(described.filter((name) => !['OPTIONS', 'HEAD'].includes(name)).sort(), there.sort(), pattern);
  }
});
