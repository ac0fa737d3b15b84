// The three modes of users.auth, and tokens that are forged, altered, expired, of another event or of
// another user.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { randomUUID } from 'node:crypto';
import { jwt, readJwt, startSigned } from './support/jwt.mjs';
import { WaitingRoom, bearer } from './support/queue.mjs';
import { Sale } from './support/reservations.mjs';
import { assertProblem, concert, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';

const KEY = 'the shop\'s own key, 32 bytes or so';
const HOUR_S = 3600;
const CREDENTIAL = /^[A-Za-z0-9_-]{46}$/; // the cookie admitone_user
const nowS = () => Math.floor(Date.now() / 1000);

async function inFolder(use) {
  const folder = tempFolder();
  const keyFile = (name, text) => {
    fs.writeFileSync(path.join(folder, name), `${text}\n`, { mode: 0o600 });
    return path.join(folder, name);
  };
  try {
    return await use({ dataDir: path.join(folder, 'data'), keyFile });
  } finally {
    removeFolder(folder);
  }
}

// { name: value } of the cookies that the answer sets, and all of their lines.
function cookies(answer) {
  const lines = answer.headers['set-cookie'] ?? [];
  const jar = Object.fromEntries(lines.map((line) => line.split(';')[0].split('=')));
  return { lines, jar, header: Object.entries(jar).map(([name, value]) => `${name}=${value}`).join('; ') };
}

describe('a token', () => {
  let server;
  let room;
  let mine;
  before(async () => {
    server = await start();
    room = await WaitingRoom.open(server, 'CONCERT/1', { maxActive: 1 });
    mine = (await room.enter('me')).entryToken;
  });
  after(() => server.stop());
  const status = (token, more = '') => server.call('GET', `/queue/CONCERT/1/status${more}`, { headers: bearer(token) });

  test('is opaque, made of what URLs and headers take, and says nothing of the state', async () => {
    assert.match(mine, /^[A-Za-z0-9_-]{40,100}$/);
    // A long name: two letters may be among the token's random bytes by chance.
    const { entryToken } = await room.enter('a user with a long name');
    assert.ok(!Buffer.from(entryToken, 'base64url').includes('long name'));
    assert.ok(!Buffer.from(mine, 'base64url').includes('ACTIVE'));
  });

  test('with any one character changed is 401, at every door', async () => {
    const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const altered = [];
    for (let i = 0; i < mine.length; i++) {
      const at = ALPHABET.indexOf(mine[i]);
      // All bits of the last character, of which the lowest may be unused; one bit of each other
      // character.
      const others = i === mine.length - 1 ? [...ALPHABET].filter((one) => one !== mine[i]) : [ALPHABET[at ^ 1], ALPHABET[at ^ 32], '=', '+'];
      for (const other of others) altered.push(mine.slice(0, i) + other + mine.slice(i + 1));
    }
    assert.ok(altered.length > mine.length * 4);
    for (const text of altered) assertProblem(await status(text), 401, 'token_invalid');
    for (const text of altered.slice(0, 40)) {
      assertProblem(await room.gate(text), 401, 'token_invalid');
      assertProblem(await room.leave(text), 401, 'token_invalid');
    }
    assert.equal((await status(mine)).status, 200);
    assert.equal((await room.gate(mine)).status, 204, 'and none of them ended the place');
  });

  test('that is cut, doubled, empty or something else is 401', async () => {
    for (let length = 1; length < mine.length; length++) assertProblem(await status(mine.slice(0, length)), 401, 'token_invalid');
    for (const text of [`${mine}A`, `${mine}=`, `${mine}.`, mine + mine, mine.toLowerCase(), 'x'.repeat(4000), `A${mine}`])
      assertProblem(await status(text), 401, 'token_invalid');
    for (const headers of [{}, { authorization: 'Basic bWU6bWU=' }, { authorization: mine }]) {
      const answer = await server.call('GET', '/queue/CONCERT/1/status', { headers });
      assertProblem(answer, 401, 'token_required');
      assert.match(answer.headers['www-authenticate'], /^Bearer /);
    }
  });

  test('of another event, another user or another server is refused', async () => {
    const other = await WaitingRoom.open(server, 'CONCERT/2');
    const foreign = (await other.enter('me')).entryToken;
    assertProblem(await status(foreign), 403, 'token_foreign_event');
    assertProblem(await room.gate(foreign), 403, 'token_foreign_event');
    assertProblem(await room.leave(foreign), 403, 'token_foreign_event');
    assertProblem(await status(mine, '?userId=somebody'), 403, 'user_mismatch');
    assertProblem(await server.call('DELETE', '/queue/CONCERT/1/leave?userId=somebody', { headers: bearer(mine) }), 403, 'user_mismatch');
    assertProblem(await server.call('GET', '/gate/CONCERT/1?userId=somebody', { headers: bearer(mine) }), 403, 'user_mismatch');
    assertProblem(await server.call('GET', '/queue/status?userId=somebody', { headers: bearer(mine) }), 403, 'user_mismatch');
    assert.equal((await status(mine, '?userId=me')).json.status, 'ACTIVE');

    const twin = await start();
    const twins = await WaitingRoom.open(twin, 'CONCERT/1', { maxActive: 1 });
    const theirs = (await twins.enter('me')).entryToken;
    assert.notEqual(theirs, mine);
    assertProblem(await status(theirs), 401, 'token_invalid');
    assertProblem(await twins.gate(mine), 401, 'token_invalid');
    await twin.stop();
  });

  test('may come in a header, another header or the query', async () => {
    for (const [target, headers] of [
      ['/queue/CONCERT/1/status', { authorization: `bearer ${mine}` }],
      ['/queue/CONCERT/1/status', { 'x-queue-token': mine }],
      ['/queue/CONCERT/1/status', { 'x-queue-token': mine, authorization: 'Basic bWU6bWU=' }],
      [`/queue/CONCERT/1/status?token=${mine}`, {}],
      ['/queue/status', { 'x-queue-token': mine }],
      [`/queue/status?token=${mine}`, {}],
    ])
      assert.equal((await server.call('GET', target, { headers })).json.status, 'ACTIVE', target);
    assert.equal((await server.call('GET', '/gate/CONCERT/1', { headers: { 'x-queue-token': mine } })).status, 204);
    assertProblem(await server.call('GET', `/queue/CONCERT/1/status?token=${mine}`, { headers: { 'x-queue-token': 'x' } }), 401, 'token_invalid');
  });

  test('of an event that is gone expires with its own lifetime', async () => {
    const [brief, lasting] = [await WaitingRoom.open(server, 'GONE/1', { tokenTtlSeconds: 1 }), await WaitingRoom.open(server, 'GONE/2')];
    const tokens = [(await brief.enter('me')).entryToken, (await lasting.enter('me')).entryToken];
    for (const room of [brief, lasting]) assert.equal((await server.admin('DELETE', `/admin/events/${room.name}`)).status, 204);
    const ask = (target, token) => server.call('GET', target, { headers: bearer(token) });
    for (const target of ['/reservations', '/reservations/01890000-0000-7000-8000-000000000000', '/queue/status']) {
      await until('it has expired', async () => (await ask(target, tokens[0])).status === 401);
      assertProblem(await ask(target, tokens[0]), 401, 'token_expired');
      assert.equal((await ask(target, tokens[1])).status, 404, 'the other has no end');
    }
  });

  test('is in no log line, wherever it was sent', async () => {
    const loud = await start({ args: ['--log-level', 'debug'] });
    const own = await WaitingRoom.open(loud, 'CONCERT/1', { maxActive: 1 });
    const { entryToken, admissionPass } = await own.enter('me');
    await own.status(entryToken);
    await loud.call('GET', `/queue/CONCERT/1/status?token=${entryToken}`);
    await loud.call('GET', `/queue/CONCERT/1/subscribe/${entryToken}`);
    await loud.call('GET', '/gate/CONCERT/1', { headers: { cookie: `admitone_entry_1=${entryToken}` } });
    await loud.stop();
    assert.match(loud.stderr, /level=debug/, 'it does log');
    for (const secret of [entryToken, admissionPass, loud.adminKey]) assert.ok(!loud.stderr.includes(secret), loud.stderr);
  });

  test('the admission pass is an HS256 JWT with sub, evt and exp, good for an origin with the key alone', async () => {
    const keyFile = path.join(server.dataDir, 'pass.key');
    assert.equal(fs.statSync(keyFile).mode & 0o777, 0o600);
    const key = fs.readFileSync(keyFile, 'utf8').trim();
    const place = (await status(mine)).json;
    const claims = readJwt(place.admissionPass, key);
    assert.deepEqual(Object.keys(claims).sort(), ['evt', 'exp', 'sub']);
    assert.equal(claims.sub, 'me');
    assert.equal(claims.evt, 'CONCERT/1');
    assert.equal(claims.exp, Math.floor(Date.parse(place.activeExpiresAt) / 1000));
    assert.ok(!('admissionPass' in (await room.enter('waits'))));
    assertProblem(await room.gate(place.admissionPass), 401, 'token_invalid', 'a pass is no token');
    // The keys are for one thing each.
    const secret = fs.readFileSync(path.join(server.dataDir, 'secret'), 'utf8').trim();
    assert.notEqual(secret, key);
  });

  test('the pass key can be given', () =>
    inFolder(async ({ dataDir, keyFile }) => {
      const own = await start({ dataDir, args: ['--pass-key-file', keyFile('pass', KEY)] });
      const { admissionPass } = await (await WaitingRoom.open(own, 'CONCERT/1')).enter('é "x"');
      assert.equal(readJwt(admissionPass, KEY).sub, 'é "x"');
      await own.stop();
    }));

  test('two keys live at once: after a rotation old tokens are good, until the old key goes', () =>
    inFolder(async ({ dataDir, keyFile }) => {
      const [a, b] = [keyFile('a', 'a'.repeat(40)), keyFile('b', 'b'.repeat(40))];
      const begin = async (...args) => {
        const own = await start({ dataDir, args });
        return [own, new WaitingRoom(own, 'CONCERT/1')];
      };
      let [own, at] = await begin('--secret-file', a);
      await own.admin('PUT', '/admin/events/CONCERT/1', concert({ queue: { maxActive: 1 } }));
      const old = await at.enter('me');
      await own.stop();

      [own, at] = await begin('--secret-file', b, '--secret-previous-file', a);
      assert.equal((await at.status(old.entryToken)).status, 'ACTIVE');
      assert.equal((await at.gate(old.entryToken)).status, 204);
      const fresh = await at.enter('me');
      assert.notEqual(fresh.entryToken, old.entryToken, 'what is signed now is signed with the new key');
      assert.equal(fresh.activeExpiresAt, old.activeExpiresAt, 'and it is the same place');
      await own.stop();

      [own, at] = await begin('--secret-file', b);
      assertProblem(await at.gate(old.entryToken), 401, 'token_invalid');
      assert.equal((await at.gate(fresh.entryToken)).status, 204);
      await own.stop();

      [own, at] = await begin('--secret-file', keyFile('c', 'c'.repeat(40)));
      assertProblem(await at.gate(fresh.entryToken), 401, 'token_invalid');
      await own.stop();
    }));
});

describe('users.auth trusted', () => {
  test('is the default on loopback only: beyond, it must be said whose word counts', () =>
    inFolder(async ({ dataDir, keyFile }) => {
      const refused = (...args) => {
        const { status, stderr } = run(['serve', '--data', dataDir, ...args]);
        assert.notEqual(status, 0, stderr);
        assert.match(stderr, /users\.(auth|key_file)/);
      };
      refused('--listen', '0.0.0.0:0');
      refused('--listen', '[::]:0');
      refused('--listen', '127.0.0.1:0', '--admin-listen', '0.0.0.0:0');
      refused('--listen', '127.0.0.1:0', '--users-auth', 'signed');
      refused('--listen', '127.0.0.1:0', '--users-key-file', keyFile('key', KEY));
      assert.ok(!fs.existsSync(dataDir), 'nothing was begun');
      const open = await start({ dataDir, listen: '0.0.0.0:0', args: ['--users-auth', 'trusted'] });
      await open.stop();
    }));

  test('believes the name, and sets no cookies', async () => {
    const server = await start();
    const room = await WaitingRoom.open(server, 'CONCERT/1');
    const answer = await room.ask('me', { headers: { cookie: 'admitone_user=anon-AAAAAAAAAAAAAAAAAAAAAA' } });
    assert.equal(answer.json.userId, 'me');
    assert.equal(answer.headers['set-cookie'], undefined);
    await server.stop();
  });
});

describe('users.auth trusted, and pages of the same server', () => {
  let server;
  let node;
  let room;
  before(async () => {
    server = await start();
    [node] = server.nodes;
    room = await WaitingRoom.open(server, 'CONCERT/1');
  });
  after(() => server.stop());
  const enter = (headers, body = {}) => node.call('POST', '/queue/CONCERT/1/enter', { headers, body });

  test('a request without userId is an error, unless a page of this server sent it', async () => {
    const foreign = [{}, { 'sec-fetch-site': 'cross-site' }, { 'sec-fetch-site': 'same-site', origin: node.url }, { 'sec-fetch-site': 'none' }, { origin: 'https://evil.example' }, { cookie: 'admitone_user=x; a=b' }];
    for (const headers of foreign) {
      const answer = await enter(headers);
      assert.match(assertProblem(answer, 422, 'invalid_field').detail, /^userId is required/);
      assert.equal(answer.headers['set-cookie'], undefined);
    }
    for (const headers of [{ 'sec-fetch-site': 'same-origin' }, { origin: node.url }, { 'sec-fetch-site': 'same-origin', origin: node.url }]) {
      const answer = await enter(headers);
      assert.match(room.place(answer, 200).userId, /^anon-/);
      assert.deepEqual(Object.keys(cookies(answer).jar).map((name) => name.replace(/\d+$/, 'N')).sort(), ['admitone_entry_N', 'admitone_user']);
    }
    assert.equal((await enter({ 'sec-fetch-site': 'same-origin' }, { userId: 'me' })).json.userId, 'me', 'a name counts');
  });

  test('the page\'s user is known by the cookie, which no other page can use', async () => {
    const sale = await Sale.open(server, 'PAGE/1', {}, { autoEnter: true });
    const first = await sale.hold(undefined, { quantity: 1 }, { headers: { 'sec-fetch-site': 'same-origin' } });
    assert.equal(first.status, 201, first.text);
    const { header: cookie } = cookies(first);
    const { id, userId } = first.json;
    assert.equal((await sale.held(undefined, { quantity: 1 }, { headers: { cookie } })).userId, userId);
    assert.equal((await sale.list(undefined, { headers: { cookie } })).length, 2);
    const evil = { cookie, origin: 'https://evil.example' };
    assertProblem(await sale.hold(undefined, { quantity: 1 }, { headers: evil }), 403, 'foreign_origin');
    assertProblem(await sale.cancel(undefined, id, { headers: evil }), 403, 'foreign_origin');
    assertProblem(await server.call('DELETE', '/queue/PAGE/1/leave', { headers: evil }), 403, 'foreign_origin');
    assertProblem(await server.call('GET', '/reservations', { headers: { 'sec-fetch-site': 'same-origin' } }), 401, 'token_required');
    assertProblem(await sale.get(undefined, id, { headers: { cookie: `admitone_user=${userId}` } }), 401, 'token_required');
    await sale.cancelled(undefined, id, { headers: { cookie } });
    // The entry token of another user is enough, whatever cookies the browser has besides.
    const bob = await sale.buyer('bob');
    assert.equal((await sale.held(bob, { quantity: 1 }, { headers: { cookie } })).userId, 'bob');
  });
});

describe('users.auth signed', () => {
  let server;
  let rooms = 0;
  before(async () => (server = await startSigned(KEY)));
  after(() => server.stop());
  const busy = async () => {
    const room = await WaitingRoom.open(server, `SHOP/${++rooms}`, { maxActive: 1 });
    room.first = room.place(await room.askAsAdmin('first'), 200);
    return room;
  };
  const assertion = (claims, key, header) => ({ 'x-user-assertion': jwt(key ?? KEY, claims, header) });
  const as = (sub) => assertion({ sub, exp: nowS() + HOUR_S });
  const enter = (room, headers, body) => server.call('POST', `/queue/${room.name}/enter`, { headers, body });

  test('the user is the sub of the shop\'s assertion', async () => {
    const room = await busy();
    const me = room.place(await enter(room, as('me')), 202);
    assert.equal(me.userId, 'me');
    assert.equal(room.place(await enter(room, as('me'), {}), 202).entryToken, me.entryToken);
    assert.equal(room.place(await enter(room, as('me'), { userId: 'me' }), 202).entryToken, me.entryToken);
    assert.equal(room.place(await enter(room, as(7), { userId: '7' }), 202).userId, '7');
    assert.equal(room.place(await enter(room, assertion({ sub: 'no end', iss: 'shop', aud: ['x'] })), 202).userId, 'no end');
    assert.equal((await room.status(me.entryToken)).userId, 'me', 'the token is proof enough afterwards');
  });

  test('only the assertion counts: naming a user gives no access to a place', async () => {
    const room = await busy();
    const victim = room.place(await enter(room, as('victim')), 202);
    assertProblem(await enter(room, {}, { userId: 'victim' }), 401, 'assertion_required');
    assertProblem(await enter(room, as('thief'), { userId: 'victim' }), 403, 'user_mismatch');
    assertProblem(await enter(room, { cookie: 'admitone_user=victim' }, { userId: 'victim' }), 401, 'assertion_required');
    assertProblem(await enter(room, bearer(`${server.adminKey}x`), { userId: 'victim' }), 401, 'assertion_required');
    const query = await server.call('POST', '/queue/token', { body: { userId: 'victim', eventType: room.type, eventId: room.id } });
    assertProblem(query, 401, 'assertion_required');
    // A token and another user's assertion don't go together.
    const both = { ...bearer(victim.entryToken), ...as('thief') };
    assertProblem(await server.call('GET', `/queue/${room.name}/status`, { headers: both }), 403, 'user_mismatch');
    assertProblem(await server.call('DELETE', `/queue/${room.name}/leave`, { headers: both }), 403, 'user_mismatch');
    assertProblem(await server.call('GET', `/gate/${room.name}`, { headers: both }), 403, 'user_mismatch');
    const forged = { ...bearer(victim.entryToken), ...assertion({ sub: 'victim' }, 'another key') };
    assertProblem(await server.call('GET', `/queue/${room.name}/status`, { headers: forged }), 401, 'assertion_invalid');
    assert.equal((await room.status(victim.entryToken)).position, 1, 'and nothing happened to it');
    assert.equal((await room.numbers()).waiting, 1);
  });

  test('an assertion that is forged, altered, expired or malformed is 401, and says why', async () => {
    const room = await busy();
    const good = jwt(KEY, { sub: 'me', exp: nowS() + HOUR_S });
    const [header, claims, signature] = good.split('.');
    const unsigned = jwt(KEY, { sub: 'me' }, { alg: 'none' });
    const bad = {
      'another key': jwt('another key', { sub: 'me' }),
      'an empty key': jwt('', { sub: 'me' }),
      'alg none, no signature': unsigned.slice(0, unsigned.lastIndexOf('.') + 1),
      'alg none, signed': unsigned,
      'alg None': jwt(KEY, { sub: 'me' }, { alg: 'None' }),
      'alg HS512': jwt(KEY, { sub: 'me' }, { alg: 'HS512' }),
      'alg RS256': jwt(KEY, { sub: 'me' }, { alg: 'RS256' }),
      'no alg': jwt(KEY, { sub: 'me' }, { typ: 'JWT' }),
      'alg in two parts': jwt(KEY, { sub: 'me' }, { alg: ['HS256'] }),
      'crit': jwt(KEY, { sub: 'me' }, { alg: 'HS256', crit: ['exp'] }),
      'a header that is no JSON': jwt(KEY, { sub: 'me' }, 'HS256'),
      'expired': jwt(KEY, { sub: 'me', exp: nowS() - 1 }),
      'expires now': jwt(KEY, { sub: 'me', exp: nowS() }),
      'exp is a text': jwt(KEY, { sub: 'me', exp: `${nowS() + HOUR_S}` }),
      'exp is null': jwt(KEY, { sub: 'me', exp: null }),
      'not yet': jwt(KEY, { sub: 'me', nbf: nowS() + 60 }),
      'nbf is a text': jwt(KEY, { sub: 'me', nbf: '0' }),
      'no sub': jwt(KEY, { exp: nowS() + HOUR_S }),
      'sub is null': jwt(KEY, { sub: null }),
      'sub is empty': jwt(KEY, { sub: '' }),
      'sub is too long': jwt(KEY, { sub: 'x'.repeat(65) }),
      'sub has a control character': jwt(KEY, { sub: 'a\nb' }),
      'sub is an object': jwt(KEY, { sub: { id: 'me' } }),
      'sub twice': jwt(KEY, '{"sub":"me","sub":"you"}'),
      'lane 16': jwt(KEY, { sub: 'me', lane: 16 }),
      'lane -1': jwt(KEY, { sub: 'me', lane: -1 }),
      'lane is a text': jwt(KEY, { sub: 'me', lane: '0' }),
      'claims that are a list': jwt(KEY, ['me']),
      'claims that are no JSON': jwt(KEY, 'me'),
      'no claims': `${header}..${signature}`,
      'no signature': `${header}.${claims}.`,
      'two parts': `${header}.${claims}`,
      'four parts': `${good}.${signature}`,
      'other claims under the signature': `${header}.${jwt(KEY, { sub: 'you' }).split('.')[1]}.${signature}`,
      'half a signature': good.slice(0, -20),
      'a longer signature': `${good}A`,
      'padding': `${good}=`,
      'nothing like it': 'x',
      'two dots': '..',
      'more than 4,096 bytes': jwt(KEY, { sub: 'me', more: 'x'.repeat(4096) }),
    };
    for (const [what, text] of Object.entries(bad)) {
      const answer = await enter(room, { 'x-user-assertion': text }, {});
      assert.equal(answer.status, 401, `${what}: ${answer.text}`);
      assertProblem(answer, 401, 'assertion_invalid');
      assert.ok(answer.headers['www-authenticate'], what);
    }
    for (let i = 0; i < good.length; i++) {
      const altered = `${good.slice(0, i)}${good[i] === 'A' ? 'E' : 'A'}${good.slice(i + 1)}`;
      assert.equal((await enter(room, { 'x-user-assertion': altered }, {})).status, 401, `character ${i}`);
    }
    assertProblem(await enter(room, { 'x-user-assertion': '' }, {}), 401, 'assertion_required');
    assert.equal((await room.numbers()).waiting, 0);
    assert.equal((await enter(room, { 'x-user-assertion': good }, {})).status, 202);
  });

  test('a lane is granted by the assertion, and can\'t be chosen otherwise', async () => {
    const room = await busy();
    const enterAs = (sub, lane, body = {}) => enter(room, assertion({ sub, lane }), body);
    const slow = room.place(await enter(room, as('slow')), 202);
    const quick = room.place(await enterAs('quick', 0), 202);
    assert.equal(quick.position, 1);
    assert.equal((await room.status(slow.entryToken)).position, 2);
    assert.equal(room.place(await enterAs('same', 3, { lane: 3 }), 202).position, 2);
    assertProblem(await enterAs('greedy', 3, { lane: 0 }), 403, 'lane_not_allowed');
    assertProblem(await enter(room, as('greedy'), { lane: 0 }), 403, 'lane_not_allowed');
    assert.equal(room.place(await enterAs('late', 15), 202).position, 4);
  });

  test('the place is known by a cookie too, which scripts can\'t read', async () => {
    const room = await busy();
    const answer = await enter(room, as('me'));
    const { lines, jar, header } = cookies(answer);
    assert.equal(lines.length, 1);
    const [name] = Object.keys(jar);
    assert.match(name, /^admitone_entry_\d+$/);
    assert.equal(jar[name], answer.json.entryToken);
    assert.match(lines[0], /; Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/);
    const status = await server.call('GET', `/queue/${room.name}/status`, { headers: { cookie: `x=y; ${header}; z=` } });
    assert.equal(room.place(status, 200).userId, 'me');
    const other = await busy();
    assertProblem(await server.call('GET', `/queue/${other.name}/status`, { headers: { cookie: header } }), 401, 'token_required');
  });

  test('the admin key is believed, whatever users.auth says', async () => {
    const room = await busy();
    assert.equal(room.place(await room.askAsAdmin('anybody', { lane: 1 }), 202).userId, 'anybody');
    assertProblem(await room.askAsAdmin(undefined), 422, 'invalid_field');
  });
});

describe('users.auth anonymous', () => {
  let server;
  let room;
  before(async () => {
    server = await start({ args: ['--users-auth', 'anonymous', '--net-trusted-proxies', '127.0.0.1/32'] });
    room = await WaitingRoom.open(server, 'CONCERT/1', { maxActive: 1 });
    room.place(await room.askAsAdmin('first'), 200);
  });
  after(() => server.stop());
  const enter = (cookie, body, headers = {}) =>
    server.call('POST', '/queue/CONCERT/1/enter', { body, headers: { ...headers, ...(cookie === undefined ? {} : { cookie }) } });

  test('a request without a cookie is a new user, with a name that can\'t be guessed', async () => {
    const names = new Set();
    for (let i = 0; i < 20; i++) {
      const answer = await enter(undefined, i % 2 ? {} : undefined);
      const { userId } = room.place(answer, 202);
      const { lines, jar } = cookies(answer);
      assert.match(jar.admitone_user, CREDENTIAL);
      assert.ok(!jar.admitone_user.includes(userId.slice(5)), 'the name is not the proof');
      assert.match(userId, /^anon-[A-Za-z0-9_-]{22}$/);
      assert.match(lines.find((line) => line.startsWith('admitone_user=')), /; Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/);
      assert.equal(lines.length, 2, 'and one for the place');
      names.add(userId);
    }
    assert.equal(names.size, 20);
  });

  test('a cookie of the name that is not ours does not hide the one that is', async () => {
    const first = await enter();
    const { jar } = cookies(first);
    const again = await enter(`admitone_user=junk; admitone_user=${jar.admitone_user}`);
    assert.equal(again.json.entryToken, first.json.entryToken);
    const [name] = Object.keys(jar).filter((one) => one.startsWith('admitone_entry_'));
    const cookie = `${name}=x; ${name}=${jar[name]}; admitone_user=${jar.admitone_user}`;
    assert.equal((await server.call('GET', '/queue/CONCERT/1/status', { headers: { cookie } })).status, 200);
  });

  test('a page of another site can not make a browser take another user’s cookie', async () => {
    const [{ host, port, call }] = server.nodes;
    const enterFrom = (origin, headers = {}) => call('POST', '/queue/CONCERT/1/enter', { headers: { origin, ...headers } });
    for (const origin of ['https://evil.example', 'null', `http://${host}:1`, `https://${host}:${port}.evil.example`]) {
      const answer = await enterFrom(origin, { 'content-type': 'application/x-www-form-urlencoded' });
      assertProblem(answer, 403, 'foreign_origin');
      assert.equal(answer.headers['set-cookie'], undefined);
    }
    assert.equal((await enterFrom(`http://${host}:${port}`)).status, 202, 'the pages themselves');
  });

  test('a request with the cookie is the same user, and gets it once', async () => {
    const first = await enter();
    const { jar } = cookies(first);
    const again = await enter(`a=b; admitone_user=${jar.admitone_user}`);
    assert.equal(again.json.entryToken, first.json.entryToken);
    assert.equal(cookies(again).jar.admitone_user, undefined, 'it has one');
    assert.equal((await enter(`admitone_user=${jar.admitone_user}`, { userId: first.json.userId })).json.entryToken, first.json.entryToken);
    const { header } = cookies(first);
    assert.equal((await server.call('GET', '/queue/CONCERT/1/status', { headers: { cookie: header } })).json.userId, first.json.userId);
  });

  test('naming a user gives no access to a place', async () => {
    const victim = (await enter()).json;
    const thief = cookies(await enter()).jar.admitone_user;
    const { waiting } = await room.numbers();
    for (const userId of [victim.userId, 'first', 'anybody', 7]) {
      assertProblem(await enter(undefined, { userId }), 403, 'user_mismatch');
      assertProblem(await enter(`admitone_user=${thief}`, { userId }), 403, 'user_mismatch');
    }
    const both = { ...bearer(victim.entryToken), cookie: `admitone_user=${thief}` };
    assertProblem(await server.call('GET', '/queue/CONCERT/1/status', { headers: both }), 403, 'user_mismatch');
    assertProblem(await server.call('DELETE', '/queue/CONCERT/1/leave', { headers: both }), 403, 'user_mismatch');
    assert.equal((await room.numbers()).waiting, waiting);
    assert.equal((await room.status(victim.entryToken)).position, victim.position);
  });

  test('a cookie that this server has not signed is no proof: not the public userId, not a forged one', async () => {
    const victim = await enter();
    const { userId } = victim.json;
    const good = cookies(victim).jar.admitone_user;
    const forged = Array.from(good, (was, i) => good.slice(0, i) + (was === 'A' ? 'B' : 'A') + good.slice(i + 1));
    const values = ['first', '', 'anon-', userId, userId.slice(5), `anon-${'A'.repeat(22)}`, good.slice(0, -1), `${good}A`, victim.json.entryToken];
    for (const value of [...values, ...forged]) {
      const answer = await enter(`admitone_user=${value}`);
      assert.equal(answer.status, 202, value);
      assert.notEqual(answer.json.userId, userId, value);
      assert.match(cookies(answer).jar.admitone_user, CREDENTIAL, 'a new user, as without a cookie');
      assertProblem(await server.call('GET', '/reservations', { headers: { cookie: `admitone_user=${value}` } }), 401, 'token_required');
    }
    assert.equal((await server.call('GET', '/reservations', { headers: { cookie: `admitone_user=${good}` } })).status, 200);
  });

  test('leave by cookie is refused to pages of other sites, like other requests that change something', async () => {
    const [node] = server.nodes;
    const { header } = cookies(await enter());
    const leave = (headers) => node.call('DELETE', '/queue/CONCERT/1/leave', { headers: { cookie: header, ...headers } });
    for (const origin of ['https://evil.example', 'null']) assertProblem(await leave({ origin }), 403, 'foreign_origin');
    assert.equal((await server.call('GET', '/queue/CONCERT/1/status', { headers: { cookie: header } })).json.status, 'WAITING');
    assert.equal((await leave({ origin: node.url })).status, 204);
  });

  test('an Idempotency-Key is of one user, also if the answer with the cookie was lost', async () => {
    const sale = await Sale.open(server, 'LOST/1', {}, { autoEnter: true });
    const hold = (key) => sale.hold(undefined, { quantity: 1 }, { headers: { 'idempotency-key': key } });
    const key = randomUUID();
    const lost = await hold(key);
    const again = await hold(key);
    assert.equal(lost.status, 201, lost.text);
    assert.equal(again.text, lost.text);
    assert.equal(again.headers['idempotency-replayed'], 'true');
    const { jar, header } = cookies(again);
    assert.match(jar.admitone_user, CREDENTIAL);
    assert.equal((await server.call('GET', `/reservations/${lost.json.id}`, { headers: { cookie: header } })).json.status, 'HELD');
    assertProblem(await server.call('GET', `/reservations/${lost.json.id}`, { headers: { 'idempotency-key': key } }), 401, 'token_required');

    assert.equal((await enter(undefined, {}, { 'idempotency-key': key })).json.userId, lost.json.userId, 'an enter, too');
    // What another client might choose as well is of nobody.
    for (const guess of ['order-1', 'a'.repeat(36), '6ba7b810-9dad-11d1-80b4-00c04fd430c8']) {
      const [one, two] = [await hold(guess), await hold(guess)];
      assert.notEqual(one.json.userId, two.json.userId, guess);
    }
    assert.equal((await sale.counts()).held, 7);
  });

  test('cookies are Secure where the client\'s side is TLS, as a trusted proxy says', async () => {
    const { lines } = cookies(await enter(undefined, undefined, { 'x-forwarded-proto': 'https' }));
    assert.equal(lines.length, 2);
    for (const line of lines) assert.match(line, /; Secure$/);
    for (const line of cookies(await enter()).lines) assert.doesNotMatch(line, /Secure/);
  });

  test('a lane can\'t be chosen', async () => {
    assertProblem(await enter(undefined, { lane: 0 }), 403, 'lane_not_allowed');
  });
});

test('the cookie of an anonymous user lives through a rotation of the key', () =>
  inFolder(async ({ dataDir, keyFile }) => {
    const [a, b] = [keyFile('a', 'a'.repeat(40)), keyFile('b', 'b'.repeat(40))];
    const enterAt = async (cookie, ...args) => {
      const server = await start({ dataDir, args: ['--users-auth', 'anonymous', ...args] });
      await server.admin('PUT', '/admin/events/CONCERT/1', concert());
      const { json, headers } = await server.call('POST', '/queue/CONCERT/1/enter', { headers: cookie && { cookie: `admitone_user=${cookie}` } });
      await server.stop();
      return { userId: json.userId, cookie: cookies({ headers }).jar.admitone_user };
    };
    const old = await enterAt(undefined, '--secret-file', a);
    const rotated = await enterAt(old.cookie, '--secret-file', b, '--secret-previous-file', a);
    assert.equal(rotated.userId, old.userId);
    assert.match(rotated.cookie, CREDENTIAL, 'signed with the new key');
    assert.notEqual(rotated.cookie, old.cookie);
    const fresh = await enterAt(rotated.cookie, '--secret-file', b);
    assert.deepEqual(fresh, { userId: old.userId, cookie: undefined });
    assert.notEqual((await enterAt(old.cookie, '--secret-file', b)).userId, old.userId);
  }));

test('a user who was ACTIVE in signed mode and comes again after the stay is a new entry of the same user', () =>
  inFolder(async ({ dataDir, keyFile }) => {
    const server = await start({ dataDir, args: ['--users-auth', 'signed', '--users-key-file', keyFile('key', KEY), '--queue-tick-ms', '10'] });
    const room = await WaitingRoom.open(server, 'CONCERT/1', { maxActive: 1, activeTtlSeconds: 1 });
    const headers = { 'x-user-assertion': jwt(KEY, { sub: 'me' }) };
    const first = room.place(await server.call('POST', '/queue/CONCERT/1/enter', { headers }), 200);
    await until('the stay is over', async () => (await room.gate(first.entryToken)).status === 403);
    const second = await until('it is ACTIVE again', async () => {
      const { json } = await server.call('POST', '/queue/CONCERT/1/enter', { headers });
      return json.status === 'ACTIVE' && json;
    });
    assert.notEqual(second.entryToken, first.entryToken);
    assertProblem(await room.gate(first.entryToken), 403, 'not_active');
    await server.stop();
  }));
