// Starts the real program on a free port with a temporary data folder, always stops it by its pid, and
// checks how it ended: a sanitizer's report, a failed assertion or an unexpected exit code fails the
// test that stops it.
//
// With ADMITONE_STACK=cluster a server is two nodes on one Redis and one PostgreSQL
// (support/cluster.mjs), and its port is that of each node alternately. With ADMITONE_STACK=kafka
// these nodes have their asynchronous requests in a Kafka broker.
import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { test as nodeTest } from 'node:test';
import { fileURLToPath } from 'node:url';

import { hasKafka, isCluster, leaveHomesIn, nodeFlags, releaseCommits } from './cluster.mjs';

export { STACK, hasKafka, isCluster, storeFlags, onlyOn } from './cluster.mjs';

const REPOSITORY = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
export const BINARY = path.resolve(process.env.ADMITONE ?? path.join(REPOSITORY, 'build/admitone'));

// Deadlines are for what hangs. Tests run beside each other and beside other work, so each is many
// times what an idle machine needs.
const FILE_MS = 450000; // less than ctest's TIMEOUT, which shows no reason
const TEST_MS = 240000;
const UNTIL_MS = 60000;
const START_MS = 90000;
const STOP_MS = 60000;
// Lengths: of a log that is kept, and of the part that a failure shows.
const STDERR_MAX = 16 << 20;
const TAIL_MAX = 4000;

// More informative than "killed": a sanitizer's finding, or the assertion that failed.
const REPORT = /Sanitizer|runtime error:|Assertion .* failed/;
const SANITIZER_EXIT = 99;

const children = new Set();
const folders = new Set();

process.on('exit', () => {
  for (const child of children) kill(child.pid, 'SIGKILL');
  for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

// The names of the running tests.
const running = new Set();

// For waits that are in no test: a hook, or something that keeps Node from ending after the last test.
setTimeout(() => {
  const where = running.size > 0 ? [...running].join(', ') : 'a hook, or after the last test';
  console.error(`not done within ${FILE_MS} ms, in: ${where}; open: ${process.getActiveResourcesInfo().join(' ')}`);
  process.exit(1);
}, FILE_MS).unref();

// The processes that the running test has started.
const started = new AsyncLocalStorage();

// A test that hangs fails with its name instead of stopping the run, and one that fails leaves no
// process behind to keep the run from ending.
export function test(name, options, fn) {
  if (typeof options === 'function') [options, fn] = [{}, options];
  const { timeout: timeoutMs = TEST_MS, ...rest } = options;
  return nodeTest(name, rest, (t) => {
    const own = new Set();
    return started.run(own, async () => {
      running.add(name);
      try {
        const ended = await within(timeoutMs, Promise.resolve(fn(t)).then(() => 'done'));
        assert.equal(ended, 'done', `not done within ${timeoutMs} ms`);
      } finally {
        running.delete(name);
        for (const child of own) if (children.has(child)) kill(child.pid, 'SIGKILL');
        releaseCommits();
      }
    });
  });
}

function assertNoReport(stderr) {
  const at = stderr.search(REPORT);
  if (at >= 0) assert.fail(stderr.slice(Math.max(0, at - 200), at + TAIL_MAX));
}

function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

export function tempFolder() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'admitone-e2e-'));
  folders.add(folder);
  return folder;
}

export function removeFolder(folder) {
  fs.rmSync(folder, { recursive: true, force: true });
  folders.delete(folder);
  leaveHomesIn(folder);
}

// How often a test repeats something random: `count` times; an eighth of that where each repeat costs
// several times as much, on two nodes with their stores and under TSan. With TEST_FULL=1 always
// `count` times.
const IS_COSTLY = isCluster || process.env.SANITIZER === 'thread';
export const times = (count) => (IS_COSTLY && !process.env.TEST_FULL ? Math.ceil(count / 8) : count);

// The only way to wait: for a condition, with a deadline. Returns the first true value. The longer it
// lasts, the less often the condition is checked: a check may be a process or a request.
export async function until(what, condition, timeoutMs = UNTIL_MS) {
  const began = performance.now();
  for (;;) {
    const value = await condition();
    if (value) return value;
    const elapsed = performance.now() - began;
    if (elapsed > timeoutMs) assert.fail(`did not happen in ${timeoutMs} ms: ${what}`);
    await pause(Math.min(Math.max(5, elapsed / 8), 60));
  }
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// To show that something does NOT happen: 'pending' if the promise is still open by then.
export async function within(ms, promise) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, 'pending')));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// The tests' environment without settings of the program, and with sanitizers that report. Their
// options are combined: those of the run, then these, then the test's.
export function environment(extra = {}) {
  const env = { ...process.env };
  for (const name of Object.keys(env)) if (name.startsWith('ADMITONE_')) delete env[name];
  const ours = {
    ASAN_OPTIONS: `exitcode=${SANITIZER_EXIT}:detect_leaks=1`,
    UBSAN_OPTIONS: 'print_stacktrace=1',
    TSAN_OPTIONS: `exitcode=${SANITIZER_EXIT}`,
  };
  for (const [name, options] of Object.entries(ours))
    extra = { ...extra, [name]: [process.env[name], options, extra[name]].filter(Boolean).join(':') };
  return { ...env, ...extra };
}

// Runs a subcommand to its end: { status, stdout, stderr }.
export function run(args, { env, wrap = [], timeoutMs = UNTIL_MS } = {}) {
  const [file, ...rest] = [...wrap, BINARY, ...args];
  const done = spawnSync(file, rest, {
    encoding: 'utf8',
    env: environment(env),
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  assert.ifError(done.error);
  assertNoReport(done.stderr);
  assert.equal(done.signal, null, `admitone ${args.join(' ')} was ended by ${done.signal}`);
  return { status: done.status, stdout: done.stdout, stderr: done.stderr };
}

// Like `run`, without blocking this process: servers and proxies in it continue to work.
export async function runBeside(args, { env, timeoutMs = UNTIL_MS } = {}) {
  const self = launch([BINARY, ...args], { env: environment(env) });
  const ended = await within(timeoutMs, self.ended);
  if (ended === 'pending') kill(self.pid, 'SIGKILL');
  assert.notEqual(ended, 'pending', `admitone ${args.join(' ')} did not end within ${timeoutMs} ms`);
  assertNoReport(self.stderr);
  assert.equal(ended.signal, null, `admitone ${args.join(' ')} was ended by ${ended.signal}`);
  return { status: ended.code, stdout: self.stdout, stderr: self.stderr };
}

// A child that is known to the exit handler: { pid, child, stdout, stderr, ended }. It does not keep
// this process from ending: when a hook fails before it stops a server, the exit handler does. So each
// wait for a child needs a timer: `endOf`.
export function launch(command, { env } = {}) {
  const [file, ...args] = command;
  const child = spawn(file, args, { env: env ?? environment(), stdio: ['ignore', 'pipe', 'pipe'] });
  const self = { pid: child.pid, child, stdout: '', stderr: '', exit: null };
  children.add(child);
  started.getStore()?.add(child);
  child.stdout.setEncoding('utf8').on('data', (text) => (self.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text) => {
    if (self.stderr.length < STDERR_MAX) self.stderr += text;
  });
  self.ended = new Promise((resolve) => {
    child.on('error', (error) => {
      children.delete(child);
      self.stderr += String(error);
      resolve((self.exit = { code: null, signal: null, error }));
    });
    child.on('close', (code, signal) => {
      children.delete(child);
      resolve((self.exit = { code, signal }));
    });
  });
  for (const one of [child, child.stdout, child.stderr]) one.unref();
  return self;
}

// Waits for the end of a child: { code, signal }.
export async function endOf(self, timeoutMs = UNTIL_MS) {
  const ended = await within(timeoutMs, self.ended);
  assert.notEqual(ended, 'pending', `${self.child.spawnargs.join(' ')} did not end within ${timeoutMs} ms\n${self.stderr.slice(-TAIL_MAX)}`);
  return ended;
}

// One process of `admitone serve` that listens, or will: { host, port, url } and how to end it.
function launchNode(command, env) {
  const self = launch(command, { env: environment(env) });
  self.listens = async () => {
    const has = (pattern) => pattern.exec(self.stderr);
    const found = await until(
      'the server listens',
      () => self.exit ?? has(/msg"?[=:]"?listening"?,? ?"?addr"?[=:]"?([^ "]+):(\d+)/),
      START_MS,
    );
    if (self.exit) assert.fail(`admitone did not start: ${JSON.stringify(self.exit)}\n${self.stderr.slice(-TAIL_MAX)}`);
    self.host = found[1];
    self.port = Number(found[2]);
    self.url = `http://${self.host}:${self.port}`;
  };
  // Ends it as an operator would; 0 is the only good exit. May be called again.
  self.stop = async (signal = 'SIGTERM') => {
    if (self.exit === null) kill(self.pid, signal);
    const ended = await within(STOP_MS, self.ended);
    if (ended === 'pending') {
      kill(self.pid, 'SIGKILL');
      assert.fail(`the server did not stop within ${STOP_MS} ms of ${signal}\n${self.stderr.slice(-TAIL_MAX)}`);
    }
    assertNoReport(self.stderr);
    assert.notEqual(self.exit.code, SANITIZER_EXIT, self.stderr.slice(-TAIL_MAX));
    assert.ok(self.stderr.length < STDERR_MAX, 'the log is a flood');
    if (!self.killed) assert.deepEqual(ended, { code: 0, signal: null }, self.stderr.slice(-TAIL_MAX));
    return ended;
  };
  self.kill9 = async () => {
    self.killed = true;
    kill(self.pid, 'SIGKILL');
    await endOf(self);
    assertNoReport(self.stderr);
  };
  self.signal = (signal) => kill(self.pid, signal);
  // SIGSTOP, until every thread stands still: on a busy machine some go on for a while.
  self.freeze = async () => {
    kill(self.pid, 'SIGSTOP');
    const tasks = `/proc/${self.pid}/task`;
    const isStopped = (thread) => /^State:\s+T/m.test(fs.readFileSync(`${tasks}/${thread}/status`, 'utf8'));
    await until('every thread stands still', () => fs.readdirSync(tasks).every(isStopped));
  };
  self.rssBytes = () => {
    const status = fs.readFileSync(`/proc/${self.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)[1]) * 1024;
  };
  return self;
}

// Requests to a server, or to one node of it.
function addQuestions(self) {
  self.call = (method, target, options) => call(self, method, target, options);
  // `races`: other changes of the same event are under way, so that what the nodes show may be later.
  self.admin = async (method, target, body, { races = false, ...options } = {}) => {
    const headers = { authorization: `Bearer ${self.adminKey}`, ...options.headers };
    const answer = await call(self, method, target, { body, ...options, headers });
    if (method !== 'GET' && answer.status < 300 && !races) await self.agreed?.(target, answer);
    return answer;
  };
  self.newestAudit = async () => (await self.admin('GET', '/admin/audit?limit=1')).json.audit[0]?.id ?? 0;
  self.metric = async (name) => metricOf(await metricsOf(self), name);
}

// A tick is two calls to Redis for each event and node: one every 10 ms would be all that a test
// with many events does.
function calmer(args) {
  return args.map((one, i) => (args[i - 1] === '--queue-tick-ms' ? String(Math.max(50, Number(one))) : one));
}

// Several nodes as one server: requests go to each alternately, signals and stops to all.
function together(nodes) {
  let requests = 0;
  const next = () => nodes[requests++ % nodes.length];
  const each = (verb) => async (...how) => (await Promise.all(nodes.map((node) => node[verb](...how))))[0];
  return {
    nodes,
    pid: nodes[0].pid,
    child: nodes[0].child,
    host: nodes[0].host,
    get port() {
      return next().port;
    },
    get url() {
      return next().url;
    },
    get stdout() {
      return nodes.map((node) => node.stdout).join('');
    },
    get stderr() {
      return nodes.map((node) => node.stderr).join('');
    },
    get exit() {
      return nodes.every((node) => node.exit !== null) ? nodes[0].exit : null;
    },
    ended: Promise.all(nodes.map((node) => node.ended)).then(([first]) => first),
    stop: each('stop'),
    kill9: each('kill9'),
    signal: (signal) => nodes.forEach((node) => node.signal(signal)),
    rssBytes: () => nodes.reduce((sum, node) => sum + node.rssBytes(), 0),
  };
}

// A change of an event is answered when every node has applied it: so each node knows that version,
// or a later one, at once. `target`: where it was asked for; `answer`: to that.
async function assertAgreed({ nodes, adminKey }, target, { json }) {
  const [, event] = /^\/admin\/(?:events|queue)\/([^/?]+\/[^/?]+)/.exec(target) ?? [];
  if (event === undefined || json?.version === undefined) return;
  const headers = { authorization: `Bearer ${adminKey}` };
  const answers = await Promise.all(nodes.map((node) => call(node, 'GET', `/admin/events/${event}`, { headers })));
  for (const { status, json: seen, text } of answers)
    assert.ok(status === 503 || (status === 200 && seen.version >= json.version), `${event} ${json.version}: ${text}`);
}

// A node with Kafka listens before it has reached the broker. Until then it cannot say that there is
// no such request.
export function feedWorks(node) {
  return until('the node can use Kafka', async () => {
    const { status, text } = await node.admin('GET', '/api/v4/status/01890000-0000-7000-8000-000000000000');
    assert.ok(status === 404 || status === 503, text);
    return status === 404;
  });
}

// Starts `admitone serve` and waits until it listens. Options:
//   args       further flags
//   dataDir    a folder that the caller keeps; else one is made, and removed when it has stopped
//   env        further environment
//   wrap       a command that ends in exec'ing what follows it (nsenter …), so the pid is the same
//   listen     address to listen on
//   root       where the program's file system is found, when it has another one than the test
//   nodes      of a cluster, how many
//   feed       false: does not wait until the nodes can use Kafka
export async function start(options = {}) {
  const { args = [], dataDir, env, wrap = [], listen = '127.0.0.1:0', root = '/', nodes = 2, feed = hasKafka } = options;
  const own = dataDir === undefined;
  const folder = own ? path.join(tempFolder(), 'data') : dataDir;
  const launchOne = (data, flags, rest) =>
    launchNode([...wrap, BINARY, 'serve', '--listen', listen, '--data', data, '--workers', '2', ...flags, ...rest], env);
  const launchNumber = (number, flags = args) => launchOne(path.join(folder, `node-${number}`), nodeFlags(folder, flags), calmer(flags));
  const all = isCluster ? Array.from({ length: nodes }, (_, i) => launchNumber(i + 1)) : [launchOne(folder, [], args)];
  let launched = all.length;
  await Promise.all(all.map((node) => node.listens()));
  const self = isCluster ? together(all) : Object.assign(all[0], { nodes: all });
  if (isCluster) self.agreed = (target, answer) => assertAgreed(self, target, answer);
  const dress = (one) => {
    one.dataDir = folder;
    const keyFile = path.join(root, folder, 'admin.key');
    one.adminKey = fs.existsSync(keyFile) ? fs.readFileSync(keyFile, 'utf8').trim() : null;
    addQuestions(one);
    return one;
  };
  for (const one of new Set([self, ...all])) dress(one);
  if (feed) await Promise.all(all.map(feedWorks));
  Object.defineProperty(self, 'pids', { get: () => self.nodes.map(({ pid }) => pid) });

  const stop = self.stop;
  self.stop = async (...how) => {
    const ended = await stop(...how);
    if (own) removeFolder(path.dirname(folder));
    return ended;
  };
  // A further node of the same cluster, with the same flags or others. The others are not notified; it
  // gets requests as they do.
  self.join = async (flags) => {
    assert.ok(isCluster);
    const node = launchNumber(++launched, flags);
    await node.listens();
    all.push(dress(node));
    if (feed) await feedWorks(node);
    return node;
  };
  return self;
}

// Gauges of what the nodes share, which every one of them shows whole. All else that a node shows is
// its own part.
const SHARED = /^admitone_(events|seats|seat_use_ratio|queue_(waiting|active|pending)|hot_state|ledger_writable|start_time_seconds|build_info)\b/;

// The text of /metrics, of all nodes together.
export async function metricsOf(server) {
  const nodes = server.nodes ?? [server];
  const texts = await Promise.all(nodes.map(async (node) => (await call(node, 'GET', '/metrics')).text));
  if (texts.length === 1) return texts[0];
  const sums = new Map();
  const lines = texts.flatMap((text) => text.trimEnd().split('\n'));
  for (const line of lines) {
    const [, name, value] = /^([^#].*) (\S+)$/.exec(line) ?? [undefined, line, 0];
    sums.set(name, SHARED.test(name) ? Number(value) : (sums.get(name) ?? 0) + Number(value));
  }
  return [...sums].map(([name, value]) => (name.startsWith('#') ? name : `${name} ${value}`)).join('\n');
}

export function metricOf(text, name) {
  const line = text.split('\n').find((one) => one.startsWith(`${name} `));
  assert.ok(line, `there is no metric ${name}`);
  return Number(line.slice(name.length + 1));
}

// Sends one request, on a new connection unless an agent is given. A body that is an object is sent as
// JSON. Returns { status, headers, text, json }.
export function call({ host = '127.0.0.1', port }, method, target, options = {}) {
  const { body, headers = {}, agent = false, timeoutMs = UNTIL_MS } = options;
  const isText = typeof body === 'string' || Buffer.isBuffer(body);
  const payload = body === undefined ? undefined : isText ? Buffer.from(body) : Buffer.from(JSON.stringify(body));
  const all = { ...headers };
  if (payload !== undefined) {
    all['content-length'] = payload.length;
    all['content-type'] ??= 'application/json';
    if (all['content-type'] === '') delete all['content-type'];
  }
  return new Promise((succeed, fail) => {
    // Of the whole request: also while it waits for a connection of the agent.
    const late = () => request.destroy(new Error(`${method} ${target}: no answer in ${timeoutMs} ms`));
    const timer = setTimeout(late, timeoutMs);
    const resolve = (answer) => (clearTimeout(timer), succeed(answer));
    const reject = (error) => (clearTimeout(timer), fail(error));
    const request = http.request({ host, port, method, path: target, headers: all, agent }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(parts).toString('utf8');
        const isJson = /json/.test(response.headers['content-type'] ?? '') && text !== '';
        resolve({
          status: response.statusCode,
          headers: response.headers,
          text,
          json: isJson ? JSON.parse(text) : undefined,
        });
      });
    });
    request.on('error', reject);
    request.end(payload);
  });
}

// Every problem is the same kind of document (RFC 9457). Returns it.
export function assertProblem(answer, status, code) {
  const json = answer.json;
  assert.equal(answer.status, status, `${answer.status} ${answer.text}`);
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  assert.ok(json, `no JSON: ${answer.text}`);
  assert.deepEqual(Object.keys(json).sort(), ['code', 'detail', 'instance', 'status', 'title', 'type']);
  assert.equal(json.code, code, answer.text);
  assert.equal(json.status, status);
  assert.equal(json.type, `urn:admitone:problem:${code}`);
  assert.equal(json.instance, `urn:admitone:request:${answer.headers['x-request-id']}`);
  assert.ok(json.title.length > 0 && json.detail.length > 0, answer.text);
  return json;
}

export const concert = (more = {}) => ({
  title: 'Winter tour',
  sections: [{ id: 'A', capacity: 100 }],
  ...more,
});

// The members in which two answers about the same event may differ.
export function lasting(event) {
  const { serverTime, ...rest } = event;
  assert.match(serverTime, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  return rest;
}
