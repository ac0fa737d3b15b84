// Named keys: what each role may do, their file, wrong keys, and whose name is in the audit trail.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { bearer } from './support/queue.mjs';
import { Sale } from './support/reservations.mjs';
import { assertProblem, call, concert, metricOf, metricsOf, run, runBeside, start, tempFolder, removeFolder, test, until } from './support/server.mjs';

const KEY = /^admitone_[A-Za-z0-9_-]{43}\n$/;
const ROLES = ['read', 'shop', 'operate', 'own'];

let folder;
let file;
let server;
const keys = {}; // by role

const manage = (...words) => run(['keys', ...words, '--keys-file', file]);

// Adds a key to the file, and returns it. A server that runs may not know it yet.
function added(name, role) {
  const done = manage('add', name, role);
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, KEY);
  return done.stdout.trim();
}

before(async () => {
  folder = tempFolder();
  file = path.join(folder, 'keys');
  for (const role of ROLES) keys[role] = added(`the-${role}`, role);
  server = await start({ args: ['--keys-file', file, '--users-auth', 'trusted', '--net-trusted-proxies', '127.0.0.1/32'] });
});
after(async () => {
  await server?.stop();
  removeFolder(folder);
});

const withKey = (key, method, target, body) => server.call(method, target, { body, headers: bearer(key) });
// Each time from another address, because a key that is not valid makes its address wait.
let addresses = 0;
const elsewhere = () => ({ 'x-forwarded-for': `2001:db8:${(++addresses).toString(16)}::1` });
const auditStatus = async (node, key) => (await node.call('GET', '/admin/audit?limit=1', { headers: { ...bearer(key), ...elsewhere() } })).status;
const everywhere = (key, status) =>
  until(`every node answers ${status}`, async () => (await Promise.all(server.nodes.map((node) => auditStatus(node, key)))).every((one) => one === status));
// Once on each node, perhaps a moment after the change is in force.
const isLogged = async (line) => {
  for (const node of server.nodes) {
    await until(`${line} is logged`, () => logged(node, line) > 0);
    assert.equal(logged(node, line), 1);
  }
};
const logged = (node, line) => node.stderr.split('\n').filter((one) => one.includes(line)).length;

describe('roles', () => {
  // Who may do it; the admin key may do everything.
  const READ = ['read', 'operate', 'own'];
  const OPERATE = ['operate', 'own'];
  const OWN = ['own'];
  const rows = [
    ['GET', '/admin/events/{type}/{id}', READ],
    ['PUT', '/admin/events/{type}/{id}', OWN],
    ['PATCH', '/admin/events/{type}/{id}', OWN],
    ['DELETE', '/admin/events/{type}/{id}', OWN],
    ['PATCH', '/admin/events/{type}/{id}/sections/{section}', OPERATE],
    ['GET', '/admin/queue/{type}/{id}', READ],
    ['PATCH', '/admin/queue/{type}/{id}', OPERATE],
    ['GET', '/admin/queue/{type}/{id}/status', READ],
    ['PATCH', '/admin/queue/{type}/{id}/status', OPERATE],
    ['POST', '/admin/queue/{type}/{id}/activate', OPERATE],
    ['POST', '/admin/queue/{type}/{id}/pause', OPERATE],
    ['POST', '/admin/queue/{type}/{id}/resume', OPERATE],
    ['POST', '/admin/queue/{type}/{id}/process', OPERATE],
    ['POST', '/admin/queue/{type}/{id}/drain', OPERATE],
    ['POST', '/admin/queue/{type}/{id}/deactivate', OPERATE],
    ['GET', '/admin/stats', READ],
    ['GET', '/admin/stats/stream', READ],
    ['GET', '/admin/simulator', READ],
    ['POST', '/admin/simulator', OPERATE],
    ['PATCH', '/admin/simulator', OPERATE],
    ['DELETE', '/admin/simulator', OPERATE],
    ['GET', '/admin/key', READ],
    ['GET', '/admin/audit', READ],
    ['GET', '/admin/facts', READ],
  ];

  test('each admin path has a row in the table above', () => {
    const source = fs.readFileSync(new URL('../../src/api/router.c', import.meta.url), 'utf8');
    const routed = [...source.matchAll(/\{HTTP_(\w+), \w+, "(\/admin\/[^"]+)"/g)].map(([, method, target]) => `${method} ${target}`);
    assert.deepEqual(rows.map(([method, target]) => `${method} ${target}`).sort(), routed.sort());
  });

  test('each admin path is for the roles of its row, and says so to the others', async () => {
    for (const [method, pattern, roles] of rows) {
      // No such event: what is allowed changes nothing.
      const target = pattern.replace('{type}', 'NONE').replace('{id}', '1').replace('{section}', 'A').replace('/stream', '/stream?event=NONE/1');
      const body = method === 'PATCH' || method === 'PUT' ? {} : undefined;
      for (const role of ROLES) {
        const answer = await withKey(keys[role], method, target, body);
        if (roles.includes(role)) {
          assert.ok(![401, 403, 429].includes(answer.status), `${role}: ${method} ${pattern}: ${answer.text}`);
        } else {
          const { detail } = assertProblem(answer, 403, 'key_not_allowed');
          assert.match(detail, new RegExp(`^The key "the-${role}" has the role ${role}\\. This path needs .*own\\.$`));
        }
      }
      assertProblem(await server.call(method, target, { body }), 401, 'admin_key_required');
    }
  });

  test('GET /admin/key says which role a key has', async () => {
    for (const role of ['read', 'operate', 'own'])
      assert.deepEqual((await withKey(keys[role], 'GET', '/admin/key')).json, { name: `the-${role}`, role });
    assert.deepEqual((await withKey(server.adminKey, 'GET', '/admin/key')).json, { name: 'admin', role: 'own' });
  });

  test('operate opens and closes sections, and changes nothing else of an event', async () => {
    await server.admin('PUT', '/admin/events/ROLE/1', concert());
    const patch = (body, role = 'operate') => withKey(keys[role], 'PATCH', '/admin/events/ROLE/1/sections/A', body);
    assert.equal((await patch({ status: 'closed' })).status, 200);
    assert.equal((await patch({ status: 'open' })).status, 200);
    for (const body of [{ price: 1 }, { status: 'closed', price: 1 }, { capacity: 7, name: 'B' }])
      assertProblem(await patch(body), 403, 'key_not_allowed');
    assert.equal((await withKey(keys.read, 'GET', '/admin/events/ROLE/1')).json.sections[0].status, 'open');
    assert.equal((await patch({ status: 'open', price: 1 }, 'own')).status, 200);
  });

  test('shop and own act for every user, and other keys for none', async () => {
    const sale = await Sale.open(server, 'ROLE/2');
    const ann = await sale.buyer('ann');
    const { id } = await sale.held(ann);
    const enter = (key) => withKey(key, 'POST', '/queue/ROLE/2/enter', { userId: 'ben', lane: 1 });
    for (const role of ['shop', 'own']) {
      assert.equal((await enter(keys[role])).status, 200);
      assert.equal((await withKey(keys[role], 'GET', `/reservations/${id}`)).status, 200);
      assert.equal((await withKey(keys[role], 'GET', '/reservations?userId=ann')).json.reservations.length, 1);
    }
    for (const role of ['read', 'operate']) {
      const refused = [enter(keys[role]), withKey(keys[role], 'GET', `/reservations/${id}`), withKey(keys[role], 'GET', '/reservations?userId=ann'), sale.confirm({ token: keys[role] }, id), sale.cancel({ token: keys[role] }, id)];
      for (const answer of await Promise.all(refused)) assert.match(assertProblem(answer, 403, 'key_not_allowed').detail, /Here a key needs the role shop or own\.$/);
    }
    await sale.got(ann, id, 'HELD');
    // Paths that need no key do not look at it.
    assert.equal((await withKey(keys.read, 'GET', '/events/ROLE/2')).status, 200);
    assert.equal((await withKey('wrong', 'GET', '/events/ROLE/2')).status, 200);
  });
});

test('the audit trail names the key: also when it confirms or cancels a reservation, and not when the user does', async () => {
  const sale = await Sale.open(server, 'TRAIL/1');
  const trail = await server.newestAudit();
  const rowsSince = async () => (await server.admin('GET', '/admin/audit?limit=100')).json.audit.filter(({ id }) => id > trail).reverse().map(({ actor, act, subject, detail }) => ({ actor, act, subject, detail }));
  const ann = await sale.buyer('ann');
  const [first, second, third] = [await sale.held(ann), await sale.held(ann), await sale.held(ann)];
  await sale.confirmed({ token: keys.shop }, first.id);
  await sale.confirmed({ token: keys.shop }, first.id); // changes nothing
  await sale.cancelled({ token: keys.own }, first.id, { body: { userId: 'ann' } });
  await sale.cancelled({ token: keys.own }, first.id); // likewise
  assertProblem(await sale.confirm({ token: keys.shop }, first.id), 409, 'reservation_ended');
  await sale.confirmed(ann, second.id);
  await sale.cancelled({ token: server.adminKey }, second.id);
  await sale.cancelled(ann, third.id);
  for (const [role, method, target, body] of [
    ['operate', 'POST', '/admin/queue/TRAIL/1/pause'],
    ['operate', 'PATCH', '/admin/events/TRAIL/1/sections/A', { status: 'closed' }],
    ['own', 'PATCH', '/admin/events/TRAIL/1', { title: 'New' }],
    ['own', 'DELETE', '/admin/events/TRAIL/1'],
  ])
    assert.ok((await withKey(keys[role], method, target, body)).status < 300, target);
  assert.deepEqual(await rowsSince(), [
    { actor: 'the-shop', act: 'reservation.confirm', subject: `reservations/${first.id}`, detail: {} },
    { actor: 'the-own', act: 'reservation.cancel', subject: `reservations/${first.id}`, detail: { userId: 'ann' } },
    { actor: 'admin', act: 'reservation.cancel', subject: `reservations/${second.id}`, detail: {} },
    { actor: 'the-operate', act: 'queue.pause', subject: 'TRAIL/1', detail: {} },
    { actor: 'the-operate', act: 'section.patch', subject: 'TRAIL/1/sections/A', detail: { status: 'closed' } },
    { actor: 'the-own', act: 'event.patch', subject: 'TRAIL/1', detail: { title: 'New' } },
    { actor: 'the-own', act: 'event.delete', subject: 'TRAIL/1', detail: {} },
  ]);
});

test('a place in a lane that a key chose is in the audit trail, once', async () => {
  const sale = await Sale.open(server, 'TRAIL/LANE', { maxActive: 1 });
  await sale.buyer('first');
  const trail = await server.newestAudit();
  const enter = async (userId, lane) => {
    const answer = await withKey(keys.shop, 'POST', '/queue/TRAIL/LANE/enter', { userId, lane });
    assert.equal(answer.status, 202, answer.text);
    return answer.json.position;
  };
  assert.equal(await enter('ann'), 1);
  assert.equal(await enter('ben', 8), 2);
  assert.equal(await enter('cara', 1), 1);
  assert.equal(await enter('cara', 1), 1);
  assert.equal(await enter('cara', 2), 1, 'in the first lane still');
  assert.equal(await enter('ann', 0), 2, 'in the first lane still');
  const rows = (await server.admin('GET', '/admin/audit?limit=100')).json.audit.filter(({ id }) => id > trail);
  assert.deepEqual(rows.map(({ actor, act, subject, detail }) => ({ actor, act, subject, detail })), [
    { actor: 'the-shop', act: 'queue.enter', subject: 'TRAIL/LANE', detail: { userId: 'cara', lane: 1 } },
  ]);
});

test('many confirmations by key, while the event is changed: each has its row, and nothing stands still', async () => {
  const sale = await Sale.open(server, 'TRAIL/2', {}, { maxPerUser: 10 });
  const trail = await server.newestAudit();
  const buyers = await sale.buyers(20);
  const holds = await Promise.all(buyers.map((buyer) => sale.held(buyer)));
  const changes = Array.from({ length: 5 }, (_, i) => server.admin('PATCH', '/admin/events/TRAIL/2', { title: `Title ${i}` }, { races: true }));
  const done = await Promise.all(holds.map(({ id }, i) => (i % 2 ? sale.confirm({ token: keys.shop }, id) : sale.cancel({ token: keys.shop }, id))));
  for (const { status, text } of [...done, ...(await Promise.all(changes))]) assert.equal(status, 200, text);
  const { audit } = (await server.admin('GET', '/admin/audit?limit=100')).json;
  const acts = audit.filter(({ id }) => id > trail).map(({ act, subject }) => `${act} ${subject}`);
  const expected = [...holds.map(({ id }, i) => `reservation.${i % 2 ? 'confirm' : 'cancel'} reservations/${id}`), ...changes.map(() => 'event.patch TRAIL/2')];
  assert.deepEqual(acts.sort(), expected.sort());
});

describe('the file of keys', () => {
  test('has digests and is its owner\'s; the command lists it, and refuses what would make it ambiguous', () => {
    assert.equal(fs.statSync(file).mode & 0o777, 0o600);
    const text = fs.readFileSync(file, 'utf8');
    assert.match(text, /^the-read read sha256:[0-9a-f]{64}\nthe-shop shop sha256:/);
    for (const key of Object.values(keys)) assert.ok(!text.includes(key));
    const { status, stdout } = manage('list');
    assert.equal(status, 0);
    assert.deepEqual(stdout.split('\n').slice(0, 4).map((line) => line.split(/ +/).slice(0, 2)), ROLES.map((role) => [`the-${role}`, role]));
    for (const [words, code, why] of [
      [['add', 'the-shop', 'shop'], 1, /there is a key "the-shop" already/],
      [['remove', 'nobody'], 1, /there is no key "nobody" in /],
      [['add', 'admin', 'own'], 2, /is not admin or demo/],
      [['add', 'a b', 'own'], 2, /a name has up to 32 letters/],
      [['add', 'x', 'root'], 2, /the role is one of read, shop, operate, own/],
      [['add', 'x'], 2, /add needs a NAME and a ROLE/],
      [['remove'], 2, /remove needs a NAME/],
      [['list', 'x'], 2, /list needs no further word/],
      [['show'], 2, /it needs a word: list, add or remove/],
      [[], 2, /it needs a word/],
    ]) {
      const done = manage(...words);
      assert.equal(done.status, code, done.stderr);
      assert.match(done.stderr, why);
      assert.equal(done.stdout, '');
    }
    assert.equal(fs.readFileSync(file, 'utf8'), text);
    const lost = run(['keys', 'add', 'x', 'own', '--keys-file', path.join(folder, 'none/keys')]);
    assert.equal(lost.status, 2);
    assert.match(lost.stderr, /cannot lock .*none.keys\.lock: No such file/);
  });

  test('commands that run at once lose no key, and keep comments and the owner of the file', async () => {
    const other = path.join(folder, 'others');
    fs.writeFileSync(other, '# ours', { mode: 0o600 });
    const isRoot = process.getuid() === 0; // who may change the keys of the server's user
    if (isRoot) fs.chownSync(other, 12345, 12345);
    const names = Array.from({ length: 6 }, (_, i) => `key-${i}`);
    const done = await Promise.all(names.map((name) => runBeside(['keys', 'add', name, 'read', '--keys-file', other])));
    for (const { status, stderr } of done) assert.equal(status, 0, stderr);
    assert.equal(run(['keys', 'remove', 'key-3', '--keys-file', other]).status, 0);
    const lines = fs.readFileSync(other, 'utf8').trimEnd().split('\n');
    assert.equal(lines[0], '# ours');
    assert.equal(fs.statSync(other).uid, isRoot ? 12345 : process.getuid());
    assert.deepEqual(lines.slice(1).map((line) => line.split(' ')[0]).sort(), names.filter((name) => name !== 'key-3'));
  });

  test('a running server accepts new keys and refuses removed ones', async () => {
    const next = added('rotated-2', 'read');
    await everywhere(next, 200);
    await isLogged('msg="key added" name=rotated-2 role=read');
    assert.equal(manage('remove', 'rotated-2').status, 0);
    await everywhere(next, 401);
    await isLogged('msg="key removed" name=rotated-2 role=read');
    await everywhere(keys.read, 200);
    // The same name with another role.
    const text = fs.readFileSync(file, 'utf8');
    fs.writeFileSync(file, text.replace('the-operate operate', 'the-operate shop'));
    await everywhere(keys.operate, 403);
    await isLogged('msg="key replaced" name=the-operate role=shop');
    fs.writeFileSync(file, text);
    await everywhere(keys.operate, 200);
  });

  test('a file that is not valid is reported once, and the keys of before stay in force', async () => {
    const text = fs.readFileSync(file, 'utf8');
    const warnings = (reason) => server.nodes.map((node) => logged(node, `stay in force" reason="${reason}`));
    const reported = (reason) => until(`it is reported: ${reason}`, () => warnings(reason).every((count) => count > 0));
    const place = `the keys file ${file}, line 5: the role is not one of`;
    fs.writeFileSync(file, `${text}broken\n`);
    await reported(place);
    await everywhere(keys.read, 200);
    fs.chmodSync(file, 0o640);
    await reported(`the key file ${file} can be read by others`);
    fs.rmSync(file);
    await reported(`cannot read the key file ${file}`);
    // A key of the server itself.
    const digest = createHash('sha256').update(fs.readFileSync(path.join(server.dataDir, 'secret'), 'utf8').trim()).digest('hex');
    fs.writeFileSync(file, `${text}foo own sha256:${digest}\n`, { mode: 0o600 });
    await reported(`the key \\"foo\\" of the keys file ${file} and secret_file have the same key`);
    await everywhere(keys.shop, 403);
    fs.writeFileSync(file, text.replace(/^the-shop .*\n/m, ''), { mode: 0o600 });
    await everywhere(keys.shop, 401);
    await everywhere(keys.read, 200);
    assert.deepEqual(warnings(place), server.nodes.map(() => 1), 'once, although it was looked at more than once');
    fs.writeFileSync(file, text);
    await everywhere(keys.shop, 403);
  });
});

describe('wrong keys', () => {
  const from = (address, key, target = '/admin/audit', method = 'GET', body = undefined) =>
    call(server.nodes[0], method, target, { body, headers: { ...bearer(key), 'x-forwarded-for': address } });
  const failures = async (reason) => metricOf(await metricsOf(server), `admitone_admin_key_failures_total{reason="${reason}"}`);

  test('after a few, the address must wait, and longer each time; another need not', async () => {
    const [wrongBefore, delayed] = [await failures('wrong'), await failures('delayed')];
    const address = '198.51.100.7';
    const begunMs = performance.now();
    let wrong = 0;
    let answer;
    while ((answer = await from(address, `wrong key ${wrong}`)).status !== 429) {
      assertProblem(answer, 401, 'admin_key_required');
      assert.ok(++wrong < 20);
    }
    assertProblem(answer, 429, 'too_many_wrong_keys');
    assert.ok(wrong >= 5, `${wrong}`);
    // The wait after that many keys; the 429 may come late in it.
    const waitAfter = (count) => 2 ** (count - 5);
    const rest = Number(answer.headers['retry-after']);
    assert.ok(rest >= 1 && rest <= waitAfter(wrong), `${rest} s after ${wrong}`);
    assert.equal((await from('198.51.100.8', keys.own)).status, 200);
    assert.equal(await failures('wrong'), wrongBefore + wrong);
    assert.equal(await failures('delayed'), delayed + 1);

    // Not even the right key is looked at before the end of the wait, which has doubled.
    for (let inTime = false; !inTime; ) {
      await until('the right key is accepted again', async () => (await from(address, keys.own)).status === 200);
      const startedMs = performance.now();
      assertProblem(await from(address, 'wrong key'), 401, 'admin_key_required');
      wrong++;
      answer = await from(address, keys.own);
      inTime = performance.now() - startedMs < waitAfter(wrong) * 1000;
    }
    assertProblem(answer, 429, 'too_many_wrong_keys');
    assert.ok(Number(answer.headers['retry-after']) <= waitAfter(wrong));
    assert.equal(logged(server.nodes[0], `level=warn msg="a client sent a wrong key" client=${address} wrong_keys=1`), 1);
    const minutes = Math.ceil((performance.now() - begunMs) / 60000);
    assert.ok(logged(server.nodes[0], `client=${address} wrong_keys`) <= minutes, 'one line a minute');
    assert.ok(!server.stderr.includes('wrong key 1'));
  });

  test('a request without a key, or with an entry token in its place, is no attempt', async () => {
    const sale = await Sale.open(server, 'WRONG/1');
    const { token } = await sale.buyer('ann');
    for (let i = 0; i < 8; i++) {
      assertProblem(await from('198.51.100.9', token), 401, 'admin_key_required');
      assertProblem(await call(server.nodes[0], 'GET', '/admin/audit', { headers: { 'x-forwarded-for': '198.51.100.9' } }), 401, 'admin_key_required');
    }
    assert.equal((await from('198.51.100.9', keys.read)).status, 200);
    const changed = token.slice(0, -1) + (token.endsWith('A') ? 'B' : 'A');
    const before = await failures('wrong');
    for (let i = 0; i < 2; i++) assertProblem(await from('198.51.100.12', changed), 401, 'admin_key_required');
    assert.equal(await failures('wrong'), before + 2, 'a text as long as a token is one');
  });

  test('where users go without a key, what is none is ignored, but trying keys is slowed down too', async () => {
    const sale = await Sale.open(server, 'WRONG/2');
    const { id } = await sale.held(await sale.buyer('ann'));
    const get = (address, key) => from(address, key, `/reservations/${id}`);
    const enter = (address, key) => from(address, key, '/queue/WRONG/2/enter', 'POST', { userId: 'ann' });
    for (let i = 0; i < 8; i++) assert.equal((await enter('198.51.100.10', 'of the shop')).status, 200);
    assert.equal((await get('198.51.100.10', keys.shop)).status, 200);
    // Each wrong key doubles the wait, so one of them is long enough for the next request.
    let answer;
    for (let i = 0; i === 0 || answer.status === 200; i++) {
      assert.equal((await enter('198.51.100.11', `admitone_${i}`)).status, 200);
      answer = await get('198.51.100.11', keys.shop);
      assert.ok(i < 20);
    }
    assertProblem(answer, 401, 'token_required');
    assert.equal((await get('198.51.100.10', keys.shop)).status, 200);
  });
});
