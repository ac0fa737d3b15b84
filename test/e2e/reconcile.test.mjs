// `admitone reconcile`, and the reconcile job of the nodes, on a real Redis and PostgreSQL. The test
// makes Redis differ by changing its keys, as when an update was lost.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { PSQL, REDIS_LIBRARY } from './support/cluster.mjs';
import { Sale } from './support/reservations.mjs';
import { BINARY, launch, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';

const SERVICES = fileURLToPath(new URL('../../scripts/services', import.meta.url));
const EVENT = 'CONCERT/1';
const KEYS = { '--secret-file': 'secret', '--pass-key-file': 'pass.key', '--admin-key-file': 'admin.key' };
// A difference that lasts longer than twice this is repaired. It is also the time limit of a statement, so
// it must not be too short for a busy machine.
const DEADLINE_MS = 1000;

function output(file, args) {
  const done = spawnSync(file, args, { encoding: 'utf8', timeout: 60000 });
  assert.ifError(done.error);
  assert.equal(done.status, 0, `${file} ${args.join(' ')}: ${done.stderr}`);
  return done.stdout.trim();
}

let services;

// One Redis and one PostgreSQL for all tests here; each test gets an empty Redis and a database.
function stores() {
  services ??= Object.fromEntries(
    output(SERVICES, ['start', 'redis', 'postgres', '--unsafe-fast', '--with-parent', String(process.pid)])
      .split('\n')
      .map((line) => line.split(/=(.*)/s)),
  );
  const name = `reconcile_${randomBytes(6).toString('hex')}`;
  output(PSQL, [services.POSTGRES_URL, '-qAtX', '-c', `CREATE DATABASE ${name}`]);
  output('redis-cli', ['-u', services.REDIS_URL, 'FLUSHALL']);
  return ['--hot', services.REDIS_URL, '--ledger', services.POSTGRES_URL.replace(/[^/]+$/, name)];
}

const redis = (...words) => output('redis-cli', ['-u', services.REDIS_URL, ...words.map(String)]);
const seqOf = (user) => redis('HGET', 'queue:{CONCERT:1}:user', user);
const epoch = () => redis('HGET', 'admitone:{hot}:incarnation', 'epoch');
const meta = 'queue:{CONCERT:1}:meta';

// A function of the library, as an operator would call it.
const call = (name, ...args) =>
  redis('FCALL', `${REDIS_LIBRARY}_${name}`, 1, meta, epoch(), redis('HGET', meta, 'key'), 0, ...args);

async function node(t, flags, args = []) {
  const dataDir = path.join(tempFolder(), 'data');
  fs.mkdirSync(dataDir);
  const keys = Object.entries(KEYS).flatMap(([flag, name]) => {
    const file = path.join(dataDir, name);
    fs.writeFileSync(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
    return [flag, file];
  });
  const timing = ['--ledger-deadline-ms', String(DEADLINE_MS), '--reconcile-interval-seconds', '0'];
  const server = await start({ dataDir, args: [...flags, ...keys, ...timing, ...args] });
  t.after(() => removeFolder(path.dirname(dataDir)));
  return server;
}

const reconcile = (flags, ...args) =>
  run(['reconcile', ...flags, '--ledger-deadline-ms', String(DEADLINE_MS), ...args]);

// Two are in, with two seats each, held and confirmed; two wait. Old enough to be compared.
async function crowd(server) {
  const sale = await Sale.open(server, EVENT, { maxActive: 3, entryBatchSize: 100 });
  const [ann, bob, cat] = [await sale.buyer('ann'), await sale.buyer('bob'), await sale.buyer('cat')];
  const held = await sale.held(ann, { seats: [1, 2] });
  const confirmed = await sale.confirmed(bob, (await sale.held(bob, { seats: [5, 6] })).id);
  await sale.buyer('dan'); // in place of bob, whose entry is completed
  const waiting = await sale.enterAll(['eve', 'flo', 'gus']);
  assert.deepEqual(waiting.map(({ status, position }) => [status, position]), [['WAITING', 1], ['WAITING', 2], ['WAITING', 3]]);
  await until('nothing is too young', () => Date.now() - Date.parse(confirmed.createdAt) > 3 * DEADLINE_MS);
  return { sale, ann, cat, held, confirmed, waiting };
}

const firstSeats = async (sale) => (await sale.map()).seats.slice(0, 8);

test('differences are reported, repaired in favour of the ledger, and does not differ again', async (t) => {
  const flags = stores();
  const server = await node(t, flags);
  const { sale, confirmed, waiting } = await crowd(server);
  const agreed = reconcile(flags);
  assert.equal(agreed.status, 0, agreed.stderr);
  assert.match(agreed.stdout, /^ {2}CONCERT\/1 +6 +6 +2 +2 +0$/m);
  assert.match(agreed.stdout, /^1 event compared, 0 differences: 0 repaired,/m);

  const [eve, flo, gus] = ['eve', 'flo', 'gus'].map(seqOf);
  redis('HDEL', 'queue:{CONCERT:1}:entry', eve);
  assert.equal((await sale.leave(waiting[1].entryToken)).status, 204);
  redis('HSET', 'queue:{CONCERT:1}:entry', flo, `WAITING 8 ${Date.now() - 60000} -1 flo`);
  redis('HSET', 'queue:{CONCERT:1}:user', 'flo', flo);
  redis('ZADD', 'queue:{CONCERT:1}:waiting', 8 * 2 ** 48 + Number(flo), flo);
  call('follow', confirmed.id, 'CANCELLED');
  assert.equal(await firstSeats(sale), 'HHAAAAAA');

  const { status, stdout, stderr } = reconcile(flags);
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, new RegExp(`^ {2}repaired +CONCERT/1, entry ${eve}: WAITING in the ledger, not live in the hot store$`, 'm'));
  assert.match(stdout, new RegExp(`^ {2}repaired +CONCERT/1, entry ${flo}: not live in the ledger, WAITING in the hot store$`, 'm'));
  assert.match(stdout, new RegExp(`^ {2}repaired +CONCERT/1, reservation ${confirmed.id}: CONFIRMED with 2 seats in the ledger, not live`, 'm'));
  assert.match(stdout, /^1 event compared, 3 differences: 3 repaired, 0 disappeared by themselves, 0 could not be repaired$/m);
  assert.equal(await firstSeats(sale), 'HHAACCAA');
  assert.equal((await sale.status(waiting[0].entryToken)).position, 1);
  assert.equal((await sale.status(waiting[1].entryToken)).status, 'LEFT');
  assert.equal((await sale.status(waiting[2].entryToken)).position, 2);
  assert.equal(seqOf('gus'), gus);

  const again = reconcile(flags);
  assert.equal(again.status, 0);
  assert.match(again.stdout, /, 0 differences: 0 repaired,/);
  assert.doesNotMatch(again.stdout, /^ {2}repaired/m);

  // Whoever was put back is admitted in turn.
  await sale.patch({ maxActive: 4 });
  await sale.becomes(waiting[0].entryToken, 'ACTIVE');
  await server.stop();
});

test('entries that ended long ago stay: nodes remove them, by their retention', async (t) => {
  const flags = stores();
  const server = await node(t, flags);
  const { sale, waiting } = await crowd(server);
  assert.equal((await sale.leave(waiting[1].entryToken)).status, 204);
  await server.stop();
  const ask = (sql) => output(PSQL, [flags[3], '-qAtX', '-c', sql]);
  ask("UPDATE queue_entries SET finished_at = 1 WHERE status = 'LEFT'");
  redis('HDEL', 'queue:{CONCERT:1}:entry', seqOf('eve'));
  // A node that runs for as long as this removes it.
  const { status, stdout } = run(['reconcile', ...flags, '--ledger-deadline-ms', '2000'], { timeoutMs: 30000 });
  assert.equal(status, 0, stdout);
  assert.match(stdout, /^1 event compared, 1 difference: 1 repaired,/m);
  assert.equal(ask('SELECT count(*) FROM queue_entries WHERE finished_at = 1'), '1');
});

test('what has differed for less than twice the deadline is left alone', async (t) => {
  const flags = stores();
  const server = await node(t, flags);
  const { sale, ann, held } = await crowd(server);
  call('follow', held.id, 'CONFIRMED');
  assert.equal(await firstSeats(sale), 'CCAACCAA');
  const args = ['reconcile', ...flags, '--ledger-deadline-ms', '1500'];
  await until('it is old enough', () => Date.now() - Date.parse(held.createdAt) > 3100);
  const running = launch([BINARY, ...args]);
  await until('it has looked', () => running.stdout.includes('1 difference;'));
  await sale.confirmed(ann, held.id); // now the ledger says so, too
  assert.deepEqual(await running.ended, { code: 0, signal: null });
  assert.match(running.stdout, /1 difference: 0 repaired, 1 disappeared by themselves, 0 could not be repaired$/m);
  assert.equal(await firstSeats(sale), 'CCAACCAA');
  await server.stop();
});

test('a node repairs by itself, and counts it', async (t) => {
  const flags = stores();
  const server = await node(t, flags, ['--reconcile-interval-seconds', '1']);
  const { sale, confirmed } = await crowd(server);
  call('follow', confirmed.id, 'CANCELLED');
  assert.equal(await firstSeats(sale), 'HHAAAAAA');
  await until('it is repaired', async () => (await firstSeats(sale)) === 'HHAACCAA');
  await until('it is logged', () => /msg="redis and the ledger had different states of an entry or a reservation".*result=repaired/.test(server.stderr));
  const metrics = (await server.call('GET', '/metrics')).text;
  assert.match(metrics, /^admitone_reconcile_differences_total\{what="reservation_missing"\} 1$/m);
  assert.match(metrics, /^admitone_reconcile_repairs_total 1$/m);
  await server.stop();
});

test('an event that Redis lacks is reported, and how to restore it', async (t) => {
  const flags = stores();
  const server = await node(t, flags);
  await crowd(server);
  await server.stop(); // or it would bring the event itself, and its seats be mended
  redis('DEL', meta);
  const { status, stdout, stderr } = reconcile(flags);
  assert.equal(status, 1, `${stdout}\n${stderr}`);
  assert.match(stdout, /^ {2}CONCERT\/1 .* MISSING$/m);
  const [, remedy] = /'redis-cli (DEL \S+)'/.exec(stdout);
  redis(...remedy.split(' '));
  const next = await node(t, flags);
  assert.equal(epoch(), '2');
  assert.equal(await firstSeats(new Sale(next, EVENT)), 'HHAACCAA');
  assert.equal(reconcile(flags).status, 0);
  await next.stop();
});

test('a failure to read is reported', async (t) => {
  const flags = stores();
  const empty = reconcile(flags);
  assert.equal(empty.status, 2, empty.stdout);
  assert.match(empty.stderr, /^admitone: Redis is not in the incarnation that the ledger expects/);
  const server = await node(t, flags);
  assert.equal(reconcile(flags).status, 0);
  await server.stop();

  const [hot, , ledger, url] = flags;
  const unreachable = reconcile([hot, 'redis://127.0.0.1:1', ledger, url]);
  assert.equal(unreachable.status, 2);
  assert.match(unreachable.stderr, /cannot read from Redis or the ledger: Redis cannot be used now/);
  assert.equal(reconcile([hot, services.REDIS_URL, ledger, 'postgres://127.0.0.1:1/none']).status, 2);
  const mixed = reconcile([hot, services.REDIS_URL]);
  assert.equal(mixed.status, 2);
  assert.match(mixed.stderr, /an SQLite file is one process's own/);
});

test('one process alone has nothing to reconcile', () => {
  const { status, stdout } = run(['reconcile']);
  assert.equal(status, 0);
  assert.match(stdout, /nothing to reconcile: with --hot memory/);
});
