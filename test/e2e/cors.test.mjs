// What a page of an allowed origin can do, as browsers decide it (the Fetch standard): send requests
// with the API's methods and headers, with cookies, and read answers and their headers.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { WaitingRoom } from './support/queue.mjs';
import { Stream } from './support/sse.mjs';
import { start } from './support/server.mjs';

const SHOP = 'https://shop.example';
const EVIL = 'https://evil.example';
const sources = fs.readdirSync('src/api').filter((name) => name.endsWith('.c')).map((name) => fs.readFileSync(`src/api/${name}`, 'utf8')).join('\n');
const names = (pattern) => [...new Set([...sources.matchAll(pattern)].map(([, name]) => name.toLowerCase()))].sort();
const listed = (text) => (text ?? '').toLowerCase().split(/\s*,\s*/);

// Headers that a page need not ask for, or that only the browser or a proxy writes.
const FREE = ['accept-encoding', 'accept-language', 'cookie', 'host', 'if-none-match', 'origin', 'sec-fetch-site', 'x-forwarded-uri', 'x-original-uri'];
const READ = names(/(?:http_header\([^)]*?STR\(|#define HEADER )"([A-Za-z-]+)"/g).filter((name) => !FREE.includes(name));
// Headers that every page may read, or that mean something to the browser alone.
const SHOWN = ['cache-control', 'content-encoding', 'content-language', 'allow', 'refresh', 'set-cookie', 'vary', 'www-authenticate', 'x-accel-buffering'];
const WRITTEN = names(/reply_header\(\s*[^,]+, STR\("([A-Za-z-]+)"\)/g).filter((name) => !SHOWN.includes(name) && !name.startsWith('access-control-'));
const ROUTES = [...sources.matchAll(/\{HTTP_(\w+), \w+, "([^"]+)"/g)].map(([, method, path]) => ({ method, path }));

let server;
before(async () => (server = await start({ args: ['--users-auth', 'anonymous', '--cors-origins', `${SHOP},https://www.shop.example`] })));
after(() => server?.stop());

const cookiesOf = (answer) => (answer.headers['set-cookie'] ?? []).map((line) => line.split(';')[0]).join('; ');

// As a browser lets a page that sends credentials read the answer.
function assertReadable(answer, what) {
  assert.equal(answer.headers['access-control-allow-origin'], SHOP, what);
  assert.equal(answer.headers['access-control-allow-credentials'], 'true', what);
  assert.ok(listed(answer.headers.vary).includes('origin'), what);
}

describe('a preflight', () => {
  const ahead = (path, method, headers, origin = SHOP) =>
    server.call('OPTIONS', path, {
      headers: { origin, 'access-control-request-method': method, 'access-control-request-headers': headers.join(',') },
    });

  test('the list of headers in the source is whole', () => {
    for (const name of ['authorization', 'content-type', 'idempotency-key', 'if-match', 'last-event-id', 'x-queue-token', 'x-shop-confirmation', 'x-user-assertion'])
      assert.ok(READ.includes(name), `${name} of ${READ}`);
    for (const name of ['etag', 'idempotency-replayed', 'location', 'x-queue-token']) assert.ok(WRITTEN.includes(name), `${name} of ${WRITTEN}`);
    assert.ok(ROUTES.length > 40);
  });

  test('allows every method of every path, with every header that the API reads', async () => {
    for (const { method, path } of ROUTES) {
      const answer = await ahead(path.replace(/\{\w+\}/g, 'x'), method, READ);
      assert.equal(answer.status, 204, path);
      assertReadable(answer, path);
      assert.ok(listed(answer.headers['access-control-allow-methods']).includes(method.toLowerCase()), `${method} ${path}`);
      for (const name of READ) assert.ok(listed(answer.headers['access-control-allow-headers']).includes(name), `${name}: ${path}`);
      assert.ok(!answer.headers['access-control-allow-methods'].includes('*') && !answer.headers['access-control-allow-headers'].includes('*'), 'with credentials * is no wildcard');
    }
  });

  test('of another origin gets no permission', async () => {
    for (const origin of [EVIL, 'null', 'http://shop.example']) {
      const answer = await ahead('/reservations', 'POST', READ, origin);
      for (const name of Object.keys(answer.headers)) assert.ok(!name.startsWith('access-control-'), `${name} for ${origin}`);
      assert.ok(listed(answer.headers.vary).includes('origin'));
    }
  });
});

describe('a page of an allowed origin', () => {
  test('can read all headers of the API, and sends and gets cookies', async () => {
    const room = await WaitingRoom.open(server, 'CORS/1', {}, { autoEnter: true, confirmBy: 'user' });
    const page = { origin: SHOP };
    const held = await server.call('POST', '/reservations', { headers: page, body: { eventType: 'CORS', eventId: '1', section: 'A', quantity: 1 } });
    assert.equal(held.status, 201, held.text);
    assertReadable(held);
    for (const name of WRITTEN) assert.ok(listed(held.headers['access-control-expose-headers']).includes(name), name);
    assert.ok(held.headers['x-queue-token'] && held.headers.location);

    // With the cookies it is the same user; another page cannot use them.
    const cookie = cookiesOf(held);
    assert.match(cookie, /admitone_user=/);
    const withCookies = { ...page, cookie };
    for (const target of ['/reservations', held.headers.location, `/queue/${room.name}/status`]) {
      const answer = await server.call('GET', target, { headers: withCookies });
      assert.equal(answer.status, 200, target);
      assertReadable(answer, target);
    }
    const confirm = (origin) => server.call('POST', `${held.headers.location}/confirm`, { headers: { ...withCookies, origin } });
    const refused = await confirm(EVIL);
    assert.equal(refused.json.code, 'foreign_origin', refused.text);
    assert.equal(refused.headers['access-control-allow-origin'], undefined);
    const confirmed = await confirm(SHOP);
    assert.equal(confirmed.json.status, 'CONFIRMED', confirmed.text);
    assertReadable(confirmed);
  });

  test('can enter, leave and follow a stream with cookies', async () => {
    const room = await WaitingRoom.open(server, 'CORS/2', { maxActive: 1 });
    const entered = await server.call('POST', `/queue/${room.name}/enter`, { headers: { origin: SHOP } });
    assertReadable(entered);
    const cookie = cookiesOf(entered);
    const again = await server.call('POST', `/queue/${room.name}/enter`, { headers: { origin: SHOP, cookie } });
    assert.equal(again.json.userId, entered.json.userId);
    const stream = await Stream.open(room, entered.json.entryToken, { headers: { Origin: SHOP, Cookie: cookie } });
    assert.equal(stream.status, 200);
    assertReadable(stream, 'a stream');
    stream.socket.destroy();
    const left = await server.call('DELETE', `/queue/${room.name}/leave`, { headers: { origin: SHOP, cookie } });
    assert.equal(left.status, 204, left.text);
    assertReadable(left);
  });

  test('can read refusals', async () => {
    for (const [method, target, status] of [['GET', '/nothing', 404], ['PUT', '/events', 405], ['GET', '/queue/NO/1/status', 404], ['GET', '/admin/audit', 401], ['GET', '/events/%01/1', 400]]) {
      const answer = await server.call(method, target, { headers: { origin: SHOP } });
      assert.equal(answer.status, status, target);
      assertReadable(answer, target);
    }
  });
});
