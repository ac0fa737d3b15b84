// HTTP/1.1: framing, limits, deadlines, connection limits.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { hold } from './support/namespace.mjs';
import { Raw, adminRequest, ask, exchange, parseResponses, request } from './support/raw.mjs';
import { assertProblem, call, concert, launch, metricOf, start, test, until } from './support/server.mjs';

const HEALTH = request('GET', '/health');
const LF = '\n';

let server;
before(async () => {
  server = await start();
  await server.admin('PUT', '/admin/events/CONCERT/1', concert());
});
after(() => server.stop());

// A request that is refused before it is understood: answered, whole, then closed in order.
async function assertRefused(bytes, status, code, to = server) {
  const answers = await exchange(to, bytes);
  assert.equal(answers.length, 1, `${answers.length} answers`);
  assertProblem(answers[0], status, code);
  assert.equal(answers[0].headers.connection, 'close');
  return answers[0];
}

describe('connections and framing', () => {
  test('a connection is kept alive for many requests, one after the other', async () => {
    const raw = await Raw.connect(server);
    for (let i = 0; i < 100; i++) {
      const answer = await raw.write(HEALTH).answer();
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.connection, undefined);
    }
    raw.destroy();
  });

  test('fetch and its connection pool are served', async () => {
    for (let i = 0; i < 20; i++) {
      const answer = await fetch(`${server.url}/events/CONCERT/1`);
      assert.equal(answer.status, 200);
      assert.equal((await answer.json()).title, 'Winter tour');
    }
  });

  test('Connection: close and HTTP/1.0 end the connection after the answer', async () => {
    for (const bytes of [
      request('GET', '/health', { headers: ['Connection: close'] }),
      request('GET', '/health', { headers: ['Connection: Keep-Alive, Close'] }),
      request('GET', '/health', { version: '1.0' }),
      Buffer.from('GET /health HTTP/1.0\r\n\r\n'),
    ]) {
      const answers = await exchange(server, bytes);
      assert.equal(answers.length, 1);
      assert.equal(answers[0].status, 200);
      assert.equal(answers[0].headers.connection, 'close');
    }
  });

  test('HTTP/1.0 with keep-alive gets a header that the connection stays open, and it does', async () => {
    const raw = await Raw.connect(server);
    const bytes = request('GET', '/health', { version: '1.0', headers: ['Connection: keep-alive'] });
    for (let i = 0; i < 3; i++) {
      const answer = await raw.write(bytes).answer();
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.connection, 'keep-alive');
    }
    raw.destroy();
  });

  test('an empty line before a request is forgiven, two are not', async () => {
    assert.equal((await ask(server, `\r\n${HEALTH}`)).status, 200);
    await assertRefused(`\r\n\r\n${HEALTH}`, 400, 'bad_request');
  });

  test('500 requests in one write are answered in their order', async () => {
    const ids = Array.from({ length: 500 }, (_, i) => `order-${i}`);
    const raw = await Raw.connect(server);
    raw.write(Buffer.concat(ids.map((id) => request('GET', '/events/CONCERT/1', { headers: [`X-Request-Id: ${id}`] }))));
    const answers = await raw.answers(ids.length);
    assert.deepEqual(answers.map((a) => a.headers['x-request-id']), ids);
    assert.ok(answers.every((a) => a.status === 200));
    raw.destroy();
  });

  test('pipelined changes and looks are done one after the other: each GET sees the PUT before it', async () => {
    const raw = await Raw.connect(server);
    const bytes = [];
    for (let i = 0; i < 30; i++) {
      bytes.push(adminRequest(server, 'PUT', '/admin/events/PIPE/1', concert({ title: `take ${i}` })));
      bytes.push(request('GET', '/events/PIPE/1'));
      if (i % 10 === 9) bytes.push(adminRequest(server, 'DELETE', '/admin/events/PIPE/1'), request('GET', '/events/PIPE/1'));
    }
    const answers = await raw.write(Buffer.concat(bytes)).answers(bytes.length);
    for (let i = 0, at = 0; i < 30; i++) {
      assert.equal(answers[at].status, i % 10 === 0 ? 201 : 200);
      assert.equal(answers[at + 1].json.title, `take ${i}`);
      at += 2;
      if (i % 10 === 9) {
        assert.equal(answers[at].status, 204);
        assertProblem(answers[at + 1], 404, 'event_not_found');
        at += 2;
      }
    }
    raw.destroy();
  });

  test('what is pipelined behind a last request is not answered', async () => {
    const last = request('GET', '/health', { headers: ['Connection: close'] });
    assert.equal((await exchange(server, Buffer.concat([HEALTH, last, HEALTH, HEALTH]))).length, 2);
  });

  test('a client that closes its side after asking still gets all its answers', async () => {
    const raw = await Raw.connect(server);
    raw.write(
      Buffer.concat([
        adminRequest(server, 'PUT', '/admin/events/HALF/1', concert()),
        request('GET', '/events/HALF/1'),
        adminRequest(server, 'PUT', '/admin/events/HALF/1', concert()),
      ]),
    ).end();
    assert.deepEqual((await raw.toEnd()).map((a) => a.status), [201, 200, 200]);
    raw.destroy();
  });

  test('chunked bodies arrive joined: one chunk, many, one byte each, with extensions and trailers', async () => {
    const json = JSON.stringify(concert({ title: 'Chunked é' }));
    const bytes = Buffer.from(json);
    const chunk = (part, size = part.length.toString(16)) =>
      Buffer.concat([Buffer.from(`${size}\r\n`), part, Buffer.from('\r\n')]);
    const bodies = {
      'one chunk': [chunk(bytes), '0\r\n\r\n'],
      'capitals and leading zeros': [chunk(bytes, `000${bytes.length.toString(16).toUpperCase()}`), '000\r\n\r\n'],
      'one byte each': [...Array.from(bytes, (b) => chunk(Buffer.from([b]))), '0\r\n\r\n'],
      extensions: [chunk(bytes, `${bytes.length.toString(16)};name="a b";x`), '0;end\r\n\r\n'],
      trailers: [chunk(bytes), '0\r\nX-Checksum: 1\r\nX-Other: 2\r\n\r\n'],
    };
    const raw = await Raw.connect(server);
    for (const [name, parts] of Object.entries(bodies)) {
      const head = request('PUT', '/admin/events/CHUNK/1', {
        headers: [`Authorization: Bearer ${server.adminKey}`, 'Content-Type: application/json', 'Transfer-Encoding: Chunked'],
      });
      const answer = await raw.write(Buffer.concat([head, ...parts.map((p) => Buffer.from(p))])).answer();
      assert.ok([200, 201].includes(answer.status), `${name}: ${answer.text}`);
      assert.equal(answer.json.title, 'Chunked é', name);
    }
    assert.equal((await raw.write(HEALTH).answer()).status, 200);
    raw.destroy();
  });

  test('HEAD has the headers of GET and no body, and the next answer follows', async () => {
    for (const target of ['/health', '/events/CONCERT/1', '/events', '/openapi.json', '/nothing', '/events/NO/1']) {
      const raw = await Raw.connect(server, { heads: [0] });
      const id = ['X-Request-Id: same'];
      raw.write(Buffer.concat([request('HEAD', target, { headers: id }), request('GET', target, { headers: id }), HEALTH]));
      const [head, get, next] = await raw.answers(3);
      assert.equal(head.status, get.status, target);
      assert.deepEqual({ ...head.headers, date: '' }, { ...get.headers, date: '' }, target);
      assert.equal(Number(head.headers['content-length']), Buffer.byteLength(get.text));
      assert.equal(next.status, 200);
      raw.destroy();
    }
  });

  test('Expect: 100-continue: the server asks for the body, then answers', async () => {
    const body = JSON.stringify(concert());
    const head = adminRequest(server, 'PUT', '/admin/events/EXPECT/1', body, ['Expect: 100-Continue']);
    const raw = await Raw.connect(server);
    raw.write(head.subarray(0, head.length - body.length));
    const [interim] = await raw.answers(1);
    assert.equal(interim.status, 100);
    raw.write(body);
    const [, answer] = await raw.answers(2);
    assert.equal(answer.status, 201);
    raw.destroy();
  });

  test('Expect: 100-continue: no 100 when the body came along, is refused, or the client is HTTP/1.0', async () => {
    const put = (headers, body) => adminRequest(server, 'PUT', '/admin/events/EXPECT/2', body, headers);
    const expect = ['Expect: 100-continue'];
    assert.equal((await ask(server, put(expect, concert()))).status, 201);
    assert.equal((await ask(server, request('GET', '/health', { headers: expect }))).status, 200);
    await assertRefused(request('PUT', '/admin/events/EXPECT/2', { headers: [...expect, 'Content-Length: 65537'] }), 413, 'content_too_large');
    await assertRefused(request('GET', '/health', { headers: ['Expect: 200-ok'] }), 417, 'expectation_failed');
    const raw = await Raw.connect(server);
    raw.write(request('PUT', '/x', { version: '1.0', headers: [...expect, 'Content-Length: 2'] })).write('{}');
    assert.equal((await raw.answer()).status, 404);
    raw.destroy();
  });

  test('paths are decoded once, part by part', async () => {
    const status = async (target) => (await ask(server, request('GET', target))).status;
    assert.equal(await status('/events/CONCERT/%31'), 200);
    assert.equal(await status('/%65vents/%43ONCERT/%31'), 200);
    assert.equal(await status('http://elsewhere/events/CONCERT/1'), 200);
    assert.equal(await status('/events/CONCERT/%2531'), 404, 'decoded twice');
    assert.equal(await status('/events/CONCERT%2F1'), 404, 'an encoded / is no separator');
    assert.equal(await status('/rankings%2Fsoldout'), 404, 'neither in literal parts');
    assert.equal(await status('/admin%2Fqueue/CONCERT/1'), 404);
    assert.equal(await status('/events/CONCERT/1/'), 404);
    assert.equal(await status('//events/CONCERT/1'), 404);
    assert.equal(await status('/events/../events/CONCERT/1'), 404);
    for (const bad of ['%0a', '%7f', '%ff', '%c3', '%ed%a0%80'])
      assertProblem(await ask(server, request('GET', `/events/CONCERT/${bad}`)), 400, 'bad_request');
    for (const bad of ['%', '%1', '%zz', '%00', '%1g']) await assertRefused(request('GET', `/events/CONCERT/${bad}`), 400, 'bad_request');
  });
});

describe('what is refused', () => {
  // Exactly as long as asked, line ends and all.
  const lineOf = (bytes) => `GET /${'a'.repeat(bytes - 'GET / HTTP/1.1\r\n'.length)} HTTP/1.1\r\n`;
  const headersOf = (bytes) => {
    const fixed = 'Host: test\r\nX-Pad: \r\n\r\n'.length;
    return `Host: test\r\nX-Pad: ${'a'.repeat(bytes - fixed)}\r\n\r\n`;
  };

  test('a request line of 8 KiB is read, one byte more is 414', async () => {
    assert.equal((await ask(server, `${lineOf(8192)}Host: test\r\n\r\n`)).status, 404);
    await assertRefused(`${lineOf(8193)}Host: test\r\n\r\n`, 414, 'uri_too_long');
    await assertRefused('a'.repeat(8192), 414, 'uri_too_long');
  });

  test('headers of 16 KiB are read, one byte more is 431, and so is a 65th header', async () => {
    assert.equal((await ask(server, `GET /health HTTP/1.1\r\n${headersOf(16384)}`)).status, 200);
    await assertRefused(`GET /health HTTP/1.1\r\n${headersOf(16385)}`, 431, 'headers_too_large');
    const many = (n) => request('GET', '/health', { headers: Array.from({ length: n - 1 }, (_, i) => `X-${i}: 1`) });
    assert.equal((await ask(server, many(64))).status, 200);
    await assertRefused(many(65), 431, 'headers_too_large');
    await assertRefused(`GET /health HTTP/1.1\r\nHost: test\r\n${'X: y\r\n'.repeat(5000)}\r\n`, 431, 'headers_too_large');
  });

  test('a body of 64 KiB is read, one byte more is 413, chunked or not', async () => {
    const json = JSON.stringify(concert());
    const body = (bytes) => json + ' '.repeat(bytes - json.length);
    const put = (bytes) => adminRequest(server, 'PUT', '/admin/events/SIZE/1', body(bytes));
    assert.equal((await ask(server, put(65536))).status, 201);
    await assertRefused(put(65537), 413, 'content_too_large');
    const chunked = (bytes) =>
      Buffer.concat([
        request('PUT', '/admin/events/SIZE/1', {
          headers: [`Authorization: Bearer ${server.adminKey}`, 'Content-Type: application/json', 'Transfer-Encoding: chunked'],
        }),
        Buffer.from(`8000\r\n${body(bytes).slice(0, 32768)}\r\n`),
        Buffer.from(`${(bytes - 32768).toString(16)}\r\n${body(bytes).slice(32768)}\r\n0\r\n\r\n`),
      ]);
    assert.equal((await ask(server, chunked(65536))).status, 200);
    await assertRefused(chunked(65537), 413, 'content_too_large');
    await assertRefused(request('PUT', '/x', { headers: ['Content-Length: 9223372036854775807'] }), 413, 'content_too_large');
    const flood = `1;${'x'.repeat(250)}\r\na\r\n`.repeat(300);
    await assertRefused(`${request('PUT', '/x', { headers: ['Transfer-Encoding: chunked'] })}${flood}`, 413, 'content_too_large');
  });

  const get = (lines, line = 'GET /health HTTP/1.1') => `${[line, ...lines].join('\r\n')}\r\n\r\n`;
  const chunked = (body) => `${request('PUT', '/health', { headers: ['Transfer-Encoding: chunked'] })}${body}`;
  const bad = {
    'two Content-Length': get(['Host: a', 'Content-Length: 2', 'Content-Length: 2', '', '{}']),
    'two different Content-Length': get(['Host: a', 'Content-Length: 2', 'Content-Length: 3', '', '{}']),
    'a list of Content-Length': get(['Host: a', 'Content-Length: 2, 2', '', '{}']),
    'Content-Length with Transfer-Encoding': get(['Host: a', 'Content-Length: 5', 'Transfer-Encoding: chunked', '', '0', '']),
    'Transfer-Encoding with Content-Length': get(['Host: a', 'Transfer-Encoding: chunked', 'Content-Length: 5', '', '0', '']),
    'two Transfer-Encoding': get(['Host: a', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked', '', '0', '']),
    'Transfer-Encoding in HTTP/1.0': get(['Host: a', 'Transfer-Encoding: chunked', '', '0', ''], 'PUT /health HTTP/1.0'),
    'a negative Content-Length': get(['Host: a', 'Content-Length: -1']),
    'Content-Length +2': get(['Host: a', 'Content-Length: +2', '', '{}']),
    'Content-Length in hex': get(['Host: a', 'Content-Length: 0x2', '', '{}']),
    'an empty Content-Length': get(['Host: a', 'Content-Length:']),
    'a Content-Length beyond 64 bits': get(['Host: a', 'Content-Length: 18446744073709551618']),
    'a folded header': get(['Host: a', 'X-Long: one', ' two']),
    'a header folded with a tab': get(['Host: a', 'X-Long: one', '\ttwo']),
    'a first header with a space before it': get([' Host: a']),
    'bare LF behind the request line': `GET /health HTTP/1.1${LF}Host: a\r\n\r\n`,
    'bare LF behind a header': `GET /health HTTP/1.1\r\nHost: a${LF}\r\n`,
    'bare LF at the end of the headers': `GET /health HTTP/1.1\r\nHost: a\r\n${LF}`,
    'bare CR in a header': get(['Host: a', 'X: 1\rY: 2']),
    'bare CR in the request line': get(['Host: a'], 'GET /health\r HTTP/1.1'),
    'a second CR before the LF': `GET /health HTTP/1.1\r\nHost: a\r\r\n\r\n`,
    'a space before the colon': get(['Host : a']),
    'a space before the colon of Content-Length': get(['Host: a', 'Content-Length : 2', '', '{}']),
    'a tab before the colon': get(['Host: a', 'X\t: 1']),
    'a header without a colon': get(['Host: a', 'nothing']),
    'a header without a name': get(['Host: a', ': value']),
    'NUL in a header': get(['Host: a', 'X: a\0b']),
    'NUL in a header name': get(['Host: a', 'X\0: b']),
    'NUL in the path': get(['Host: a'], 'GET /hea\0lth HTTP/1.1'),
    'a control byte in a header': get(['Host: a', 'X: a\x01b']),
    'DEL in a header': get(['Host: a', 'X: a\x7fb']),
    'a control byte in the path': get(['Host: a'], 'GET /hea\x1flth HTTP/1.1'),
    'no Host': get([]),
    'two Hosts': get(['Host: a', 'Host: a']),
    'an empty Host': get(['Host: ']),
    'a Host with a space': get(['Host: a b']),
    'a Host with a slash': get(['Host: a/b']),
    'a Host with an @': get(['Host: a@b']),
    'no version': get(['Host: a'], 'GET /health'),
    'two spaces in the request line': get(['Host: a'], 'GET  /health HTTP/1.1'),
    'a space in the path': get(['Host: a'], 'GET /hea lth HTTP/1.1'),
    'a tab in the request line': get(['Host: a'], 'GET\t/health HTTP/1.1'),
    'a space at the line’s end': get(['Host: a'], 'GET /health HTTP/1.1 '),
    'a path that does not start with /': get(['Host: a'], 'GET health HTTP/1.1'),
    'a fragment in the path': get(['Host: a'], 'GET /health#x HTTP/1.1'),
    'bytes beyond ASCII in the path': get(['Host: a'], 'GET /hé HTTP/1.1'),
    'another scheme': get(['Host: a'], 'GET ftp://a/health HTTP/1.1'),
    '* for another method than OPTIONS': get(['Host: a'], 'GET * HTTP/1.1'),
    'a lower case version': get(['Host: a'], 'GET /health http/1.1'),
    'a version of two digits': get(['Host: a'], 'GET /health HTTP/1.10'),
    'no protocol at all': '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n',
    'a chunk size that is no number': chunked('zz\r\nab\r\n0\r\n\r\n'),
    'a chunk size with 0x': chunked('0x2\r\nab\r\n0\r\n\r\n'),
    'a chunk size with a sign': chunked('-2\r\nab\r\n0\r\n\r\n'),
    'a chunk size with a space behind': chunked('2 \r\nab\r\n0\r\n\r\n'),
    'an empty chunk size': chunked('\r\nab\r\n0\r\n\r\n'),
    'a chunk that is longer than its size': chunked('2\r\nabc\r\n0\r\n\r\n'),
    'a chunk with bare LF': chunked(`2${LF}ab\r\n0\r\n\r\n`),
    'chunk data with bare LF behind': chunked(`2\r\nab${LF}0\r\n\r\n`),
    'a chunk extension with a control byte': chunked('2;a\x01\r\nab\r\n0\r\n\r\n'),
    'a trailer that frames': chunked('0\r\nContent-Length: 5\r\n\r\n'),
    'a folded trailer': chunked('0\r\nX: 1\r\n 2\r\n\r\n'),
  };
  for (const [name, bytes] of Object.entries(bad))
    test(`${name}: 400 and a close`, () => assertRefused(Buffer.from(bytes, 'latin1'), 400, 'bad_request'));

  const unknown = {
    'a transfer coding that is not chunked': [get(['Host: a', 'Transfer-Encoding: gzip']), 501, 'not_implemented'],
    'a transfer coding before chunked': [get(['Host: a', 'Transfer-Encoding: gzip, chunked']), 501, 'not_implemented'],
    'chunked twice in one line': [get(['Host: a', 'Transfer-Encoding: chunked, chunked']), 501, 'not_implemented'],
    'identity as a transfer coding': [get(['Host: a', 'Transfer-Encoding: identity']), 501, 'not_implemented'],
    'an unknown method': [get(['Host: a'], 'BREW /health HTTP/1.1'), 501, 'not_implemented'],
    'a lower case method': [get(['Host: a'], 'get /health HTTP/1.1'), 501, 'not_implemented'],
    TRACE: [get(['Host: a'], 'TRACE /health HTTP/1.1'), 501, 'not_implemented'],
    CONNECT: [get(['Host: a'], 'CONNECT a:443 HTTP/1.1'), 501, 'not_implemented'],
    'HTTP/2.0': [get(['Host: a'], 'GET /health HTTP/2.0'), 505, 'version_not_supported'],
    'HTTP/1.2': [get(['Host: a'], 'GET /health HTTP/1.2'), 505, 'version_not_supported'],
    'HTTP/0.9': [get(['Host: a'], 'GET /health HTTP/0.9'), 505, 'version_not_supported'],
    'the preface of HTTP/2': ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 505, 'version_not_supported'],
  };
  for (const [name, [bytes, status, code]] of Object.entries(unknown))
    test(`${name}: ${status} and a close`, () => assertRefused(bytes, status, code));

  test('an unknown path is 404, and the connection stays', async () => {
    const raw = await Raw.connect(server);
    for (const target of ['//', '/nothing', '/events/a/b/c/d', `/${'a/'.repeat(30)}`, '/admin/', '/events/CONCERT', '/EVENTS'])
      assertProblem(await raw.write(request('GET', target)).answer(), 404, 'not_found');
    assert.equal((await raw.write(HEALTH).answer()).status, 200);
    raw.destroy();
  });

  test('a method that the path does not have is 405 with Allow', async () => {
    const allow = async (method, target) => {
      const answer = await ask(server, request(method, target));
      assertProblem(answer, 405, 'method_not_allowed');
      return answer.headers.allow.split(', ').sort();
    };
    assert.deepEqual(await allow('POST', '/health'), ['GET', 'HEAD', 'OPTIONS']);
    assert.deepEqual(await allow('DELETE', '/events/CONCERT/1'), ['GET', 'HEAD', 'OPTIONS']);
    assert.deepEqual(await allow('POST', '/admin/events/CONCERT/1'), ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'PUT']);
    assert.deepEqual(await allow('GET', '/admin/events/CONCERT/1/sections/A'), ['OPTIONS', 'PATCH']);
    const options = await ask(server, request('OPTIONS', '/health'));
    assert.equal(options.status, 204);
    assert.deepEqual(options.headers.allow.split(', ').sort(), ['GET', 'HEAD', 'OPTIONS']);
    assert.equal((await ask(server, request('OPTIONS', '*'))).status, 204);
  });

  test('a body that is not declared as JSON is 415', async () => {
    for (const type of ['', 'text/plain', 'application/xml', 'application/jsonp', 'application/json2; charset=utf-8']) {
      const answer = await server.admin('PUT', '/admin/events/TYPE/1', concert(), { headers: { 'content-type': type } });
      assertProblem(answer, 415, 'unsupported_media_type');
    }
    for (const type of ['application/json', 'Application/JSON; charset=utf-8', 'application/json ;x=y'])
      assert.ok((await server.admin('PUT', '/admin/events/TYPE/1', concert(), { headers: { 'content-type': type } })).status < 300);
  });

  test('the answer to a bad request arrives whole though a megabyte of garbage follows it', async () => {
    const garbage = Buffer.alloc(1 << 20, 'garbage\r\n');
    const starts = [
      ['GET /health HTTP/1.1\r\nHost : a\r\n\r\n', 400, 'bad_request'],
      [request('PUT', '/x', { headers: ['Content-Length: 1048576'] }), 413, 'content_too_large'],
      [request('PUT', '/x', { headers: ['Transfer-Encoding: gzip'] }), 501, 'not_implemented'],
      ['', 400, 'bad_request'],
    ];
    for (const [first, status, code] of starts)
      for (let i = 0; i < 5; i++) await assertRefused(Buffer.concat([Buffer.from(first), garbage]), status, code);
  });

  test('requests before a bad one are answered, those behind it are not', async () => {
    const answers = await exchange(server, `${HEALTH}${HEALTH}GET / HTTP/1.1\r\n\r\n${HEALTH}`);
    assert.deepEqual(answers.map((a) => a.status), [200, 200, 400]);
  });
});

describe('every answer', () => {
  test('has an X-Request-Id: the client’s own when it is sane, else a new one', async () => {
    const idOf = async (lines) => (await ask(server, request('GET', '/health', { headers: lines }))).headers['x-request-id'];
    for (const sane of ['abc', 'A-1_b.c', 'x'.repeat(64)]) assert.equal(await idOf([`X-Request-Id: ${sane}`]), sane);
    const seen = new Set();
    for (const odd of ['', 'x'.repeat(65), 'a b', 'a"b', 'a/b', 'é', '<script>'])
      seen.add(await idOf([Buffer.from(`X-Request-Id: ${odd}`).toString('latin1')]));
    for (let i = 0; i < 50; i++) seen.add(await idOf([]));
    assert.equal(seen.size, 57, 'new ids are distinct');
    for (const id of seen) assert.match(id, /^[0-9a-f]{16}$/);
  });

  test('has a Date and says how long it is, errors too', async () => {
    for (const bytes of [HEALTH, request('GET', '/no'), 'BAD\r\n\r\n', request('POST', '/health'), request('OPTIONS', '/health')]) {
      const answer = await ask(server, bytes);
      assert.ok(Math.abs(Date.parse(answer.headers.date) - Date.now()) < 60000, answer.headers.date);
      assert.ok(answer.headers['x-request-id']);
      if (answer.status === 204) assert.equal(answer.headers['content-length'], undefined);
      else assert.equal(Number(answer.headers['content-length']), Buffer.byteLength(answer.text));
    }
  });

  test('that is JSON ends with one line end, and HEAD counts it', async () => {
    const targets = ['/health', '/ready', '/events', '/no', '/openapi.json', '/rankings/soldout', '/events?limit=0'];
    for (const target of targets) {
      const answer = await ask(server, request('GET', target));
      assert.match(answer.text, /[}\]]\n$/, target);
      const head = await server.call('HEAD', target);
      assert.equal(Number(head.headers['content-length']), Number(answer.headers['content-length']), target);
    }
    const put = await ask(server, adminRequest(server, 'PUT', '/admin/events/LINE/1', concert()));
    assert.match(put.text, /}\n$/);
    assert.equal((await ask(server, request('GET', '/metrics'))).text.match(/\n*$/)[0], '\n');
  });
});

// Writes the bytes in two parts on each connection. The first part has arrived on all connections
// before the second is sent, so the worker has served other connections in between.
async function inTwoParts(connections, cuts) {
  const waiting = connections.map((raw, i) => {
    const { bytes, at } = cuts[i];
    raw.write(bytes.subarray(0, at));
    return raw.responses.length + 1;
  });
  for (let i = 0; i < 4; i++) await call(server, 'GET', '/health');
  connections.forEach((raw, i) => raw.write(cuts[i].bytes.subarray(cuts[i].at)));
  return Promise.all(connections.map(async (raw, i) => (await raw.answers(waiting[i])).at(-1)));
}

describe('splits', () => {
  const plain = (answer) => {
    const { version, createdAt, updatedAt, serverTime, instance, ...rest } = answer.json;
    const { date, etag, 'x-request-id': id, 'content-length': length, ...headers } = answer.headers;
    return { status: answer.status, headers, rest };
  };

  test('a request is answered the same wherever TCP cuts it', async () => {
    const body = JSON.stringify(concert());
    const chunkedPut = Buffer.from(
      `PUT /admin/events/SPLIT/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${server.adminKey}\r\nContent-Type: application/json\r\n` +
        `Transfer-Encoding: chunked\r\n\r\n5;x=y\r\n${body.slice(0, 5)}\r\n${(body.length - 5).toString(16)}\r\n${body.slice(5)}\r\n0\r\nX-T: 1\r\n\r\n`,
    );
    await server.admin('PUT', '/admin/events/SPLIT/1', concert());
    const requests = [
      adminRequest(server, 'PUT', '/admin/events/SPLIT/1', body),
      chunkedPut,
      request('GET', '/events/SPLIT/1', { headers: ['X-Request-Id: x'] }),
    ];
    const connections = await Promise.all(Array.from({ length: 40 }, () => Raw.connect(server)));
    let splits = 0;
    for (const bytes of requests) {
      const whole = plain(await ask(server, bytes));
      assert.equal(whole.status, 200);
      for (let from = 1; from < bytes.length; from += connections.length) {
        const cuts = connections.map((_, i) => ({ bytes, at: Math.min(from + i, bytes.length - 1) }));
        for (const answer of await inTwoParts(connections, cuts)) assert.deepEqual(plain(answer), whole);
        splits += cuts.length;
      }
    }
    assert.ok(splits > 600, `${splits} splits`);
    for (const raw of connections) raw.destroy();
  });

  test('a bad request is refused the same wherever TCP cuts it', async () => {
    const requests = [
      'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
      'PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc',
      'GET / HTTP/1.1\r\nX: 1\r\n 2\r\n\r\n',
    ].map((text) => Buffer.from(text));
    for (const bytes of requests) {
      const cuts = Array.from({ length: bytes.length - 1 }, (_, i) => ({ bytes, at: i + 1 }));
      const connections = await Promise.all(cuts.map(() => Raw.connect(server)));
      for (const answer of await inTwoParts(connections, cuts)) assertProblem(answer, 400, 'bad_request');
      for (const raw of connections) {
        assert.equal((await raw.toEnd()).length, 1);
        raw.destroy();
      }
    }
  });

  test('byte by byte: pipelined requests come out as they went in', async () => {
    const bytes = Buffer.concat([
      request('GET', '/events/CONCERT/%31'),
      adminRequest(server, 'PUT', '/admin/events/BYTES/1', concert()),
      request('GET', '/events/BYTES/1'),
      request('GET', '/nothing'),
    ]);
    const raw = await Raw.connect(server);
    for (const byte of bytes) {
      raw.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.deepEqual((await raw.answers(4)).map((a) => a.status), [200, 201, 200, 404]);
    raw.destroy();
  });
});

describe('deadlines', () => {
  let hasty;
  before(async () => {
    hasty = await start({ args: ['headers', 'body', 'idle'].flatMap((name) => [`--net-${name}-timeout-ms`, '300']) });
  });
  after(() => hasty.stop());

  // Sends the next byte when the last one was sent, as long as the server accepts any.
  const drip = async (raw, bytes) => {
    for (const byte of bytes) {
      if (raw.ended || raw.closed) return;
      raw.write(Buffer.from([byte]));
      await until('a pause between two bytes', () => raw.ended || raw.closed || raw.socket.writableLength === 0);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };

  test('headers that do not arrive in time: 408 and a close, however busy the client looks', async () => {
    for (const send of [(raw) => raw.write('GET /health HT'), (raw) => drip(raw, request('GET', '/health', { headers: [`X: ${'a'.repeat(500)}`] }))]) {
      const before = await hasty.metric('admitone_timeouts_total{wait="headers"}');
      const raw = await Raw.connect(hasty);
      const began = performance.now();
      const sending = send(raw);
      const [answer] = await raw.toEnd();
      assertProblem(answer, 408, 'request_timeout');
      assert.equal(answer.headers.connection, 'close');
      assert.ok(performance.now() - began >= 290, 'not too early');
      assert.equal(await hasty.metric('admitone_timeouts_total{wait="headers"}'), before + 1);
      await sending;
      raw.destroy();
    }
  });

  test('a body that does not arrive in time: 408 and a close, however busy the client looks', async () => {
    const head = request('PUT', '/admin/events/SLOW/1', { headers: ['Content-Length: 1000'] });
    const chunked = request('PUT', '/admin/events/SLOW/1', { headers: ['Transfer-Encoding: chunked'] });
    for (const send of [(raw) => raw.write(head), (raw) => drip(raw.write(head), Buffer.alloc(1000)), (raw) => raw.write(`${chunked}5\r\nab`)]) {
      const before = await hasty.metric('admitone_timeouts_total{wait="body"}');
      const raw = await Raw.connect(hasty);
      const began = performance.now();
      const sending = send(raw);
      const [answer] = await raw.toEnd();
      assertProblem(answer, 408, 'request_timeout');
      assert.ok(performance.now() - began >= 290, 'not too early');
      assert.equal(await hasty.metric('admitone_timeouts_total{wait="body"}'), before + 1);
      await sending;
      raw.destroy();
    }
  });

  test('an idle connection is closed without a word, one that never spoke too', async () => {
    const silent = await Raw.connect(hasty);
    const idle = await Raw.connect(hasty);
    const began = performance.now(); // before the request: the server may send the answer long before it is read here
    await idle.write(HEALTH).answer();
    assert.equal((await idle.toEnd()).length, 1);
    assert.ok(performance.now() - began >= 290, 'not too early');
    assert.equal((await silent.toEnd()).length, 0);
    assert.ok((await hasty.metric('admitone_timeouts_total{wait="idle"}')) >= 1);
    idle.destroy();
    silent.destroy();
  });

  describe('of connections that are opened in advance', () => {
    const MAX = 8;
    let patient;
    before(async () => {
      patient = await start({ args: ['--net-headers-timeout-ms', '300', '--net-max-connections', String(MAX)] });
    });
    after(() => patient.stop());

    test('the first byte may come long after the time that headers have', async () => {
      const silent = await Promise.all([1, 2, 3].map(() => Raw.connect(patient)));
      // Each of these has used up the time of headers, and all of them began after the silent ones.
      for (let i = 0; i < 3; i++) {
        const slow = await Raw.connect(patient);
        assertProblem((await slow.write('GET /health HT').toEnd())[0], 408, 'request_timeout');
        slow.destroy();
      }
      for (const raw of silent) {
        assert.equal((await raw.write(HEALTH).answer()).status, 200);
        raw.destroy();
      }
    });

    test('the time of headers applies to them while connections are scarce', async () => {
      const silent = await Promise.all(Array.from({ length: MAX }, () => Raw.connect(patient)));
      await until('some are closed', () => silent.some((raw) => raw.ended));
      await until('others are served', async () => (await ask(patient, HEALTH)).status === 200);
      for (const raw of silent) raw.destroy();
    });
  });
});

describe('slow readers', () => {
  const WRITE_MS = 500;
  let strict;
  before(async () => {
    strict = await start({
      args: ['--net-write-timeout-ms', String(WRITE_MS)],
      env: { ASAN_OPTIONS: 'quarantine_size_mb=8' },
    });
    await strict.admin('PUT', '/admin/events/BIG/1', {
      title: 'Many sections',
      sections: Array.from({ length: 200 }, (_, i) => ({ id: `S${i}`, name: `${i} `.repeat(20).trim(), capacity: 10 })),
    });
    for (let i = 0; i < 3; i++)
      await strict.admin('PUT', '/admin/events/FILL/1', `${JSON.stringify(concert())}${' '.repeat(60000)}`);
  });
  after(() => strict.stop());

  const dropped = () => strict.metric('admitone_timeouts_total{wait="write"}');
  // Asks for far more than any socket buffer takes, and does not read.
  async function glut(bytes, times) {
    const raw = await Raw.connect(strict, { sink: true });
    raw.socket.pause();
    raw.write(Buffer.concat(Array.from({ length: times }, () => bytes)));
    return raw;
  }

  const kinds = {
    'made at once': () => [request('GET', '/events/BIG/1')],
    'made later, by another thread': (s) => [adminRequest(s, 'GET', '/admin/audit?limit=1000')],
    'made both ways in turn': (s) => [request('GET', '/events/BIG/1'), adminRequest(s, 'GET', '/admin/audit?limit=1000')],
  };
  for (const [kind, requests] of Object.entries(kinds)) {
    test(`a client that does not read answers that are ${kind} is dropped, and costs little memory`, async () => {
      const bytes = Buffer.concat(requests(strict));
      const times = Math.ceil((12 << 20) / (await sizeOf(requests(strict))));
      const before = await dropped();
      const memory = strict.rssBytes();
      const readers = await Promise.all(Array.from({ length: 10 }, () => glut(bytes, times)));
      let peak = 0;
      await until('all are dropped', async () => {
        peak = Math.max(peak, strict.rssBytes());
        return (await dropped()) >= before + readers.length;
      });
      await until('their connections are gone', async () => (await strict.metric('admitone_connections')) === 1);
      // 120 MiB were asked for.
      assert.ok(peak - memory < 32 << 20, `grew by ${(peak - memory) >> 20} MiB`);
      for (const raw of readers) raw.destroy();
    });

    test(`a client that reads answers that are ${kind} slowly but steadily gets them all`, async () => {
      const size = await sizeOf(requests(strict));
      const times = Math.ceil((24 << 20) / size);
      const raw = await glut(Buffer.concat(requests(strict)), times);
      const began = performance.now();
      let allowance = 0;
      raw.socket.on('data', (bytes) => {
        allowance -= bytes.length;
        if (allowance <= 0) raw.socket.pause();
      });
      // 16 MiB/s: takes longer than the deadline, and the server is always ahead of the reader.
      const tick = setInterval(() => {
        allowance = Math.min(allowance + (1 << 20), 1 << 20);
        if (allowance > 0) raw.socket.resume();
      }, 60);
      try {
        await until('all is read', () => raw.received >= size * times || raw.closed);
      } finally {
        clearInterval(tick);
      }
      assert.equal(raw.received, size * times);
      assert.ok(performance.now() - began > 2 * WRITE_MS, 'slower than the deadline');
      raw.destroy();
    });
  }

  // The bytes of the answers to these.
  async function sizeOf(requests) {
    const raw = await Raw.connect(strict);
    const answers = await raw.write(Buffer.concat(requests)).answers(requests.length);
    raw.destroy();
    for (const answer of answers) assert.equal(answer.status, 200);
    return answers.reduce((sum, answer) => sum + answer.bytes, 0);
  }
});

describe('caps', () => {
  test('beyond --net-max-connections: 503 with Retry-After; when one leaves, the next comes in', async () => {
    const small = await start({ args: ['--net-max-connections', '5'] });
    try {
      const inside = await Promise.all(Array.from({ length: 5 }, () => Raw.connect(small)));
      for (const raw of inside) assert.equal((await raw.write(HEALTH).answer()).status, 200);
      for (let i = 0; i < 3; i++) {
        const [refused] = await exchange(small, '');
        assertProblem(refused, 503, 'overloaded');
        assert.match(refused.headers['retry-after'], /^\d+$/);
        assert.equal(refused.headers.connection, 'close');
      }
      for (const raw of inside) assert.equal((await raw.write(HEALTH).answer()).status, 200);
      inside.pop().destroy();
      await until('a new one is served', async () => (await ask(small, HEALTH)).status === 200);
      const { text } = await inside[0].write(request('GET', '/metrics')).answer();
      assert.ok(metricOf(text, 'admitone_connections_refused_total{cap="total"}') >= 3);
      for (const raw of inside) raw.destroy();
    } finally {
      await small.stop();
    }
  });

  test('a flood beyond the cap and the limit on open files leaves those inside served', async () => {
    const small = await start({ args: ['--net-max-connections', '5'], wrap: ['prlimit', '--nofile=300:300'] });
    try {
      const inside = await Raw.connect(small);
      assert.equal((await inside.write(HEALTH).answer()).status, 200);
      const flood = await Promise.all(Array.from({ length: 800 }, () => Raw.connect(small)));
      assert.equal((await inside.write(HEALTH).answer()).status, 200);
      for (const raw of flood) raw.destroy();
      await until('a new one is served', async () => {
        const answer = await ask(small, HEALTH).catch((error) => ({ status: error.code }));
        return answer.status === 200;
      });
      inside.destroy();
    } finally {
      await small.stop();
    }
  });

  // Loopback addresses are exempt, so this needs another address, in a separate network namespace.
  async function perAddress(args) {
    const network = await hold(['--net'], 'ip link set lo up && ip addr add 192.0.2.1/32 dev lo && ip addr add 192.0.2.2/32 dev lo');
    const capped = await start({
      wrap: network.enter,
      listen: '192.0.2.1:0',
      args: ['--users-auth', 'trusted', '--net-max-connections-per-address', '3', ...args],
    });
    try {
      const client = path.join(path.dirname(fileURLToPath(import.meta.url)), 'support/per_address_client.mjs');
      const run = launch([...network.enter, process.execPath, client, capped.host, String(capped.port)]);
      const { code } = await run.ended;
      assert.equal(code, 0, run.stderr);
      return JSON.parse(run.stdout);
    } finally {
      await capped.stop();
      await network.release();
    }
  }

  test('one address may have so many connections; others are not concerned', async () => {
    const seen = await perAddress([]);
    assert.deepEqual(seen.inside, [200, 200, 200]);
    assertProblem(seen.beyond, 429, 'too_many_connections');
    assert.match(seen.beyond.headers['retry-after'], /^\d+$/);
    assert.equal(seen.other, 200);
    assert.equal(seen.afterOneLeft, 200);
  });

  test('a trusted proxy may have any number of connections', async () => {
    const seen = await perAddress(['--net-trusted-proxies', '192.0.2.0/31']);
    assert.deepEqual(seen.inside, [200, 200, 200]);
    assert.equal(seen.beyond.status, 200);
  });
});

test('the suite’s own reader of answers tells whole from half', () => {
  const one = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab';
  assert.equal(parseResponses(Buffer.from(one + one)).responses.length, 2);
  assert.equal(parseResponses(Buffer.from(one.slice(0, -1))).responses.length, 0);
  assert.throws(() => parseResponses(Buffer.from('HTTP/1.1 200 OK\r\n\r\n')));
});
