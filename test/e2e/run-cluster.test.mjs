// scripts/run-cluster (`make run-cluster`): which processes it starts, and that it stops all of them.
// First with the real program; then with stub nodes, which end when the test wants it.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { BINARY, call, environment, launch, removeFolder, tempFolder, test, until } from './support/server.mjs';

const SCRIPT = fileURLToPath(new URL('../../scripts/run-cluster', import.meta.url));

// Prints its pid and its flags, and follows the test's commands until it is asked to end.
const NODE = `#!/usr/bin/env bash
trap 'echo ended in order; exit 0' TERM
echo "pid=$$ flags: $*"
echo "level=info msg=listening addr=$3" >&2
while [ ! -e "$5.exit" ]; do sleep 0.05; done
echo "cannot go on" >&2
exit 7
`;

function cluster(t, { node = NODE, binary, ports = '1,2', kafka = ['--no-kafka'], args = [] } = {}) {
  const folder = tempFolder();
  fs.chmodSync(folder, 0o755);
  const at = (name) => path.join(folder, name);
  fs.writeFileSync(at('node'), node, { mode: 0o755 });
  fs.mkdirSync(at('tmp'));
  const env = environment({ TMPDIR: at('tmp') });
  const flags = ['--dir', at('cluster'), '--binary', binary ?? at('node'), '--ports', ports, ...kafka, ...args];
  t.after(() => removeFolder(folder));
  return { at, start: () => launch([SCRIPT, ...flags], { env }) };
}

// Those of a node: name → value, or true.
function flagsOf(self, number) {
  const [, words] = new RegExp(`^node ${number}: pid=\\d+ flags: serve (.*)$`, 'm').exec(self.stdout);
  const found = [...words.matchAll(/--(\S+)(?: (?!--)(\S+))?/g)];
  return Object.fromEntries(found.map(([, name, value]) => [name, value ?? true]));
}

const pidOf = (self, number) => new RegExp(`^node ${number}: pid=(\\d+)`, 'm').exec(self.stdout)[1];
const isAlive = (pid) => fs.existsSync(`/proc/${pid}`);

function runs(self) {
  const isUp = () => {
    assert.equal(self.exit, null, self.stderr);
    return self.stdout.includes('Ctrl-C ends all of it');
  };
  return until('it runs', isUp);
}

function answer(file, args) {
  return spawnSync(file, args, { encoding: 'utf8', env: environment(), timeout: 20000 }).stdout.trim();
}

async function assertNothingLeft({ at }, self, pids) {
  assert.deepEqual(pids.filter(isAlive), [], self.stdout);
  await until('the servers are gone', () => fs.readdirSync(at('tmp')).length === 0);
}

test('two real nodes serve one sale, and Ctrl-C ends all of it', async (t) => {
  const own = cluster(t, { binary: BINARY, ports: '0,0', kafka: [] });
  const self = own.start();
  await runs(self);
  const ports = [1, 2].map((number) => Number(new RegExp(`^node ${number}: .*msg=listening addr=127.0.0.1:(\\d+)`, 'm').exec(self.stdout)[1]));
  for (const port of ports) {
    assert.equal((await call({ port }, 'GET', '/ready')).status, 200);
    await until('the demo is there', async () => (await call({ port }, 'GET', '/events/CONCERT/1')).status === 200);
  }
  const entered = await call({ port: ports[0] }, 'POST', '/queue/CONCERT/1/enter', { body: { userId: 'ann' } });
  assert.equal(entered.json.status, 'ACTIVE', entered.text);
  const headers = { authorization: `Bearer ${entered.json.entryToken}` };
  const wish = { eventType: 'CONCERT', eventId: '1', section: 'B', quantity: 1 };
  await until('Kafka takes requests', async () => (await call({ port: ports[1] }, 'GET', '/ready')).json.feed === 'ok');
  const accepted = await call({ port: ports[1] }, 'POST', '/api/v4/queue', { headers, body: wish });
  assert.equal(accepted.status, 202, accepted.text);
  const status = () => call({ port: ports[0] }, 'GET', `/api/v4/status/${accepted.json.requestId}`, { headers });
  await until('the request is decided', async () => (await status()).json.status === 'SUCCESS');
  const [, broker] = /^ {2}kcat -b (\S+) -L$/m.exec(self.stdout);
  assert.match(answer('kcat', ['-b', broker, '-C', '-t', 'ticket-reservation-events', '-e', '-q']), new RegExp(accepted.json.requestId));
  const held = await call({ port: ports[1] }, 'POST', '/reservations', {
    headers,
    body: { eventType: 'CONCERT', eventId: '1', section: 'A', quantity: 2 },
  });
  assert.equal(held.status, 201, held.text);
  const confirmed = await call({ port: ports[0] }, 'POST', `/reservations/${held.json.id}/confirm`, { headers });
  assert.equal(confirmed.json.status, 'CONFIRMED', confirmed.text);
  self.child.kill('SIGINT');
  assert.deepEqual(await self.ended, { code: 0, signal: null }, self.stderr);
  await assertNothingLeft(own, self, []);
});

for (const signal of ['SIGINT', 'SIGTERM']) {
  test(`two nodes share Redis, PostgreSQL and keys; ${signal} ends all`, async (t) => {
    const own = cluster(t, { args: ['--log-level', 'debug'] });
    const self = own.start();
    await runs(self);
    const [one, two] = [flagsOf(self, 1), flagsOf(self, 2)];
    assert.equal(one.listen, '127.0.0.1:1');
    assert.equal(two.listen, '127.0.0.1:2');
    assert.notEqual(one.data, two.data);
    assert.equal(one.demo, true);
    assert.equal(two.demo, undefined);
    for (const shared of ['hot', 'ledger', 'secret-file', 'admin-key-file', 'pass-key-file', 'log-level']) {
      assert.ok(one[shared], shared);
      assert.equal(one[shared], two[shared]);
    }
    assert.equal(answer('redis-cli', ['-u', one.hot, 'ping']), 'PONG');
    assert.equal(answer('psql', [one.ledger, '-qAtX', '-c', 'SELECT 1']), '1');
    const keys = ['secret-file', 'admin-key-file', 'pass-key-file'].map((key) => one[key]);
    const texts = keys.map((file) => fs.readFileSync(file, 'utf8'));
    assert.equal(new Set(texts).size, 3);
    for (const text of texts) assert.match(text, /^[0-9a-f]{64}\n$/);
    for (const file of keys) assert.equal(fs.statSync(file).mode & 0o777, 0o600);

    self.child.kill(signal);
    assert.deepEqual(await self.ended, { code: 0, signal: null });
    await assertNothingLeft(own, self, [pidOf(self, 1), pidOf(self, 2)]);
    assert.equal(self.stdout.match(/^node \d: ended in order$/gm)?.length, 2);

    const again = own.start();
    await runs(again);
    assert.deepEqual(keys.map((file) => fs.readFileSync(file, 'utf8')), texts);
    again.child.kill(signal);
    await again.ended;
  });
}

test('a node that exits is named, with where it says why, and takes the rest with it', async (t) => {
  const own = cluster(t);
  const self = own.start();
  await runs(self);
  fs.writeFileSync(own.at('cluster/node-2.exit'), '');
  assert.deepEqual(await self.ended, { code: 1, signal: null });
  assert.match(self.stdout, /^node 2: cannot go on$/m);
  assert.match(self.stderr, /node 2 exited with code 7; its log, \S+\/cluster\/node-2\.log, says why/);
  assert.match(fs.readFileSync(own.at('cluster/node-2.log'), 'utf8'), /cannot go on/);
  await assertNothingLeft(own, self, [pidOf(self, 1), pidOf(self, 2)]);
});

test('a node that does not even start is reported at once', async (t) => {
  const own = cluster(t, { node: '#!/bin/sh\necho "hot: not known" >&2\nexit 2\n' });
  const self = own.start();
  assert.deepEqual(await self.ended, { code: 1, signal: null });
  assert.match(self.stderr, /node [12] exited with code 2/);
  await assertNothingLeft(own, self, []);
});

test('killed outright, it takes the nodes and the servers with it', async (t) => {
  const own = cluster(t);
  const self = own.start();
  await runs(self);
  self.child.kill('SIGKILL');
  const pids = [pidOf(self, 1), pidOf(self, 2)];
  await until('the nodes are gone', () => !pids.some(isAlive));
  await assertNothingLeft(own, self, pids);
});

test('--help and ports that are not two start nothing', (t) => {
  const own = cluster(t);
  const ask = (...args) => spawnSync(SCRIPT, ['--dir', own.at('cluster'), '--binary', own.at('node'), ...args], { encoding: 'utf8', env: environment(), timeout: 20000 });
  for (const flags of [['--help'], ['-h'], ['--log-level', 'debug', '--help']]) {
    const { status, stdout, stderr } = ask(...flags);
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^ *scripts\/run-cluster \[--dir DIR\] \[--ports PORT,PORT\]/m);
  }
  for (const ports of ['9700', '9700,', ',9700', '1,2,3', '', 'a,b', '1 2']) {
    const { status, stderr } = ask('--ports', ports);
    assert.equal(status, 2, stderr);
    assert.equal(stderr, `scripts/run-cluster: --ports needs two ports, as in 9000,9001; it is '${ports}'\n`);
  }
  assert.ok(!fs.existsSync(own.at('cluster')), 'nothing was made');
});
