// scripts/services: the private Redis, PostgreSQL, Sentinels and Kafka that tests and
// `make run-cluster` use.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { PSQL } from './support/cluster.mjs';
import { consume, createTopic, produce } from './support/kafka.mjs';
import { environment, launch, removeFolder, tempFolder, test, until } from './support/server.mjs';

const SCRIPT = fileURLToPath(new URL('../../scripts/services', import.meta.url));
const KAFKA_MS = 600000; // the first start in a checkout downloads Kafka

// Runs the script to its end: { status, stderr }, and the printed values by name.
function services(args, env = {}, { script = SCRIPT, timeout = 150000 } = {}) {
  const done = spawnSync(script, args, { encoding: 'utf8', env: environment(env), timeout });
  assert.ifError(done.error);
  const lines = done.stdout.split('\n').filter((line) => line.includes('='));
  return { status: done.status, stderr: done.stderr, env: Object.fromEntries(lines.map((line) => line.split('='))) };
}

// They end with this test program at the latest.
function start(args, env, options) {
  const parent = args.includes('--with-parent') ? [] : ['--with-parent', String(process.pid)];
  const { status, stderr, env: printed } = services(['start', ...args, ...parent], env, options);
  assert.equal(status, 0, stderr);
  return printed;
}

function stop(folder, ...names) {
  const { status, stderr } = services(['stop', folder, ...names]);
  assert.equal(status, 0, stderr);
}

function output(file, args, input = '') {
  const done = spawnSync(file, args, { encoding: 'utf8', env: environment(), input, timeout: 20000 });
  assert.ifError(done.error);
  return done.stdout.trim();
}

const redis = (port, ...words) => output('redis-cli', ['-h', '127.0.0.1', '-p', port, ...words]);
const psql = (env, sql) => output(PSQL, [env.POSTGRES_URL, '-qAtX', '-c', sql]);
const masterPort = (env) =>
  redis(env.SENTINEL_2_PORT, 'sentinel', 'get-master-addr-by-name', 'main').split('\n')[1];

function isAlive(pid) {
  try {
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

const pidsOf = (env) => Object.keys(env).filter((name) => name.endsWith('_PID')).map((name) => env[name]);

// Processes that name the folder in their command line or stand in it.
function processesIn(folder) {
  return fs.readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid) || !isAlive(pid)) return false;
    try {
      const line = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8');
      return line.includes(folder) || fs.readlinkSync(`/proc/${pid}/cwd`).startsWith(folder);
    } catch {
      return false;
    }
  });
}

function assertNoTrace(env) {
  assert.deepEqual(pidsOf(env).filter(isAlive), []);
  assert.equal(fs.existsSync(env.SERVICES_DIR), false);
}

test('all start, each answers, and stop leaves neither a process nor the folder', () => {
  const env = start(['redis', 'postgres', 'sentinel', '--unsafe-fast']);
  assert.equal(pidsOf(env).length, 7);
  assert.equal(pidsOf(env).every(isAlive), true);
  const written = fs.readFileSync(path.join(env.SERVICES_DIR, 'env'), 'utf8');
  assert.equal(written, Object.entries(env).map(([name, value]) => `${name}=${value}\n`).join(''));

  assert.equal(env.REDIS_URL, `redis://127.0.0.1:${env.REDIS_PORT}`);
  assert.equal(output('redis-cli', ['-u', env.REDIS_URL, 'ping']), 'PONG');
  assert.equal(redis(env.REDIS_PORT, 'config', 'get', 'appendonly'), 'appendonly\nno');
  assert.equal(env.POSTGRES_URL, `postgres://admitone@127.0.0.1:${env.POSTGRES_PORT}/admitone`);
  const settings = `current_user, current_database(), current_setting('max_connections'),
    current_setting('listen_addresses'), current_setting('fsync')`;
  assert.equal(psql(env, `SELECT ${settings}`), 'admitone|admitone|200|127.0.0.1|off');
  const memory = fs.readdirSync(path.join(env.SERVICES_DIR, 'postgres', 'data', 'pg_dynshmem'));
  assert.ok(memory.length > 0, 'PostgreSQL keeps its shared memory in the folder: it may be killed');
  assert.equal(masterPort(env), env.SENTINEL_MASTER_PORT);
  const three = [1, 2, 3].map((n) => `127.0.0.1:${env[`SENTINEL_${n}_PORT`]}`);
  assert.equal(env.SENTINEL_URL, `redis+sentinel://${three.join(',')}/main`);

  assert.equal(services(['status', env.SERVICES_DIR]).status, 0);
  stop(env.SERVICES_DIR);
  assertNoTrace(env);
  stop(env.SERVICES_DIR);
});

test('a folder that was there before stays, and its servers start again as they were', () => {
  const folder = tempFolder();
  fs.chmodSync(folder, 0o755);
  const first = start(['redis', 'postgres', '--redis-aof', '--dir', folder]);
  assert.equal(psql(first, "SELECT current_setting('fsync')"), 'on');
  psql(first, 'CREATE TABLE kept AS SELECT 42 AS n');
  redis(first.REDIS_PORT, 'set', 'kept', '42');
  stop(folder);
  assert.deepEqual(pidsOf(first).filter(isAlive), []);
  assert.equal(services(['status', folder]).status, 1);
  stop(folder);

  const second = start(['redis', 'postgres', '--dir', folder]);
  assert.equal(second.REDIS_URL, first.REDIS_URL);
  assert.equal(second.POSTGRES_URL, first.POSTGRES_URL);
  assert.equal(psql(second, 'SELECT n FROM kept'), '42');
  assert.equal(redis(second.REDIS_PORT, 'get', 'kept'), '42');
  stop(folder);
  assert.equal(fs.existsSync(folder), true);
  removeFolder(folder);
});

test('one that was stopped or killed starts again beside the others, on its port', async () => {
  const first = start(['redis', 'postgres', '--unsafe-fast']);
  const folder = first.SERVICES_DIR;
  stop(folder, 'redis');
  assert.equal(isAlive(first.REDIS_PID), false);
  assert.equal(isAlive(first.POSTGRES_PID), true);
  // Even a stopped process is ended.
  process.kill(first.POSTGRES_PID, 'SIGSTOP');
  stop(folder, 'postgres');
  assert.equal(isAlive(first.POSTGRES_PID), false);

  const second = start(['redis', 'postgres', '--dir', folder]);
  assert.equal(second.REDIS_PORT, first.REDIS_PORT);
  process.kill(second.REDIS_PID, 'SIGKILL');
  await until('the killed Redis has ended', () => !isAlive(second.REDIS_PID));
  const third = start(['redis', 'postgres', '--dir', folder]);
  assert.equal(third.REDIS_PORT, first.REDIS_PORT);
  assert.notEqual(third.REDIS_PID, second.REDIS_PID);
  assert.equal(third.POSTGRES_PID, second.POSTGRES_PID);
  assert.equal(redis(third.REDIS_PORT, 'ping'), 'PONG');
  stop(folder);
  assertNoTrace(third);
});

test('the Sentinels fail over when their master dies, and take it back as a replica', async () => {
  const env = start(['sentinel']);
  // On one connection: `wait` waits for that one's own writes.
  const written = output('redis-cli', ['-p', env.SENTINEL_MASTER_PORT], 'set kept 42\nwait 1 5000\n');
  assert.equal(written, 'OK\n1');
  process.kill(env.SENTINEL_MASTER_PID, 'SIGKILL');
  await until('the replica is master', () => masterPort(env) === env.SENTINEL_REPLICA_PORT);
  assert.equal(redis(env.SENTINEL_REPLICA_PORT, 'get', 'kept'), '42');
  const again = start(['sentinel', '--dir', env.SERVICES_DIR]);
  assert.match(redis(again.SENTINEL_MASTER_PORT, 'role'), /^slave/);
  stop(env.SERVICES_DIR);
  assertNoTrace(again);
});

// A folder with programs that PATH finds before those of the system: { name: text of a shell script }.
function programs(scripts) {
  const folder = tempFolder();
  for (const [name, text] of Object.entries(scripts))
    fs.writeFileSync(path.join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return folder;
}

const pathWith = (folder) => `${folder}:${process.env.PATH}`;
const whereIs = (program) => output('sh', ['-c', `command -v ${program}`]);

// One test for all, because a start takes more than a second of CPU time.
test('Kafka starts on a free port, and keeps its port and messages when it is stopped or killed', { timeout: KAFKA_MS }, async () => {
  // The script uses perl to find a free port. The first one that it gets here is taken.
  const other = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => other.on('listening', resolve));
  const taken = String(other.address().port);
  const folder = tempFolder();
  const bin = programs({ perl: `if mkdir ${folder}/asked 2>/dev/null; then echo ${taken}; else exec ${whereIs('perl')} "$@"; fi` });
  const first = start(['kafka'], { PATH: pathWith(bin) }, { timeout: KAFKA_MS });
  assert.equal(fs.existsSync(path.join(folder, 'asked')), true);
  assert.notEqual(first.KAFKA_PORT, taken);
  other.close();
  assert.deepEqual(Object.keys(first), ['SERVICES_DIR', 'KAFKA_URL', 'KAFKA_PORT', 'KAFKA_PID']);
  assert.equal(first.KAFKA_URL, `kafka://127.0.0.1:${first.KAFKA_PORT}`);
  assert.equal(services(['status', first.SERVICES_DIR]).status, 0);
  await createTopic(first.KAFKA_PORT, 'sales', 1);
  produce(first.KAFKA_PORT, 'sales', ['one']);
  assert.deepEqual(consume(first.KAFKA_PORT, 'sales'), ['one']);

  stop(first.SERVICES_DIR, 'kafka');
  assert.equal(isAlive(first.KAFKA_PID), false);
  const second = start(['kafka', '--dir', first.SERVICES_DIR]);
  assert.deepEqual({ ...second, KAFKA_PID: null }, { ...first, KAFKA_PID: null });
  produce(second.KAFKA_PORT, 'sales', ['two']);

  process.kill(second.KAFKA_PID, 'SIGKILL');
  await until('Kafka has died', () => !isAlive(second.KAFKA_PID));
  const third = start(['kafka', '--dir', first.SERVICES_DIR]);
  assert.deepEqual({ ...third, KAFKA_PID: null }, { ...first, KAFKA_PID: null });
  assert.deepEqual(consume(third.KAFKA_PORT, 'sales'), ['one', 'two']);

  stop(first.SERVICES_DIR);
  assertNoTrace(third);
  await until('no process is left', () => processesIn(first.SERVICES_DIR).length === 0);
  removeFolder(folder);
  removeFolder(bin);
});

// A checkout in which Kafka was not downloaded yet: the script, and the folder of its downloads.
function checkout() {
  const folder = tempFolder();
  fs.mkdirSync(path.join(folder, 'scripts'));
  for (const file of [SCRIPT, path.join(path.dirname(SCRIPT), 'kafka-pom.xml')])
    fs.copyFileSync(file, path.join(folder, 'scripts', path.basename(file)));
  return { folder, script: path.join(folder, 'scripts/services'), kept: path.join(folder, 'build/services') };
}

const jarsIn = (kept) => fs.readdirSync(kept).filter((name) => /^kafka-[\d.]+$/.test(name));

test('Kafka is downloaded once, by one of several processes, and completely or not at all', async () => {
  const { folder, script, kept } = checkout();
  // Not Maven, but a program that logs its call and creates one jar.
  const target = 'for word; do case $word in -DoutputDirectory=*) to=${word#*=} ;; esac; done';
  const begin = `echo called >>${folder}/calls; ${target}; mkdir -p "$to"; echo half >"$to/a.jar"`;
  const failing = programs({ java: 'exit 1', mvn: `${begin}; echo no network; exit 1` });
  const failed = services(['fetch'], { PATH: pathWith(failing) }, { script });
  assert.equal(failed.status, 1);
  assert.match(failed.stderr, /mvn: no network\n.*Kafka could not be downloaded/);
  assert.deepEqual(jarsIn(kept), []);

  const bin = programs({ java: 'exit 1', mvn: `${begin}; sleep 0.5; echo complete >"$to/a.jar"` });
  const env = environment({ PATH: pathWith(bin) });
  const fetches = Array.from({ length: 4 }, () => launch([script, 'fetch'], { env }));
  for (const one of fetches) assert.deepEqual(await one.ended, { code: 0, signal: null }, one.stderr);
  assert.equal(fs.readFileSync(path.join(folder, 'calls'), 'utf8'), 'called\n'.repeat(2));
  const jars = jarsIn(kept);
  assert.equal(jars.length, 1);
  assert.equal(fs.readFileSync(path.join(kept, jars[0], 'a.jar'), 'utf8'), 'complete\n');
  for (const made of [folder, failing, bin]) removeFolder(made);
});

test('without Java or Maven, a start of Kafka fails and says what installs them', () => {
  const { folder, script } = checkout();
  const bin = tempFolder();
  for (const name of ['bash', 'dirname', 'flock', 'perl', 'sed', 'setsid', 'stat']) fs.symlinkSync(whereIs(name), path.join(bin, name));
  for (const missing of ['java', 'mvn']) {
    const { status, stderr } = services(['start', 'kafka'], { PATH: bin, TMPDIR: folder }, { script });
    assert.equal(status, 1);
    assert.equal(stderr, `scripts/services: ${missing} is not installed; 'scripts/deps kafka' installs it\n`);
    fs.writeFileSync(path.join(bin, missing), '', { mode: 0o755 });
  }
  assert.deepEqual(fs.readdirSync(folder), ['scripts']);
  removeFolder(folder);
  removeFolder(bin);
});

test('many stops at once do it once', async () => {
  const env = start(['redis', 'postgres', '--unsafe-fast']);
  const stops = Array.from({ length: 6 }, () => launch([SCRIPT, 'stop', env.SERVICES_DIR]));
  for (const one of stops) assert.deepEqual(await one.ended, { code: 0, signal: null }, one.stderr);
  assertNoTrace(env);
});

test('with a parent, all ends when that has been killed', async () => {
  const parent = launch(['sleep', '600']);
  const env = start(['redis', 'postgres', '--unsafe-fast', '--with-parent', String(parent.pid)]);
  assert.equal(pidsOf(env).every(isAlive), true);
  parent.child.kill('SIGKILL');
  await parent.ended;
  await until('no trace is left', () => !fs.existsSync(env.SERVICES_DIR));
  assertNoTrace(env);
  await until('the watcher has gone', () => processesIn(env.SERVICES_DIR).length === 0);
});

// As when an interrupted run of tests removes its temporary folder.
test('with a parent, all ends when the folder was removed', async () => {
  const env = start(['redis', 'postgres', '--unsafe-fast']);
  const [watcher] = fs.readFileSync(path.join(env.SERVICES_DIR, 'watcher/pid'), 'utf8').split(' ');
  const waits = () => Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${watcher}/status`, 'utf8'))[1]);
  const before = waits();
  await until('the watcher has looked which servers there are', () => waits() >= before + 6);
  fs.rmSync(env.SERVICES_DIR, { recursive: true });
  await until('the servers have ended', () => pidsOf(env).every((pid) => !isAlive(pid)));
  await until('the watcher has gone', () => !isAlive(watcher));
});

// Wherever the signal comes: every 100 ms from nothing done to all done.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGKILL']) {
  test(`a start that ${signal} interrupts leaves nothing`, async () => {
    const folder = tempFolder();
    fs.chmodSync(folder, 0o755);
    for (let waitMs = 0; waitMs <= 600; waitMs += 100) {
      const parent = launch(['sleep', '600']);
      const args = ['start', 'redis', 'postgres', 'sentinel', '--with-parent', String(parent.pid)];
      const env = environment({ TMPDIR: folder });
      const starting = spawn(SCRIPT, args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
      const ended = new Promise((resolve) => starting.on('exit', resolve));
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      // The script handles signals before it creates its folder. On a busy machine it may not be
      // that far: then the signal just ends it.
      const handlesSignals = fs.readdirSync(folder).length > 0;
      starting.kill(signal);
      const code = await ended;
      // After SIGKILL only the watcher can clean up; and a signal may come too late.
      parent.child.kill('SIGKILL');
      if (signal !== 'SIGKILL' && code !== 0 && handlesSignals) {
        assert.equal(code, signal === 'SIGINT' ? 130 : 143);
        assert.deepEqual(fs.readdirSync(folder), []);
      }
      const isEmpty = () => fs.readdirSync(folder).every((name) => isUnborn(path.join(folder, name)));
      await until('no folder is left', isEmpty);
      await until('no process is left', () => processesIn(folder).length === 0);
    }
    removeFolder(folder);
  });
}

// Killed outright before there was a watcher, and so before there was any server.
const isUnborn = (folder) => fs.existsSync(folder) && !fs.existsSync(path.join(folder, 'redis'));

test('what cannot start says why, and takes the others with it', async () => {
  const { SERVICES_DIR: folder, REDIS_PORT: port } = start(['redis']);
  stop(folder, 'redis');
  const other = launch(['redis-server', '--bind', '127.0.0.1', '--port', port, '--save', '']);
  await until('the port is taken', () => redis(port, 'ping') === 'PONG');
  const { status, stderr } = services(['start', 'postgres', 'redis', '--dir', folder]);
  assert.equal(status, 1);
  assert.match(stderr, new RegExp(`redis: port ${port} is in use; stop the process that uses it`));
  assert.equal(services(['status', folder]).status, 1);
  assert.deepEqual(processesIn(path.join(folder, 'postgres')), []);
  assert.equal(fs.existsSync(path.join(folder, 'postgres')), false);
  other.child.kill('SIGTERM');
  await other.ended;
  stop(folder);
  assert.equal(fs.existsSync(folder), false);
});

test('a folder that nothing was started in is left alone', () => {
  const folder = tempFolder();
  fs.writeFileSync(path.join(folder, 'mine'), 'x');
  stop(folder);
  assert.deepEqual(fs.readdirSync(folder), ['mine']);
  const odd = path.join(folder, "it's mine");
  const refused = services(['start', 'redis', '--dir', odd]);
  assert.equal(refused.status, 1);
  assert.match(refused.stderr, /choose another --dir/);
  assert.equal(fs.existsSync(odd), false);
  assert.equal(services(['start', 'mysql']).status, 2);
  removeFolder(folder);
});
