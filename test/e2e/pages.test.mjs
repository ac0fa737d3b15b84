// The pages as a browser loads them: headers, languages, encodings, conditional requests, settings;
// and the view without JavaScript, by plain HTTP. The files of web/ themselves: their texts and sizes.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';
import { after, before, describe } from 'node:test';
import { WaitingRoom, bearer } from './support/queue.mjs';
import { call, concert, isCluster, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';

const ROOT = new URL('../..', import.meta.url).pathname;
const WEB = path.join(ROOT, 'web');
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: https:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const PAGES = ['/', '/e/CONCERT/1', '/admin'];

const read = (name) => fs.readFileSync(path.join(WEB, name), 'utf8');
const webFiles = () => fs.readdirSync(WEB, { recursive: true }).map(String).filter((name) => fs.statSync(path.join(WEB, name)).isFile());

// What <script type="application/json" id="…"> contains.
const jsonOf = (page, id) => JSON.parse(new RegExp(`id="${id}">([^<]*)</script>`).exec(page)[1]);
const unescaped = (html) => html.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&');

// The decoded body; `call` reads text.
async function getBytes(server, target, headers = {}) {
  const answer = await fetch(server.url + target, { headers: { 'accept-encoding': 'identity', ...headers } });
  return { status: answer.status, headers: Object.fromEntries(answer.headers), text: await answer.text() };
}

function assertNoInline(html, what) {
  assert.doesNotMatch(html, /\sstyle\s*=/i, `${what}: a style attribute`);
  assert.doesNotMatch(html, /\son[a-z]+\s*=/i, `${what}: an event attribute`);
  assert.doesNotMatch(html, /<style/i, `${what}: a style element`);
  assert.doesNotMatch(html, /javascript:/i, `${what}: a javascript URL`);
  for (const [tag] of html.matchAll(/<script\b[^>]*>/gi))
    assert.match(tag, / src="|type="application\/json"/, `${what}: an inline script`);
  for (const [, url] of html.matchAll(/<(?!a )[^>]*\b(?:src|href)="([^"]*)"/g))
    assert.match(url, /^(\/(?!\/)|#|data:)/, `${what}: ${url} is of another site`);
}

function assertPageHeaders(headers, what) {
  assert.equal(headers['content-type'], 'text/html; charset=utf-8', what);
  assert.equal(headers['content-security-policy'], CSP, what);
  assert.equal(headers['x-content-type-options'], 'nosniff', what);
  assert.equal(headers['referrer-policy'], 'same-origin', what);
  assert.equal(headers.vary, 'Accept-Encoding, Accept-Language, Cookie', what);
}

describe('the pages', () => {
  let server;
  before(async () => {
    server = await start();
    assert.equal((await server.admin('PUT', '/admin/events/CONCERT/1', concert({ title: 'Tour' }))).status, 201);
    const later = concert({ opensAt: '2099-01-01T00:00:00Z', state: 'DRAFT' });
    assert.equal((await server.admin('PUT', '/admin/events/CONCERT/draft', later)).status, 201);
  });
  after(() => server.stop());
  const get = (target, headers = {}) => server.call('GET', target, { headers });

  test('have the headers that keep foreign scripts out, and none inline', async () => {
    for (const page of PAGES) {
      const { status, headers, text } = await get(page);
      assert.equal(status, 200, page);
      assertPageHeaders(headers, page);
      assert.equal(headers['cache-control'], 'no-cache', page);
      assert.equal(headers['content-length'], String(Buffer.byteLength(text)), page);
      assertNoInline(text, page);
      assert.doesNotMatch(text, /\{\{|\}\}/, `${page}: a marker was left`);
      const head = await server.call('HEAD', page);
      assert.equal(head.text, '');
      for (const name of ['content-length', 'etag', 'content-security-policy']) assert.equal(head.headers[name], headers[name], `${page} ${name}`);
    }
    for (const method of ['PUT', 'DELETE', 'POST']) assert.equal((await server.call(method, '/')).status, 405);
  });

  test('are answered with 304 to a browser that has them, for each language and encoding', async () => {
    const etags = new Set();
    for (const page of PAGES)
      for (const language of ['en', 'ko'])
        for (const encoding of ['gzip', 'identity']) {
          const wanted = { 'accept-language': language, 'accept-encoding': encoding };
          const first = await get(page, wanted);
          const { etag } = first.headers;
          assert.match(etag, /^"[^"]+"$/);
          assert.equal(first.headers['content-encoding'], encoding === 'gzip' ? 'gzip' : undefined);
          etags.add(etag);
          for (const sent of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
            const again = await get(page, { ...wanted, 'if-none-match': sent });
            assert.deepEqual([again.status, again.text], [304, ''], sent);
            assert.equal(again.headers.etag, etag);
            assert.equal(again.headers['content-length'], undefined);
          }
          assert.equal((await get(page, { ...wanted, 'if-none-match': '"other"' })).status, 200);
        }
    assert.equal(etags.size, PAGES.length * 4, 'each has its own ETag');
  });

  test('are compressed for clients that accept it, as much as they accept it', async () => {
    for (const target of [...PAGES, '/assets/app.css', '/e/CONCERT/1?rd=%2Fx']) {
      const plain = await getBytes(server, target);
      assert.equal(plain.headers['content-encoding'], undefined, target);
      const answer = await fetch(server.url + target, { headers: { 'accept-encoding': 'br, gzip;q=0.5' } });
      assert.equal(answer.headers.get('content-encoding'), 'gzip', target);
      assert.match(answer.headers.get('vary'), /Accept-Encoding/);
      assert.equal(await answer.text(), plain.text, target);
      const refused = await getBytes(server, target, { 'accept-encoding': 'gzip;q=0' });
      assert.equal(refused.headers['content-encoding'], undefined, target);
      const less = await getBytes(server, target, { 'accept-encoding': 'gzip;q=0.5, identity' });
      assert.equal(less.headers['content-encoding'], undefined, target);
    }
  });

  test('are in the language of the query, of the cookie, or of the browser', async () => {
    const inLanguage = async (target, headers) => {
      const { text, headers: got } = await get(target, headers);
      const language = /<html lang="([^"]+)"/.exec(text)[1];
      assert.equal(got['content-language'], language);
      return language;
    };
    for (const page of [...PAGES, '/e/CONCERT/1?view=plain', '/e/CONCERT/none', '/e/CONCERT/1?rd=/x']) {
      assert.equal(await inLanguage(page), 'en', page);
      assert.equal(await inLanguage(page, { 'accept-language': 'ko-KR,ko;q=0.9,en;q=0.8' }), 'ko', page);
      assert.equal(await inLanguage(page, { 'accept-language': 'de, ko;q=0' }), 'en', page);
      assert.equal(await inLanguage(page, { cookie: 'a=b; admitone_lang=ko' }), 'ko', page);
      assert.equal(await inLanguage(page, { cookie: 'admitone_lang=xx', 'accept-language': 'ko' }), 'ko', page);
      const asked = `${page}${page.includes('?') ? '&' : '?'}lang=en`;
      assert.equal(await inLanguage(asked, { cookie: 'admitone_lang=ko', 'accept-language': 'ko' }), 'en', page);
    }
    const chosen = await get('/?lang=ko');
    assert.deepEqual(chosen.headers['set-cookie'], ['admitone_lang=ko; Path=/; Max-Age=31536000; SameSite=Lax; HttpOnly']);
    for (const target of ['/', '/?lang=xx', '/?lang=', '/?lang=%ff']) assert.equal((await get(target)).headers['set-cookie'], undefined, target);
  });

  test('have the texts of their own keys, and the languages that there are', async () => {
    const prefixes = { '/': ['common.', 'home.'], '/e/CONCERT/1': ['common.', 'event.', 'seats.'], '/admin': ['common.', 'admin.'] };
    const all = JSON.parse(read('lang/ko.json'));
    for (const [page, wanted] of Object.entries(prefixes)) {
      const { text } = await get(page, { 'accept-language': 'ko' });
      const texts = jsonOf(text, 'texts');
      const expected = Object.keys(all).filter((key) => wanted.some((prefix) => key.startsWith(prefix)));
      assert.deepEqual(Object.keys(texts).sort(), [...expected, 'page.accent', 'page.logo', 'page.name'].sort());
      for (const key of expected) assert.equal(texts[key], all[key]);
      assert.deepEqual(jsonOf(text, 'languages'), [{ code: 'en', name: 'English' }, { code: 'ko', name: '한국어' }]);
    }
  });

  test('load assets that a browser may keep for a year', async () => {
    const urls = new Set();
    for (const page of PAGES) for (const [url] of (await get(page)).text.matchAll(/\/assets\/[^"]+/g)) urls.add(url);
    assert.ok(urls.size >= 5, [...urls].join(' '));
    const types = { css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8', svg: 'image/svg+xml' };
    for (const url of urls) {
      const { status, headers } = await get(url);
      assert.equal(status, 200, url);
      assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable', url);
      assert.equal(headers['content-type'], types[/\.(\w+)\?v=/.exec(url)[1]], url);
      assert.equal(headers['x-content-type-options'], 'nosniff', url);
      assert.equal((await get(url, { 'if-none-match': headers.etag })).status, 304, url);
      for (const other of [url.split('?')[0], url.replace(/v=.*/, 'v=0')])
        assert.equal((await get(other)).headers['cache-control'], 'no-cache', other);
    }
    const common = read('common.js');
    const script = await get('/assets/event.js');
    assert.equal(script.text, `${common}\n${read('event.js')}`);
    for (const name of ['none.js', 'common.js', 'event.html', 'lang/en.json', 'lang%2Fen.json', '..%2Fweb%2Fapp.css', 'app.css/', ''])
      assert.equal((await get(`/assets/${name}`)).status, 404, name);
  });

  test('of an event that there is not, or that is a draft, say so with 404 as a page', async () => {
    for (const name of ['CONCERT/none', 'CONCERT/draft', 'a%20b/%3Cscript%3E'])
      for (const view of ['', '?view=plain']) {
        const { status, headers, text } = await get(`/e/${name}${view}`);
        assert.equal(status, 404, name);
        assertPageHeaders(headers, name);
        assertNoInline(text, name);
        assert.equal(headers.etag, undefined);
        assert.match(text, view === '' ? /id="texts"/ : /There is no such event\./);
      }
  });

  test('lead a browser without JavaScript to the plain view, with the URL to come back to', async () => {
    const refresh = (text) => unescaped(/<noscript>\s*<meta http-equiv="refresh" content="([^"]*)">/.exec(text)[1]);
    assert.match(refresh((await get('/e/CONCERT/1')).text), /^0; ?url=\?view=plain$/);
    const odd = "?a=1&rd=%2Fshop%3Fa%3D1%26b%22&x='";
    assert.match(refresh((await get(`/e/CONCERT/1${odd}`)).text), /^0; ?url=\?view=plain&rd=%2Fshop%3Fa%3D1%26b%22$/);
    const quoted = (await get(`/e/CONCERT/1?rd='&amp;`)).text;
    assert.match(refresh(quoted), /^0; ?url=\?view=plain&rd='$/);
    assert.doesNotMatch(quoted, /rd='/);
  });

  test('the gate sends a browser there with the page that it asked for', async () => {
    const gate = async (headers) => (await get('/gate/CONCERT/1', headers)).headers.location;
    assert.equal(await gate({}), '/e/CONCERT/1');
    assert.equal(await gate({ 'x-original-uri': '/tickets/7?a=1&b="ü"' }), '/e/CONCERT/1?rd=/tickets/7%3Fa%3D1%26b%3D%22%FC%22');
    assert.equal(await gate({ 'x-forwarded-uri': '/x' }), '/e/CONCERT/1?rd=/x');
    for (const other of ['https://evil.example/', 'x', `/${'x'.repeat(3000)}`]) assert.equal(await gate({ 'x-original-uri': other }), '/e/CONCERT/1', other.slice(0, 30));
  });
});

describe('the settings of the pages', () => {
  let folder;
  before(() => (folder = tempFolder()));
  after(() => removeFolder(folder));
  const write = (name, text) => {
    fs.mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    fs.writeFileSync(path.join(folder, name), text);
  };
  const refused = (args) => {
    const { status, stderr } = run(['serve', '--listen', '127.0.0.1:0', '--data', path.join(folder, 'data'), ...args]);
    assert.notEqual(status, 0, args.join(' '));
    return stderr;
  };

  test('name, accent colour, logo and texts of the operator are shown as text, in a new language too', async () => {
    const evil = '</script><script>alert(1)</script>"\'{{texts}}';
    write('texts/de.json', JSON.stringify({ 'common.languageName': 'Deutsch', 'plain.enter': evil, 'event.title': evil }));
    write('texts/ko.json', JSON.stringify({ 'plain.enter': '들어가기' }));
    const args = ['--page-name', 'A & <b>"', '--page-accent', '#c2185b', '--page-logo', 'https://shop.example/logo.svg', '--page-language', 'de', '--page-texts', path.join(folder, 'texts')];
    const server = await start({ args });
    try {
      assert.equal((await server.admin('PUT', '/admin/events/CONCERT/1', concert({ title: '<script>&"' }))).status, 201);
      const { text } = await server.call('GET', '/e/CONCERT/1');
      const texts = jsonOf(text, 'texts');
      assert.deepEqual([texts['page.name'], texts['page.accent'], texts['page.logo']], ['A & <b>"', '#c2185b', 'https://shop.example/logo.svg']);
      assert.equal(texts['event.title'], evil);
      assert.match(text, /<html lang="de"/);
      assertNoInline(text, 'event');
      assert.ok(jsonOf(text, 'languages').some(({ code, name }) => code === 'de' && name === 'Deutsch'));
      const english = JSON.parse(read('lang/en.json'));
      const key = Object.keys(texts).find((one) => /^(common|home|event)\./.test(one) && !/Name$|^event\.title$/.test(one));
      if (key !== undefined) assert.equal(texts[key], english[key], 'what German lacks is English');
      const plain = await server.call('GET', '/e/CONCERT/1?view=plain');
      assertNoInline(plain.text, 'plain');
      assert.equal(unescaped(/<button>(.*)<\/button>/.exec(plain.text)[1]), evil);
      assert.match(plain.text, /<h1 dir="auto">&lt;script&gt;&amp;&quot;<\/h1>/);
      assert.match((await server.call('GET', '/e/CONCERT/1?view=plain', { headers: { 'accept-language': 'ko' } })).text, /<button>들어가기</);
    } finally {
      await server.stop();
    }
  });

  test('a wrong one stops the start with its reason', { skip: isCluster }, () => {
    const texts = ['--page-texts', path.join(folder, 'wrong')];
    write('wrong/fr.json', '{"plain.enter": "Entrer", "plain.no": "Non"}');
    assert.match(refused(texts), /wrong\/fr\.json: unknown key "plain\.no"/);
    write('wrong/fr.json', '{"plain.enter": ["Entrer"]}');
    assert.match(refused(texts), /wrong\/fr\.json: the text of "plain\.enter" is not a string/);
    write('wrong/fr.json', '{"plain.enter": "Entrer",\n"}');
    assert.match(refused(texts), /wrong\/fr\.json:2: invalid JSON/);
    assert.match(refused(['--page-texts', path.join(folder, 'none')]), /none: No such file or directory/);
    assert.match(refused(['--page-language', 'fr']), /page\.language: there are no texts for "fr"/);
    assert.match(refused(['--page-name', '']), /page\.name: /);
    for (const accent of ['red', '#fff', '#12345g', '#123456;']) assert.match(refused(['--page-accent', accent]), /page\.accent: .*#c2185b/, accent);
    for (const logo of ['//evil.example/x', 'http://x/y', 'javascript:1', '/a b', '/\\x', 'logo.svg', `/${'x'.repeat(500)}`])
      assert.match(refused(['--page-logo', logo]), /page\.logo: /, logo.slice(0, 30));
    assert.match(refused(['--web-dir', folder]), /lang: No such file or directory|is missing/);
  });

  test('--web-dir shows a changed file at the next request, and a fault in it', { skip: isCluster }, async () => {
    fs.cpSync(WEB, path.join(folder, 'web'), { recursive: true });
    const server = await start({ args: ['--web-dir', path.join(folder, 'web')] });
    try {
      const before = await server.call('GET', '/');
      assert.equal(before.status, 200);
      write('web/home.html', '<!doctype html><p>{{t:page.name}} {{asset:app.css}}</p>');
      write('web/app.css', 'p { color: red }');
      const changed = await server.call('GET', '/');
      assert.match(changed.text, /<p>admitone \/assets\/app\.css\?v=\w{16}<\/p>/);
      assert.equal((await server.call('GET', '/assets/app.css')).text, 'p { color: red }');
      write('web/home.html', '{{t:home.nothing}}');
      const faulty = await server.call('GET', '/');
      assert.deepEqual([faulty.status, faulty.headers['content-type']], [500, 'text/plain; charset=utf-8']);
      assert.match(faulty.text, /home\.html: \{\{t:home\.nothing\}\}/);
    } finally {
      await server.stop();
    }
  });

  test('/admin is where the admin paths are', { skip: isCluster }, async () => {
    const server = await start({ args: ['--admin-listen', '127.0.0.1:0'] });
    try {
      const [, port] = /listening for the admin" addr=127\.0\.0\.1:(\d+)/.exec(server.stderr);
      assert.equal((await server.call('GET', '/admin')).status, 404);
      for (const page of PAGES.filter((one) => !one.startsWith('/e/'))) assert.equal((await call({ port }, 'GET', page)).status, 200, page);
    } finally {
      await server.stop();
    }
  });

  test('behind TLS the cookie of the language is Secure', { skip: isCluster }, async () => {
    const server = await start({ args: ['--users-auth', 'anonymous', '--net-trusted-proxies', '127.0.0.1'] });
    try {
      const { headers } = await server.call('GET', '/?lang=ko', { headers: { 'x-forwarded-proto': 'https' } });
      assert.match(headers['set-cookie'][0], /^admitone_lang=ko;.*; Secure$/);
    } finally {
      await server.stop();
    }
  });
});

// A browser without JavaScript: keeps cookies, follows redirects, sends forms with its Origin.
class PlainBrowser {
  constructor(server, target, headers = {}) {
    Object.assign(this, { server, target, headers, jar: new Map() });
  }

  async ask(method, target, body) {
    const cookie = [...this.jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await this.server.call(method, target, {
      body,
      headers: { ...(cookie && { cookie }), ...(body !== undefined && { 'content-type': 'application/x-www-form-urlencoded' }), ...this.headers },
    });
    for (const line of answer.headers['set-cookie'] ?? []) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      this.jar.set(name, value);
    }
    return answer;
  }

  async load(expected = 200) {
    const answer = await this.ask('GET', this.target);
    assert.equal(answer.status, expected, answer.text);
    assertPageHeaders(answer.headers, this.target);
    assert.equal(answer.headers['cache-control'], 'no-store');
    assertNoInline(answer.text, this.target);
    this.text = answer.text;
    this.refresh = answer.headers.refresh;
    return answer.text;
  }

  // Sends the first form with that action, as the page has it. False values of `fields` are left out.
  async send(action, fields = {}) {
    const form = [...this.text.matchAll(/<form method="post" action="([^"]*)">([^]*?)<\/form>/g)].find(([, , inner]) => inner.includes(`value="${action}"`));
    assert.ok(form, `there is a form ${action} in ${this.text}`);
    const values = new URLSearchParams(fields);
    for (const [, name, value] of form[2].matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)) values.set(name, value);
    return this.ask('POST', unescaped(form[1]), values.toString());
  }

  // The same, and follows the redirect.
  async did(action, fields) {
    const answer = await this.send(action, fields);
    assert.deepEqual([answer.status, answer.text], [303, ''], answer.text);
    assert.equal(answer.headers.location, this.target);
    assert.equal(answer.headers['cache-control'], 'no-store');
    return this.load();
  }

  get reloads() {
    return this.refresh === undefined ? null : Number(this.refresh);
  }
}

describe('the view without JavaScript', () => {
  let server;
  let events = 0;
  before(async () => (server = await start({ args: ['--users-auth', 'anonymous'] })));
  after(() => server.stop());

  const open = (queue = {}, more = {}) => WaitingRoom.open(server, `PLAIN/${++events}`, { maxActive: 1, ...queue }, { confirmBy: 'user', cancelConfirmed: true, ...more });
  const browse = (room, query = '') => new PlainBrowser(server, `/e/${room.name}?view=plain${query}`);

  test('a whole sale: wait, see the place fall, be let in, hold, cancel, hold, confirm', async () => {
    const room = await open({}, { title: 'Winter "tour" <b>' });
    const [ann, ben] = [browse(room), browse(room, '&rd=%2Fshop%3Fa%3D1%26b')];
    await ann.load();
    assert.match(ann.text, /<h1 dir="auto">Winter &quot;tour&quot; &lt;b&gt;<\/h1>/);
    assert.equal(ann.reloads, null, 'nothing to wait for');
    await ann.did('enter');
    assert.match(ann.text, /It is your turn/);
    await ben.load();
    await ben.did('enter');
    assert.match(ben.text, /Your place: 1</);
    assert.match(ben.text, /You are next\./);
    assert.match(ben.text, /Seats left: \d+/);
    assert.ok(ben.reloads >= 1 && ben.reloads <= 30, `${ben.reloads} s`);
    assert.doesNotMatch(ben.text, /Continue/, 'not before it is his turn');
    const cara = browse(room);
    await cara.load();
    await cara.did('enter');
    assert.match(cara.text, /Your place: 2<[^]*1 ahead of you/);

    await ann.did('leave');
    assert.match(ann.text, /You have left\./);
    await until('ben is in', async () => /It is your turn/.test(await ben.load()));
    assert.match(ben.text, /<a rel="noreferrer" href="\/shop\?a=1&amp;b">Continue<\/a>/);
    assert.match(ben.text, /You may stay until \d{4}-\d\d-\d\d \d\d:\d\d UTC: \d+ more min\./);
    await until('cara is next', async () => /Your place: 1</.test(await cara.load()));

    await ben.did('hold', { section: 'A', quantity: '2' });
    assert.match(ben.text, /seats 1, 2: [\d,]+ KRW\. Held for you until/);
    assert.ok(ben.reloads > 30, `when the hold ends: ${ben.refresh}`);
    await ben.did('cancel');
    assert.doesNotMatch(ben.text, /Held for you/);
    await ben.did('hold', { section: 'A', quantity: '1' });
    await ben.did('confirm');
    assert.match(ben.text, /Your purchase is complete\./);
    assert.match(ben.text, /Confirmed, code [A-Z0-9]{10}\./);
    await until('cara is in', async () => /It is your turn/.test(await cara.load()));
  });

  test('says that it is not open yet, paused, closed, full, sold out', async () => {
    const later = new Date(Date.now() + 3600e3).toISOString();
    const before = browse(await open({}, { opensAt: later }));
    await before.load();
    assert.match(before.text, new RegExp(`Opens on ${later.slice(0, 16).replace('T', ' ')} UTC\\.`));
    assert.equal(before.reloads, 60);
    assert.doesNotMatch(before.text, /<form/);

    const room = await open({ maxWaiting: 1 });
    const [ann, ben, cara] = [browse(room), browse(room), browse(room)];
    for (const one of [ann, ben, cara]) await one.load();
    await ann.did('enter');
    await ben.did('enter');
    const full = await cara.send('enter');
    assert.equal(full.status, 429);
    assertPageHeaders(full.headers, 'full');
    assert.ok(Number(full.headers['retry-after']) >= 1);
    assert.match(full.text, /The queue is full\.[^]*href="\/e\/PLAIN\/\d+\?view=plain">Back/);
    await room.did('pause');
    assert.match(await ben.load(), /Paused: nobody is admitted[^]*Your place: 1</);
    assert.ok(ben.reloads >= 1);
    await room.did('resume');
    await room.did('drain');
    assert.match(await cara.load(), /takes no new visitors/);
    assert.doesNotMatch(cara.text, /value="enter"/);
    await room.did('deactivate');
    assert.match(await ben.load(), /Closed\. Nobody is admitted[^]*Your place: 1</);
    assert.match(await cara.load(), /Closed\./);

    const small = await open({}, { sections: [{ id: 'A', capacity: 1 }] });
    const [first, second] = [browse(small), browse(small)];
    await first.load();
    await first.did('enter');
    await first.did('hold', { section: 'A', quantity: '1' });
    assert.match(await second.load(), /All seats are taken at the moment\./);
    await first.did('confirm');
    assert.match(await second.load(), /Sold out\./);
    assert.doesNotMatch(second.text, /<form/);
  });

  test('a stay that is over, and seats that are gone, are explained', async () => {
    const room = await open({ activeTtlSeconds: 2 }, { sections: [{ id: 'A', capacity: 10 }] });
    const ann = browse(room);
    await ann.load();
    await ann.did('enter');
    const gone = await ann.send('hold', { section: 'A', quantity: '9' });
    assert.equal(gone.status, 409);
    assert.match(gone.text, /as many seats as one person may have/);
    const unknown = await ann.send('hold', { section: 'nowhere', quantity: '1' });
    assert.equal(unknown.status, 404);
    const wrong = await ann.send('hold', { section: 'A"}', quantity: 'x' });
    assert.equal(wrong.status, 422);
    await until('the stay is over', async () => /Your place has expired\./.test(await ann.load()));
    await ann.did('enter');
    assert.match(ann.text, /It is your turn/);
  });

  test('leads on only to paths of this site and to the return hosts of the event', async () => {
    const room = await open({}, { returnHosts: ['shop.example'] });
    const place = async (rd) => {
      const one = browse(room, rd === undefined ? '' : `&rd=${encodeURIComponent(rd)}`);
      one.jar = ann.jar;
      return one.load();
    };
    const ann = browse(room);
    await ann.load();
    await ann.did('enter');
    for (const rd of ['/', '/shop/7?x=1#y', 'https://shop.example/tickets?a=1']) assert.ok((await place(rd)).includes(`href="${rd}">Continue`), rd);
    for (const rd of [undefined, '', '//evil.example/', '/\\evil.example', 'https://evil.example/', 'https://shop.example.evil.example/', 'javascript:alert(1)', 'shop', '/\u0001', '/"><script>'])
      assert.doesNotMatch(await place(rd), />Continue</, rd);
  });

  test('shows the notice of the operator as text', async () => {
    const room = await open();
    const { status } = await server.call('PATCH', `/admin/queue/${room.name}`, { headers: bearer(server.adminKey), body: { notice: 'Ten <b>more</b>\n"minutes"' } });
    assert.equal(status, 200);
    const ann = browse(room);
    assert.match(await ann.load(), /<p class="notice" dir="auto">Ten &lt;b&gt;more&lt;\/b&gt;\n&quot;minutes&quot;<\/p>/);
  });

  test('a form of another site does nothing, nor does one that is none of this page', async () => {
    const room = await open();
    const ann = browse(room);
    await ann.load();
    await ann.did('enter');
    const evil = browse(room);
    evil.jar = ann.jar;
    evil.text = ann.text;
    evil.headers = { origin: 'https://evil.example' };
    for (const action of ['leave', 'hold']) {
      const answer = await evil.send(action, { section: 'A', quantity: '1' });
      assert.equal(answer.status, 403);
      assertPageHeaders(answer.headers, action);
      assert.match(answer.text, /sent from another site/);
    }
    assert.match(await ann.load(), /It is your turn/);
    for (const body of ['', 'action=', 'action=steal', 'x', '%', 'action=%ff']) assert.equal((await ann.ask('POST', ann.target, body)).status, 422, body);
    assert.equal((await ann.ask('POST', '/e/PLAIN/none', 'action=enter')).status, 404);
    await ann.did('hold', { section: 'A', quantity: '1' });
    const [, held] = /name="reservation" value="([^"]*)"/.exec(ann.text);
    for (const target of ['/e/PLAIN/none', '/e/a%20%3Cb%3E/%ED%95%9C', '/e/..%2F..%2F/1']) {
      const answer = await ann.ask('POST', target, `action=cancel&reservation=${held}`);
      assert.deepEqual([answer.status, answer.headers.location], [404, undefined], target);
    }
    assert.match(await ann.load(), /Held for you until/);
    const own = browse(room);
    own.headers = { origin: server.url.replace('127.0.0.1', 'localhost'), host: `localhost:${new URL(server.url).port}` };
    await own.load();
    if (!isCluster) assert.equal((await own.send('enter')).status, 303, 'its own origin, by another name');
  });

  test('with users.auth trusted, only a page of the server gets a place for its user', { skip: isCluster }, async () => {
    const trusted = await start();
    try {
      const room = await WaitingRoom.open(trusted, 'CONCERT/1', { maxActive: 1 });
      const page = `/e/${room.name}?view=plain`;
      const program = new PlainBrowser(trusted, page);
      await program.load();
      assert.equal((await program.send('enter')).status, 422);
      const browser = new PlainBrowser(trusted, page, { origin: trusted.url });
      await browser.load();
      await browser.did('enter');
      assert.match(browser.text, /It is your turn/);
      await browser.did('hold', { section: 'A', quantity: '1' });
      await browser.did('confirm');
      assert.match(browser.text, /Your purchase is complete\./);
    } finally {
      await trusted.stop();
    }
  });

  test('the limits on arrival count forms, and say so as a page', { skip: isCluster }, async () => {
    const limited = await start({ args: ['--users-auth', 'anonymous', '--limits-exempt', '192.0.2.1', '--limits-places-burst', '2', '--limits-places-per-address', '1'] });
    try {
      const room = await WaitingRoom.open(limited, 'CONCERT/1', { maxActive: 1 });
      const answers = [];
      for (let i = 0; i < 3; i++) {
        const one = new PlainBrowser(limited, `/e/${room.name}?view=plain`);
        await one.load();
        answers.push(await one.send('enter'));
      }
      assert.deepEqual(answers.map(({ status }) => status), [303, 303, 429]);
      assertPageHeaders(answers[2].headers, 'limited');
      assert.match(answers[2].text, /Too many requests from your network/);
    } finally {
      await limited.stop();
    }
  });

  test('a page that waits goes on loading itself after the limit on requests', { skip: isCluster }, async () => {
    const limited = await start({ args: ['--users-auth', 'anonymous', '--limits-exempt', '192.0.2.1', '--limits-requests-burst', '5', '--limits-requests-per-address', '1'] });
    try {
      const room = await WaitingRoom.open(limited, 'CONCERT/1', { maxActive: 1 });
      const [ann, ben] = [0, 1].map(() => new PlainBrowser(limited, `/e/${room.name}?view=plain`));
      for (const one of [ann, ben]) {
        await one.load();
        await one.did('enter');
      }
      assert.match(ben.text, /Your place: 1</);
      const refused = await until('the limit is reached', async () => {
        const answer = await ben.ask('GET', ben.target);
        return answer.status !== 200 && answer;
      });
      assert.equal(refused.status, 429);
      ben.refresh = refused.headers.refresh;
      assert.ok(ben.reloads >= Number(refused.headers['retry-after']) && ben.reloads <= 30, `${ben.reloads} s`);
    } finally {
      await limited.stop();
    }
  });
});

describe('the files of web/', () => {
  const languages = fs.readdirSync(path.join(WEB, 'lang')).map((name) => [name, JSON.parse(read(`lang/${name}`))]);
  const english = JSON.parse(read('lang/en.json'));

  test('each language has the same keys and placeholders', () => {
    const placeholders = (text) => [...new Set([...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name))].sort();
    for (const [name, texts] of languages) {
      assert.deepEqual(Object.keys(texts).sort(), Object.keys(english).sort(), name);
      for (const [key, text] of Object.entries(texts)) {
        assert.ok(text.trim() !== '', `${name}: ${key} is empty`);
        assert.deepEqual(placeholders(text), placeholders(english[key]), `${name}: ${key}`);
      }
    }
  });

  test('every key that is used exists, and none is unused', () => {
    const key = String.raw`(?:common|home|event|seats|admin|plain)\.[\w.]*\w`;
    const sources = [
      ...webFiles().filter((name) => /\.(js|html)$/.test(name)).map((name) => [name, read(name)]),
      ...['page_texts.c', 'plain_view.c', 'plain_page.c'].map((name) => [name, fs.readFileSync(path.join(ROOT, 'src/api', name), 'utf8')]),
    ];
    const used = new Set();
    const patterns = []; // of keys that are put together, as in `event.state.${state}`
    for (const [name, text] of sources) {
      for (const [, found] of text.matchAll(new RegExp(`(?:\\{\\{t:|["'\`])(${key})(?=["'\`}])`, 'g'))) {
        if (found === 'page.name') continue;
        assert.ok(found in english, `${name}: there is no text ${found}`);
        used.add(found);
      }
      for (const [, found] of text.matchAll(/`((?:common|home|event|seats|admin)\.[^`\s]*\$\{[^`\s]*)`/g))
        patterns.push([name, found, new RegExp(`^${found.replace(/\$\{[^}]*\}/g, '#').replace(/[.*+?^$()[\]{}|\\]/g, '\\$&').replaceAll('#', '.+')}$`)]);
    }
    const all = Object.keys(english);
    for (const [name, found, pattern] of patterns) assert.ok(all.some((one) => pattern.test(one)), `${name}: no text is \`${found}\``);
    const isUsed = (one) => used.has(one) || patterns.some(([, , pattern]) => pattern.test(one));
    // KEY.one is the singular of KEY.
    const unused = all.filter((one) => !isUsed(one) && !(one.endsWith('.one') && isUsed(one.slice(0, -4))));
    assert.deepEqual(unused, [], 'unused texts');
  });

  test('are small: the waiting room loads 30 KB at first, all of it is 80 KB', async () => {
    const server = await start();
    try {
      assert.equal((await server.admin('PUT', '/admin/events/CONCERT/1', concert())).status, 201);
      const bytes = async (target, language = 'en') => {
        const { headers } = await server.call('HEAD', target, { headers: { 'accept-encoding': 'gzip', 'accept-language': language } });
        return Number(headers['content-length']);
      };
      for (const language of ['en', 'ko']) {
        const first = (await Promise.all(['/e/CONCERT/1', '/assets/app.css', '/assets/event.js'].map((target) => bytes(target, language)))).reduce((a, b) => a + b);
        assert.ok(first <= 30000, `${first} bytes in ${language}`);
        const { text } = await server.call('GET', '/e/CONCERT/1');
        assert.equal((text.match(/<script\b[^>]*src=/g) ?? []).length, 1, 'one script');
        assert.equal((text.match(/rel="stylesheet"/g) ?? []).length, 1, 'one style sheet');
      }
    } finally {
      await server.stop();
    }
    const all = webFiles().reduce((sum, name) => sum + zlib.gzipSync(fs.readFileSync(path.join(WEB, name)), { level: 9 }).length, 0);
    assert.ok(all < 80000, `${all} bytes`);
  });

  test('contain no script, style or address of another site', () => {
    for (const name of webFiles().filter((one) => one.endsWith('.html'))) assertNoInline(read(name).replaceAll(/\{\{asset:[^}]*\}\}/g, '/x'), name);
    for (const name of webFiles().filter((one) => /\.(js|css)$/.test(one)))
      assert.doesNotMatch(read(name), /setAttribute\(\s*['"]style['"]|cssText|\beval\(|new Function\(|@import|url\(\s*['"]?https?:/, name);
  });
});
