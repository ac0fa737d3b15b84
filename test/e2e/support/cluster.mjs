// The stores of cluster tests: one private Redis and one PostgreSQL for each test file, started when
// the first node needs them. Each data folder has its own PostgreSQL database and Redis database
// there, its *home*; a folder that is started again has the same home, so that this is a restart. The
// databases of a folder that was removed are emptied for the next one.
// Besides, on both stacks, one Kafka broker (`kafkaOf`), started when a test needs it. All of them end
// with the process, even if it is killed.
//
// The number of a Redis database separates keys, but not channels: nodes also get announcements of
// other homes, and ignore them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { PSQL, closeSession, select } from './psql.mjs';

export { PSQL };

const EMPTY_LEDGER = fileURLToPath(new URL('../../support/empty_ledger.sql', import.meta.url));
const LUA_VERSION = /^local VERSION = '(\d+)'$/m.exec(
  fs.readFileSync(new URL('../../../src/hot/redis/lua/common.lua', import.meta.url), 'utf8'),
)[1];
// The names of admitone's functions in Redis begin with it.
export const REDIS_LIBRARY = `admitone_${LUA_VERSION}`;
export const SERVICES = fileURLToPath(new URL('../../../scripts/services', import.meta.url));
const KEYS = { '--secret-file': 'secret', '--pass-key-file': 'pass.key', '--admin-key-file': 'admin.key' };
const REDIS_DATABASES = 16;
const FEED_PARTITIONS = 3;
// The least that the broker allows: for so long after kill -9 of a node no other gets its partitions.
export const KAFKA_SESSION_MS = 6000;
const SERVICES_MS = 600000; // the first start in a checkout may download Kafka

// With `kafka`, asynchronous requests are in a topic of a broker instead of a table of the ledger.
const STACKS = { cluster: 'redis+postgres', kafka: 'redis+postgres+kafka' };
export const STACK = STACKS[process.env.ADMITONE_STACK] ?? 'memory+sqlite';
export const isCluster = STACK !== 'memory+sqlite';
export const hasKafka = STACK === 'redis+postgres+kafka';

// Options of a test that applies to some stacks only: redis+postgres includes redis+postgres+kafka.
// The runner shows it as skipped on the others.
export function onlyOn(stack, why) {
  assert.ok(stack === 'memory+sqlite' || Object.values(STACKS).includes(stack), stack);
  return STACK === stack || STACK.startsWith(`${stack}+`) ? {} : { skip: `only on ${stack}: ${why}` };
}

const services = {}; // what scripts/services has printed
let preload;
let isHeld = false;
const homes = new Map();
const left = []; // the PostgreSQL databases of homes that were left

function output(file, args, { timeoutMs = 60000, env = process.env } = {}) {
  const done = spawnSync(file, args, { encoding: 'utf8', env, timeout: timeoutMs, maxBuffer: 256 << 20 });
  assert.ifError(done.error && new Error(`${file} ${args.join(' ')}: ${done.error.message}`));
  assert.equal(done.status, 0, `${file} ${args.join(' ')}: ${done.stderr}`);
  return done.stdout.trim();
}

// Redis is started with this library in LD_PRELOAD, and with these environment variables.
export function preloadRedis(library, env) {
  assert.equal(services.REDIS_URL, undefined, 'before the first node is started');
  preload = { library, env };
}

function startServices(names, env = process.env) {
  const args = ['start', ...names, '--unsafe-fast', '--with-parent', String(process.pid)];
  if (services.SERVICES_DIR !== undefined) args.push('--dir', services.SERVICES_DIR);
  const lines = output(SERVICES, args, { timeoutMs: SERVICES_MS, env }).split('\n');
  return Object.assign(services, Object.fromEntries(lines.map((line) => line.split(/=(.*)/s))));
}

export function servicesOf() {
  if (services.REDIS_URL !== undefined) return services;
  const preloading = preload === undefined ? [] : ['--redis-preload', preload.library];
  return startServices(['redis', 'postgres', ...preloading], { ...process.env, ...preload?.env });
}

// { KAFKA_URL, KAFKA_PORT, KAFKA_PID } of a broker; one that a test has killed is started again with
// `startKafka`, on the same port and with its data.
export const kafkaOf = () => (services.KAFKA_URL === undefined ? startKafka() : services);
export const startKafka = () => startServices(['kafka']);
export const stopKafka = () => output(SERVICES, ['stop', kafkaOf().SERVICES_DIR, 'kafka']);

// Starts the broker again, which lets in only this user from now on (SASL/PLAIN).
export function restartKafkaFor(user, password) {
  const users = { [user]: password, broker: randomBytes(8).toString('hex') };
  const listed = Object.entries(users).map(([name, secret]) => `user_${name}="${secret}"`);
  const login = `org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="${users.broker}"`;
  stopKafka();
  fs.appendFileSync(path.join(kafkaOf().SERVICES_DIR, 'kafka/server.properties'), [
    'listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT',
    'sasl.enabled.mechanisms=PLAIN',
    'sasl.mechanism.inter.broker.protocol=PLAIN',
    `listener.name.client.plain.sasl.jaas.config=${login} ${listed.join(' ')};`,
  ].join('\n') + '\n');
  startKafka();
}

const psql = (url, ...sql) => output(PSQL, [url, '-qAtX', '-v', 'ON_ERROR_STOP=1', ...sql.flatMap((one) => ['-c', one])]);

// A statement of a node that was killed may still run: its connection ends first. Autovacuum's, which
// only a superuser may end, gives way by itself.
const END_OTHERS = `SELECT count(pg_terminate_backend(pid, 20000)) FROM pg_stat_activity
  WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()`;

function freeNumber() {
  const taken = new Set([...homes.values()].map(({ number }) => number));
  const number = Array.from({ length: REDIS_DATABASES }, (_, i) => i).find((i) => !taken.has(i));
  assert.notEqual(number, undefined, 'so many data folders at once have no room in one Redis');
  return number;
}

function makeHome() {
  const { REDIS_URL, POSTGRES_URL } = servicesOf();
  const number = freeNumber();
  const urlOf = (name) => POSTGRES_URL.replace(/[^/]+$/, name);
  const used = left.pop();
  const database = used ?? `home_${randomBytes(6).toString('hex')}`;
  if (used === undefined) psql(POSTGRES_URL, `CREATE DATABASE ${database}`);
  else psql(urlOf(used), END_OTHERS, fs.readFileSync(EMPTY_LEDGER, 'utf8'));
  const redisUrl = `${REDIS_URL}/${number}`;
  output('redis-cli', ['-u', redisUrl, 'FLUSHDB']); // removes the data of the previous user of this database
  // Never used before: topics are not emptied.
  const kafka = hasKafka ? { url: kafkaOf().KAFKA_URL, prefix: `home_${randomBytes(6).toString('hex')}.` } : undefined;
  return { number, database, redisUrl, postgresUrl: urlOf(database), kafka };
}

// { redisUrl, postgresUrl, kafka } of a data folder, made when it is first asked for. `kafka`: { url,
// prefix }, the prefix of its topics and its group.
export function homeOf(dataDir) {
  const folder = path.resolve(dataDir);
  if (!homes.has(folder)) homes.set(folder, makeHome());
  return homes.get(folder);
}

export const redis = (dataDir, ...words) => output('redis-cli', ['-u', homeOf(dataDir).redisUrl, ...words.map(String)]);
export const forgetHot = (dataDir) => redis(dataDir, 'FLUSHDB');

// The data of this folder are not needed any more.
export function leaveHomesIn(folder) {
  for (const [own, { database, postgresUrl }] of homes) {
    if (!`${own}/`.startsWith(`${path.resolve(folder)}/`)) continue;
    homes.delete(own);
    closeSession(postgresUrl);
    left.push(database);
  }
}

// The options with which every command finds the stores of a data folder.
export const storeFlags = (dataDir) => {
  if (!isCluster) return ['--data', dataDir];
  const { redisUrl, postgresUrl } = homeOf(dataDir);
  return ['--data', dataDir, '--hot', redisUrl, '--ledger', postgresUrl];
};

function feedFlags({ url, prefix }, args) {
  const flags = ['--feed', url, '--feed-topic-prefix', prefix, '--kafka-session-timeout-ms', String(KAFKA_SESSION_MS)];
  return args.includes('--feed-partitions') ? flags : [...flags, '--feed-partitions', String(FEED_PARTITIONS)];
}

// The flags by which every node of this folder is one of the same cluster. Keys and partitions that
// the test gives itself are left to it.
export function nodeFlags(dataDir, args) {
  const { redisUrl, postgresUrl, kafka } = homeOf(dataDir);
  const flags = ['--hot', redisUrl, '--ledger', postgresUrl];
  if (kafka !== undefined) flags.push(...feedFlags(kafka, args));
  fs.mkdirSync(dataDir, { recursive: true });
  for (const [flag, name] of Object.entries(KEYS)) {
    if (args.includes(flag)) continue;
    const file = path.join(dataDir, name);
    if (!fs.existsSync(file)) fs.writeFileSync(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
    flags.push(flag, file);
  }
  return flags;
}

// Rows as objects; none for a statement that is no query.
export function ask(dataDir, sql) {
  const { postgresUrl } = homeOf(dataDir);
  if (/^\s*(SELECT|WITH)\b/i.test(sql)) return JSON.parse(select(postgresUrl, `SELECT coalesce(json_agg(t), '[]') FROM (${sql}) t`));
  psql(postgresUrl, sql);
  return [];
}

// The bytes of an id, as 32 hexadecimal digits, in the SQL of the ledger.
export const hexOf = (column) => (isCluster ? `replace(${column}::text, '-', '')` : `lower(hex(${column}))`);

// Values of a group with commas, in order. SQLite: in that of the rows, which are in it already.
export const joined = (column, order) => (isCluster ? `string_agg(${column}, ',' ORDER BY ${order})` : `group_concat(${column})`);

// Commits wait for a standby that never comes: their requests are not answered, and their writes are
// not visible. Reads go on.
export function holdCommits() {
  const { POSTGRES_URL } = servicesOf();
  isHeld = true;
  setStandby('nobody');
  // The setting takes effect when the checkpointer has read it, too: a commit shows this.
  const probe = ['-c', "SELECT pg_logical_emit_message(true, 'probe', '')"];
  for (let i = 0; i < 200; i++) {
    const done = spawnSync(PSQL, [POSTGRES_URL, '-qAtX', ...probe], { timeout: 250, killSignal: 'SIGKILL' });
    if (done.error?.code === 'ETIMEDOUT') return;
    assert.ifError(done.error);
  }
  assert.fail('commits are not held up');
}

// Does nothing when they are not held up.
export function releaseCommits() {
  if (isHeld) setStandby('');
  isHeld = false;
}

// A change of settings is no transaction that would have to wait itself; only a superuser may.
function setServer(name, value) {
  const url = servicesOf().POSTGRES_URL.replace('admitone@', 'postgres@');
  psql(url, `ALTER SYSTEM SET ${name} = '${value}'`, 'SELECT pg_reload_conf()');
}

const setStandby = (names) => setServer('synchronous_standby_names', names);

// No client can write to any database, as on a replica.
export const setReadOnly = (isReadOnly) => setServer('default_transaction_read_only', isReadOnly ? 'on' : 'off');
