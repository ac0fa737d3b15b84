// Compares the strict parser with nginx on the same bytes: every request that nginx refuses is refused
// here too. More are refused on purpose; a table in the diagnostics lists them.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { startNginx } from './support/nginx.mjs';
import { Raw, parseResponses } from './support/raw.mjs';
import { start, test, until } from './support/server.mjs';

let server;
let nginx;

before(async () => {
  server = await start({ args: ['--net-headers-timeout-ms', '10000', '--net-body-timeout-ms', '10000'] });
  // The same limits as ours, and an answer for every path.
  nginx = await startNginx(`
    client_header_buffer_size 8k; large_client_header_buffers 2 8k; client_max_body_size 64k;
    client_header_timeout 10s; client_body_timeout 10s; lingering_timeout 10s;
    location / { return 200 "ok"; }`);
});
after(async () => {
  await nginx?.stop();
  await server.stop();
});

const GET = 'GET /health HTTP/1.1';
const head = (lines, line = GET) => `${[line, ...lines].join('\r\n')}\r\n\r\n`;
const get = (lines, line = GET) => head(['Host: a', ...lines], line);
const chunked = (body) => `${get(['Transfer-Encoding: chunked'])}${body}`;

// Every request is followed by a plain one where the framing allows it, so that a difference in
// framing shows as a difference in the number of answers.
const NEXT = get([]);

const cases = {
  'plain': get([]),
  'HTTP/1.0': head([], 'GET /health HTTP/1.0'),
  'HTTP/1.0, keep-alive': get(['Connection: keep-alive'], 'GET /health HTTP/1.0'),
  'Connection: close': get(['Connection: close']),
  'header without a space': head(['Host:a']),
  'header with white space around its value': head(['Host: \t a \t ']),
  'empty header value': get(['X:']),
  'header with bytes beyond ASCII': get(['X: \xe9']),
  'header name of odd tokens': get(["X!#$%&'*+.^`|~: 1"]),
  'query': get([], 'GET /health?a=b&c=%20 HTTP/1.1'),
  'query with ?': get([], 'GET /health?a=?b HTTP/1.1'),
  'escaped path': get([], 'GET /%68ealth HTTP/1.1'),
  'absolute form': get([], 'GET http://a/health HTTP/1.1'),
  'absolute form without a path': get([], 'GET http://a HTTP/1.1'),
  'HEAD': get([], 'HEAD /health HTTP/1.1'),
  'a leading empty line': `\r\n${get([])}`,
  'Content-Length 0': get(['Content-Length: 0']),
  'a body on GET': `${get(['Content-Length: 2'])}{}`,
  'Content-Length with leading zeros': `${get(['Content-Length: 0002'])}{}`,
  'chunked': chunked('2\r\nab\r\n0\r\n\r\n'),
  'chunked, capital hex': chunked('A\r\n0123456789\r\n0\r\n\r\n'),
  'chunked with an extension': chunked('2;a=b\r\nab\r\n0\r\n\r\n'),
  'chunked with trailers': chunked('2\r\nab\r\n0\r\nX: 1\r\n\r\n'),
  'chunked spelled in capitals': `${get(['Transfer-Encoding: CHUNKED'])}0\r\n\r\n`,
  'OPTIONS *': get([], 'OPTIONS * HTTP/1.1'),

  'no Host': head([]),
  'two Hosts': get(['Host: b']),
  'Host with a slash': head(['Host: a/b']),
  'Host with a space': head(['Host: a b']),
  'Host with NUL': head(['Host: a\0b']),
  'empty Host': head(['Host:']),
  'two Content-Length': `${get(['Content-Length: 2', 'Content-Length: 2'])}{}`,
  'negative Content-Length': get(['Content-Length: -1']),
  'Content-Length +2': `${get(['Content-Length: +2'])}{}`,
  'Content-Length 2, 2': `${get(['Content-Length: 2, 2'])}{}`,
  'Content-Length 0x2': `${get(['Content-Length: 0x2'])}{}`,
  'Content-Length 2 3': `${get(['Content-Length: 2 3'])}{}`,
  'Content-Length too large for 64 bits': get(['Content-Length: 99999999999999999999']),
  'Content-Length and Transfer-Encoding': `${get(['Content-Length: 5', 'Transfer-Encoding: chunked'])}0\r\n\r\n`,
  'Transfer-Encoding in HTTP/1.0': `${get(['Transfer-Encoding: chunked'], 'GET /health HTTP/1.0')}0\r\n\r\n`,
  'Transfer-Encoding: gzip': get(['Transfer-Encoding: gzip']),
  'Transfer-Encoding: gzip, chunked': `${get(['Transfer-Encoding: gzip, chunked'])}0\r\n\r\n`,
  'Transfer-Encoding: identity': get(['Transfer-Encoding: identity']),
  'two Transfer-Encoding': `${get(['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'])}0\r\n\r\n`,
  'obs-fold': get(['X: 1', ' 2']),
  'obs-fold with a tab': get(['X: 1', '\t2']),
  'space before the first header': head([' Host: a']),
  'space before the colon': get(['X : 1']),
  'header without a colon': get(['nothing']),
  'header without a name': get([': 1']),
  'header name with a space': get(['X Y: 1']),
  'header name with NUL': get(['X\0: 1']),
  'header value with NUL': get(['X: \0']),
  'header value with a control byte': get(['X: \x01']),
  'bare LF everywhere': 'GET /health HTTP/1.1\nHost: a\n\n',
  'bare LF behind a header': 'GET /health HTTP/1.1\r\nHost: a\n\r\n',
  'bare CR in a header': get(['X: 1\r2']),
  'bare CR in the request line': get([], 'GET /health\rHTTP/1.1'),
  'CR CR LF': 'GET /health HTTP/1.1\r\nHost: a\r\r\n\r\n',
  'lower case method': get([], 'get /health HTTP/1.1'),
  'unknown method': get([], 'BREW /health HTTP/1.1'),
  'TRACE': get([], 'TRACE /health HTTP/1.1'),
  'CONNECT': get([], 'CONNECT a:443 HTTP/1.1'),
  'lower case version': get([], 'GET /health http/1.1'),
  'HTTP/2.0': get([], 'GET /health HTTP/2.0'),
  'HTTP/1.2': get([], 'GET /health HTTP/1.2'),
  'HTTP/1.': get([], 'GET /health HTTP/1.'),
  'HTTP/01.1': get([], 'GET /health HTTP/01.1'),
  'HTTP/0.9 with its version': get([], 'GET /health HTTP/0.9'),
  'HTTP/0.9 without one': 'GET /health\r\n',
  'two spaces before the version': get([], 'GET /health  HTTP/1.1'),
  'two spaces behind the method': get([], 'GET  /health HTTP/1.1'),
  'space behind the version': get([], 'GET /health HTTP/1.1 '),
  'space before the method': get([], ' GET /health HTTP/1.1'),
  'tab in the request line': get([], 'GET\t/health HTTP/1.1'),
  'path without /': get([], 'GET health HTTP/1.1'),
  'path with a space': get([], 'GET /hea lth HTTP/1.1'),
  'path with NUL': get([], 'GET /health\0 HTTP/1.1'),
  'path with %00': get([], 'GET /health%00 HTTP/1.1'),
  'path with a bad escape': get([], 'GET /health%zz HTTP/1.1'),
  'path with half an escape': get([], 'GET /health%2 HTTP/1.1'),
  'path above the root': get([], 'GET /../health HTTP/1.1'),
  'path above the root, escaped': get([], 'GET /%2e%2e/%2e%2e/health HTTP/1.1'),
  'path with a control byte': get([], 'GET /health\x01 HTTP/1.1'),
  'path with a fragment': get([], 'GET /health#x HTTP/1.1'),
  'chunk size that is no number': chunked('x\r\nab\r\n0\r\n\r\n'),
  'chunk size with 0x': chunked('0x2\r\nab\r\n0\r\n\r\n'),
  'chunk size with a sign': chunked('+2\r\nab\r\n0\r\n\r\n'),
  'chunk size beyond 64 bits': chunked('fffffffffffffffff\r\nab\r\n0\r\n\r\n'),
  'chunk size beyond the limit': chunked('10001\r\nab'),
  'chunk longer than its size': chunked('2\r\nabc\r\n0\r\n\r\n'),
  'chunk with bare LF': chunked('2\nab\n0\n\n'),
  'chunk size with a space': chunked('2 \r\nab\r\n0\r\n\r\n'),
  'Content-Length beyond the limit': get(['Content-Length: 65537']),
  'request line beyond the limit': get([], `GET /${'a'.repeat(8200)} HTTP/1.1`),
  'one header beyond the limit': get([`X: ${'a'.repeat(16400)}`]),
  'garbage': '\x16\x03\x01\x02\x00\x01\r\n\r\n',
  'preface of HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
};

// Requests that nginx refuses and admitone accepts, each with its reason.
const WE_TAKE = {
  'header with white space around its value': 'a tab is white space there too (RFC 9110, 5.6.3); nginx knows the space only',
  'OPTIONS *': 'the asterisk form is asked for by RFC 9112, 3.2.4; nginx does not have it',
};

// Paths that exist in nginx and not here: the router refuses them, not the parser.
const ROUTED = new Set(['absolute form without a path']);

// All that the peer answers, up to its close.
async function tell(peer, text) {
  const raw = await Raw.connect(peer, { sink: true });
  const parts = [];
  raw.socket.on('data', (bytes) => parts.push(bytes));
  raw.write(Buffer.from(text, 'latin1')).end();
  await until('the peer closes', () => raw.ended || raw.closed);
  raw.destroy();
  return Buffer.concat(parts).toString('latin1');
}

// "200 200" for two answers; "HTTP/0.9" for a body without a head; "-" for nothing but a close.
function verdict(text, isHead) {
  if (text === '') return '-';
  if (!text.startsWith('HTTP/')) return 'HTTP/0.9';
  const heads = isHead ? [0] : [];
  const { responses } = parseResponses(Buffer.from(text, 'latin1'), heads);
  return responses.map((one) => one.status).join(' ');
}

const refused = (statuses) => statuses === '-' || Number(statuses.split(' ')[0]) >= 400;

test('whatever nginx refuses, we refuse; whatever both take is framed the same way', async (t) => {
  const rows = [];
  const wrong = [];
  let stricter = 0;
  let same = 0;
  const judged = await Promise.all(
    Object.entries(cases).map(async ([name, text]) => {
      const [theirs, ours] = await Promise.all([nginx, server].map((peer) => tell(peer, text + NEXT)));
      const isHead = text.startsWith('HEAD');
      return [name, verdict(theirs, isHead), verdict(ours, isHead)];
    }),
  );
  for (const [name, theirs, ours] of judged) {
    rows.push(`${name.padEnd(44)} nginx ${theirs.padEnd(9)} admitone ${ours}`);
    if (ROUTED.has(name)) continue;
    if (refused(theirs)) {
      if (refused(ours)) same++;
      else if (name in WE_TAKE) t.diagnostic(`we take '${name}': ${WE_TAKE[name]}`);
      else wrong.push(`${name}: nginx ${theirs}, admitone ${ours}`);
    } else if (refused(ours)) {
      stricter++;
    } else if (ours !== theirs) {
      wrong.push(`${name}: nginx ${theirs}, admitone ${ours}`);
    } else {
      same++;
    }
  }
  for (const row of rows) t.diagnostic(row);
  t.diagnostic(`${rows.length} requests: ${same} judged alike, ${stricter} refused by us alone`);
  assert.deepEqual(wrong, []);
  for (const name of Object.keys(WE_TAKE)) assert.ok(name in cases, `${name} is no longer tried`);
  assert.ok(rows.length >= 60 && same >= 40 && stricter >= 10, `${rows.length} ${same} ${stricter}`);
});

test('nginx saw real requests: it takes a plain one and refuses one without Host', async () => {
  assert.equal(verdict(await tell(nginx, cases.plain + NEXT)), '200 200');
  assert.equal(verdict(await tell(nginx, cases['no Host'])), '400');
});
