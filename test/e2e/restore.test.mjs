// What a restore from a backup does to entry tokens: those of the time after the backup open nobody's
// place, their numbers are not given out again, and the log says so. On SQLite the data folder is
// copied; on two nodes the database is dumped.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

import { PSQL, homeOf } from './support/cluster.mjs';
import { WaitingRoom, assertAudit, bearer, entriesOf, rewrite } from './support/queue.mjs';
import { Sale } from './support/reservations.mjs';
import { assertProblem, isCluster, removeFolder, run, start, storeFlags, tempFolder, test } from './support/server.mjs';

const WARNING = /level=warn msg="the ledger begins a new generation: entry tokens that were issued before are void;[^\n]*/;

async function inFolder(use) {
  const folder = tempFolder();
  try {
    return await use(path.join(folder, 'data'), path.join(folder, 'backup'));
  } finally {
    removeFolder(folder);
  }
}

function output(file, args) {
  const done = spawnSync(file, args, { encoding: 'utf8', timeout: 60000, maxBuffer: 256 << 20 });
  assert.ifError(done.error);
  assert.equal(done.status, 0, done.stderr);
  return done.stdout;
}

function backUp(dataDir, backup) {
  if (!isCluster) fs.cpSync(dataDir, backup, { recursive: true, preserveTimestamps: true });
  else fs.writeFileSync(backup, output(path.join(path.dirname(PSQL), 'pg_dump'), ['--no-owner', homeOf(dataDir).postgresUrl]));
}

// The ways in which an operator may put a folder back.
const WAYS = isCluster
  ? { 'the dump is read into the database': '' }
  : {
      'the folder is replaced': 'rm -rf "$DATA" && cp -a "$BACKUP" "$DATA"',
      'the files are written over': 'cp -r "$BACKUP/." "$DATA"',
      'the ledger alone is written over, times and all': 'cp -p "$BACKUP/admitone.db" "$DATA/admitone.db"',
    };

function putBack(dataDir, backup, way) {
  if (isCluster) {
    const args = [homeOf(dataDir).postgresUrl, '-qAtX', '-v', 'ON_ERROR_STOP=1'];
    output(PSQL, [...args, '-c', 'DROP SCHEMA public CASCADE', '-c', 'CREATE SCHEMA public']);
    output(PSQL, [...args, '-f', backup]);
  } else {
    output('env', [`DATA=${dataDir}`, `BACKUP=${backup}`, 'sh', '-ec', way]);
  }
}

// Every request that a token opens.
async function assertVoid(sale, token) {
  const wish = { quantity: 1 };
  const { server, name } = sale;
  const headers = bearer(token);
  for (const [method, target, body] of [
    ['GET', `/queue/${name}/status`],
    ['GET', '/queue/status'],
    ['GET', `/queue/${name}/subscribe/${token}`],
    ['GET', `/gate/${name}`],
    ['DELETE', `/queue/${name}/leave`],
    ['POST', '/reservations', { eventType: sale.type, eventId: sale.id, section: 'A', ...wish }],
    ['POST', '/api/v4/queue', { eventType: sale.type, eventId: sale.id, section: 'A', ...wish }],
    ['GET', '/reservations'],
    ['GET', '/reservations/01890000-0000-7000-8000-000000000000'],
    ['POST', '/reservations/01890000-0000-7000-8000-000000000000/confirm'],
    ['POST', '/reservations/01890000-0000-7000-8000-000000000000/cancel'],
    ['GET', '/api/v4/status/01890000-0000-7000-8000-000000000000'],
  ])
    assertProblem(await server.call(method, target, { headers, body }), 401, 'token_invalid');
}

test('a token of the time after a backup opens nobody\'s place after the restore, however it is put back', () =>
  inFolder(async (dataDir, backup) => {
    const begin = async () => {
      const server = await start({ dataDir });
      return [server, new Sale(server, 'SHOW/1'), new Sale(server, 'SHOW/2')];
    };
    const first = await start({ dataDir });
    const ann = await (await Sale.open(first, 'SHOW/1')).buyer('ann');
    await Sale.open(first, 'SHOW/2'); // nobody has entered
    assert.doesNotMatch(first.stderr, WARNING, 'a new ledger is no restored one');
    await first.stop();
    backUp(dataDir, backup);

    let known = [ann];
    let highest = 0;
    for (const [name, way] of Object.entries(WAYS)) {
      let [server, sale, empty] = await begin();
      assert.doesNotMatch(server.stderr, WARNING, 'nor is one that was only stopped');
      for (const { token } of known) assert.equal((await sale.status(token)).status, 'ACTIVE');
      const old = await sale.buyer('old');
      await sale.held(old);
      await empty.buyer('old');
      for (const one of [sale, empty]) highest = Math.max(highest, entriesOf(one).at(-1).seq);
      await server.stop();

      putBack(dataDir, backup, way);
      [server, sale, empty] = await begin();
      assert.match(server.stderr, WARNING, name);
      const victim = await sale.buyer('victim');
      await empty.buyer('victim');
      for (const one of [sale, empty]) {
        const { seq, user_id: user } = entriesOf(one).at(-1);
        assert.equal(user, 'victim');
        assert.ok(seq > highest && seq < 2 ** 48, `${seq} after ${highest}`);
      }
      for (const { token } of [old, ...known]) await assertVoid(sale, token);
      assert.deepEqual(await sale.list(victim), []);
      assert.equal((await sale.status(victim.token)).status, 'ACTIVE', 'and nobody ended the place');
      known = [victim, await sale.buyer('ann')];
      assert.equal(entriesOf(sale).filter(({ user_id: id }) => id === 'ann').length, 1, 'it is the same place');
      await server.stop();
      assertAudit(dataDir);
    }
    // Once: the next start goes on with it.
    const [server, sale] = await begin();
    assert.doesNotMatch(server.stderr, WARNING);
    for (const { token } of known) assert.equal((await sale.status(token)).status, 'ACTIVE');
    await server.stop();
  }));

test('a token opens only the place of its own user, even if another one has the number', () =>
  inFolder(async (dataDir) => {
    const first = await start({ dataDir });
    const { token } = await (await Sale.open(first, 'SHOW/1')).buyer('ann');
    const waits = await (await WaitingRoom.open(first, 'SHOW/2', { maxActive: 1 })).enterAll(['head', 'ann']);
    await first.stop();
    rewrite(dataDir, "UPDATE queue_entries SET user_id = 'victim' WHERE user_id = 'ann'");

    const server = await start({ dataDir });
    const sale = new Sale(server, 'SHOW/1');
    const room = new WaitingRoom(server, 'SHOW/2');
    for (const [name, entryToken] of [['SHOW/1', token], ['SHOW/2', waits[1].entryToken]]) {
      const headers = bearer(entryToken);
      const [eventType, eventId] = name.split('/');
      const wish = { eventType, eventId, section: 'A', quantity: 1 };
      for (const [method, target, body] of [
        ['GET', `/queue/${name}/status`],
        ['GET', '/queue/status'],
        ['GET', `/queue/${name}/subscribe/${entryToken}`],
        ['GET', `/gate/${name}`],
        ['DELETE', `/queue/${name}/leave`],
        ['POST', '/reservations', wish],
        ['POST', '/api/v4/queue', wish],
        ['GET', '/reservations'],
      ])
        assertProblem(await server.call(method, target, { headers, body }), 401, 'token_invalid');
      assertProblem(await server.call('POST', '/reservations', { headers, body: { ...wish, userId: 'ann' } }), 403, 'not_active');
      assertProblem(await server.call('POST', '/reservations', { headers, body: { ...wish, userId: 'victim' } }), 403, 'user_mismatch');
    }
    assert.equal((await sale.enter('victim')).status, 'ACTIVE');
    assert.equal((await room.enter('victim')).position, 1);
    assert.equal(sale.rows().length, 0);
    await server.stop();
  }));

test('`admitone ledger new-generation` is for restores that nothing can recognise', () =>
  inFolder(async (dataDir) => {
    const renew = () => run(['ledger', 'new-generation', ...storeFlags(dataDir)]);
    let server = await start({ dataDir });
    const ann = await (await Sale.open(server, 'SHOW/1')).buyer('ann');
    const refused = renew();
    assert.equal(refused.status, 1, refused.stdout);
    assert.match(refused.stderr, isCluster ? /nodes run on the ledger; stop all of them first/ : /belongs to another admitone that runs/);
    assert.equal((await new Sale(server, 'SHOW/1').status(ann.token)).status, 'ACTIVE');
    await server.stop();

    const done = renew();
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stdout, /has begun a new generation/);
    server = await start({ dataDir });
    const sale = new Sale(server, 'SHOW/1');
    await assertVoid(sale, ann.token);
    assert.equal((await sale.enter('ann')).status, 'ACTIVE');
    await sale.buyer('ben');
    const [one, two] = entriesOf(sale);
    assert.deepEqual([one.user_id, one.seq], ['ann', 1]);
    assert.ok(two.seq > 2 ** 40, 'also after a rebuild of Redis');
    await server.stop();
    assertAudit(dataDir);

    assert.equal(run(['ledger']).status, 2);
    assert.equal(run(['ledger', 'burn']).status, 2);
  }));
