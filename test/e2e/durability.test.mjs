// No answer before the fsync that covers it, and what happens when the disk is slow, stuck or full.
// The real program runs with test/shim/sync_shim.c loaded, which reports when SQLite's syncs end,
// delays them, or fails writes.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { describe } from 'node:test';
import { hold } from './support/namespace.mjs';
import { Raw, adminRequest } from './support/raw.mjs';
import { assertProblem, concert, launch, removeFolder, run, start, tempFolder, test, until, within } from './support/server.mjs';
import { shimmed, withShim } from './support/shim.mjs';

const nowNs = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as in the shim's log

const put = (server, name, more) => server.admin('PUT', `/admin/events/${name}`, concert(more));

describe('no answer before the fsync', { concurrency: 2 }, () => {
  test('while syncs are held, changes have no answer and show nowhere, and looks are answered at once', () =>
    withShim(async (server) => {
      await put(server, 'OLD/1', { title: 'before' });
      await put(server, 'OLD/2');
      server.hold();
      const changes = [
        put(server, 'NEW/1'),
        put(server, 'OLD/1', { title: 'after' }),
        server.admin('PATCH', '/admin/events/OLD/1', { maxPerUser: 1 }),
        server.admin('DELETE', '/admin/events/OLD/2'),
      ];
      assert.equal(await within(300, Promise.race(changes)), 'pending');
      for (let i = 0; i < 20; i++) {
        assert.equal((await server.call('GET', '/events/OLD/1')).json.title, 'before');
        assert.equal((await server.call('GET', '/events/NEW/1')).status, 404);
        assert.equal((await server.call('GET', '/events/OLD/2')).status, 200);
        assert.equal((await server.call('GET', '/health')).status, 200);
      }
      assert.ok((await server.metric('admitone_ledger_queue_depth')) >= 1);
      assert.equal(await within(0, Promise.race(changes)), 'pending', 'still');
      server.release();
      assert.deepEqual((await Promise.all(changes)).map((a) => a.status), [201, 200, 200, 204]);
      assert.equal((await server.call('GET', '/events/NEW/1')).status, 200);
      assert.equal((await server.call('GET', '/events/OLD/1')).json.title, 'after');
    }));

  test('every acknowledgement has a sync of the log that ended after the request and before the answer', () =>
    withShim(async (server) => {
      const acts = [];
      const act = async (method, target, body) => {
        const sent = nowNs();
        const { status } = await server.admin(method, target, body);
        acts.push({ sent, answered: nowNs(), what: `${method} ${target}` });
        assert.ok(status < 300, `${method} ${target}: ${status}`);
      };
      for (let i = 0; i < 20; i++) {
        await act('PUT', `/admin/events/SYNC/${i}`, concert());
        await act('PATCH', `/admin/events/SYNC/${i}`, { maxPerUser: 1 });
        await act('DELETE', `/admin/events/SYNC/${i}`);
      }
      for (let round = 0; round < 5; round++)
        await Promise.all(Array.from({ length: 40 }, (_, i) => act('PUT', `/admin/events/SYNC/${round}-${i}`, concert())));
      const syncs = server.syncs().filter((sync) => sync.kind === 'wal');
      for (const { sent, answered, what } of acts)
        assert.ok(syncs.some(({ at }) => at > sent && at < answered), `${what}: no sync in between`);
      assert.ok(syncs.length < acts.length, `${syncs.length} syncs for ${acts.length} changes: no group commit`);
    }));

  test('with a large log: the sync is there also when the writer folds the log in', () =>
    withShim(
      async (server) => {
        const body = `${JSON.stringify(concert())}${' '.repeat(30000)}`;
        const acts = [];
        await Promise.all(
          Array.from({ length: 8 }, async (_, n) => {
            for (let i = 0; i < 25; i++) {
              const sent = nowNs();
              assert.equal((await server.admin('PUT', `/admin/events/FOLD/${n}-${i}`, body)).status, 201);
              acts.push({ sent, answered: nowNs() });
            }
          }),
        );
        const syncs = server.syncs();
        for (const { sent, answered } of acts) assert.ok(syncs.some(({ at, kind }) => kind === 'wal' && at > sent && at < answered));
        assert.ok(syncs.some(({ kind }) => kind === 'db'), 'it was folded in');
        assert.ok((await server.metric('admitone_ledger_wal_bytes')) < 4 << 20, 'and stayed small');
      },
      ['--ledger-wal-bytes-max', '262144'],
    ));

  test('a client that goes away while its change is under way: the change is made, the server goes on', () =>
    withShim(async (server) => {
      server.hold();
      for (let i = 0; i < 10; i++) {
        const raw = await Raw.connect(server);
        raw.write(adminRequest(server, 'PUT', `/admin/events/LEFT/${i}`, concert()));
        await until('it is under way', async () => (await server.metric('admitone_ledger_queue_depth')) >= i + 1);
        raw.destroy();
      }
      server.release();
      await until('all are there', async () => (await server.metric('admitone_events')) === 10);
      assert.equal((await put(server, 'LEFT/0')).status, 200);
    }));

  test('a full queue: 503 with Retry-After at once, and those inside are answered', () =>
    withShim(
      async (server) => {
        server.hold();
        const first = put(server, 'QUEUE/first');
        await until('the writer has taken it', async () => (await server.metric('admitone_ledger_queue_depth')) === 1);
        const answers = [];
        const rest = Array.from({ length: 12 }, (_, i) => put(server, `QUEUE/${i}`).then((answer) => answers.push(answer)));
        await until('some are refused', () => answers.length >= 8);
        for (const answer of answers) {
          assertProblem(answer, 503, 'overloaded');
          assert.match(answer.headers['retry-after'], /^\d+$/);
        }
        const refused = answers.length;
        server.release();
        await Promise.all(rest);
        assert.equal((await first).status, 201);
        assert.ok(answers.slice(refused).every((answer) => answer.status === 201));
        assert.equal(await server.metric('admitone_ledger_refused_total'), refused);
        assert.equal(await server.metric('admitone_events'), 1 + answers.length - refused);
      },
      ['--ledger-queue-max', '4'],
    ));
});

describe('a disk that does not come back', { concurrency: 4 }, () => {
  test('SIGTERM while a change waits for its sync: it is answered when that ends, and the exit is good', async () => {
    const server = await shimmed();
    server.hold();
    const change = put(server, 'WAIT/1');
    await until('it is under way', async () => (await server.metric('admitone_ledger_queue_depth')) === 1);
    server.signal('SIGTERM');
    await until('it has begun to stop', () => server.stderr.includes('msg=stopping'));
    assert.equal(await within(300, change), 'pending');
    server.release();
    const answer = await change;
    assert.equal(answer.status, 201);
    assert.equal(answer.headers.connection, 'close');
    await server.stop();
  });

  test('SIGTERM while the demo events are made: they are finished, and the exit is good', async () => {
    const folder = tempFolder();
    const dataDir = path.join(folder, 'data');
    await (await start({ dataDir })).stop();
    const server = await shimmed(['--demo'], { dataDir });
    server.hold();
    // Whether or not the demo was quicker than the hold: it must end well.
    server.signal('SIGTERM');
    await until('it has begun to stop', () => server.stderr.includes('msg=stopping'));
    server.release();
    await server.stop();
    removeFolder(folder);
  });

  // The process must not wait for ever; requests under way were not acknowledged.
  async function assertGivesUp(begin) {
    const server = await shimmed();
    try {
      await put(server, 'DONE/1');
      server.hold();
      await begin(server);
      server.signal('SIGTERM');
      const ended = await within(60000, server.ended);
      assert.notEqual(ended, 'pending', 'it hangs');
      assert.equal(ended.signal, null);
      if (ended.code !== 0) assert.match(server.stderr, /level=error msg="could not stop in time/);
    } finally {
      server.killed = true;
      if (server.exit === null) await server.kill9();
    }
    server.release();
    assert.equal(run(['audit', '--data', server.dataDir]).status, 0);
    const next = await start({ dataDir: server.dataDir });
    assert.equal((await next.call('GET', '/events/DONE/1')).status, 200);
    await next.stop();
    server.forget();
  }

  test('SIGTERM while the disk is stuck under a change: it gives up within 10 s and says why', () =>
    assertGivesUp(async (server) => {
      put(server, 'STUCK/1').catch(() => {});
      await until('it is under way', async () => (await server.metric('admitone_ledger_queue_depth')) === 1);
    }));

  test('SIGTERM while the disk is stuck and nothing is under way: it gives up within 10 s too', () => assertGivesUp(async () => {}));
});

describe('a full disk', () => {
  test('writes that fail: 503 ledger_full with Retry-After, one clear line, nothing changed; then service resumes', () =>
    withShim(async (server) => {
      await put(server, 'OLD/1', { title: 'before' });
      server.fail();
      for (const [method, target, body] of [
        ['PUT', '/admin/events/NEW/1', concert()],
        ['PUT', '/admin/events/OLD/1', concert({ title: 'after' })],
        ['PATCH', '/admin/events/OLD/1', { title: 'after' }],
        ['DELETE', '/admin/events/OLD/1', undefined],
        ['PUT', '/admin/events/NEW/2', concert()],
      ]) {
        const answer = await server.admin(method, target, body);
        assertProblem(answer, 503, 'ledger_full');
        assert.match(answer.headers['retry-after'], /^\d+$/);
      }
      assert.equal((await server.call('GET', '/events/OLD/1')).json.title, 'before');
      assert.equal((await server.call('GET', '/events/NEW/1')).status, 404);
      assert.equal((await server.call('GET', '/health')).status, 200);
      const ready = await server.call('GET', '/ready');
      assert.equal(ready.status, 503);
      assert.deepEqual(ready.json, { ready: false, ledger: 'failing', hot: 'ok', events: 'ok', feed: 'ok', stopping: false });
      assert.match(ready.headers['retry-after'], /^\d+$/);
      assert.equal(await server.metric('admitone_ledger_writable'), 0);
      const complaints = server.stderr.split('\n').filter((line) => line.includes('level=error'));
      assert.equal(complaints.length, 1, complaints.join('\n'));
      assert.match(complaints[0], /the ledger cannot write.*(full|space)/);

      server.recover();
      assert.equal((await put(server, 'NEW/1')).status, 201);
      assert.equal((await server.call('GET', '/ready')).status, 200);
      assert.match(server.stderr, /level=info msg="the ledger can write again"/);
      assert.equal((await server.admin('GET', '/admin/audit')).json.audit.length, 2, 'what was refused left no trail');
    }));

  test('/ready comes back by itself when the disk does: a node without traffic would else stay out for ever', () =>
    withShim(async (server) => {
      server.fail();
      assert.equal((await put(server, 'NEW/1')).status, 503);
      assert.equal((await server.call('GET', '/ready')).status, 503);
      server.recover();
      await until('it is ready again', async () => (await server.call('GET', '/ready')).status === 200);
    }));

  test('a disk that is really full: 503 and looks go on; when there is room, so do changes; nothing acknowledged is lost', async () => {
    const folder = tempFolder();
    const disk = path.join(folder, 'disk');
    fs.mkdirSync(disk);
    const space = await hold(['--mount'], `mount -t tmpfs -o size=6m admitone-e2e '${disk}'`);
    const root = `/proc/${space.pid}/root`;
    const dataDir = path.join(disk, 'data');
    const begin = () => start({ dataDir, wrap: space.enter, root, args: ['--ledger-wal-bytes-max', '524288'] });
    const audit = () => run(['audit', '--data', dataDir], { wrap: space.enter });
    const body = (title) => `${JSON.stringify(concert({ title }))}${' '.repeat(20000)}`;
    const kept = new Map();
    let server = await begin();
    const change = async (i) => {
      const name = `FULL/${i % 10}`;
      const answer = await server.admin('PUT', `/admin/events/${name}`, body(`take ${i}`));
      if (answer.status < 300) kept.set(name, `take ${i}`);
      return answer;
    };
    const check = async () => {
      for (const [name, title] of kept) assert.equal((await server.call('GET', `/events/${name}`)).json?.title, title, name);
    };
    try {
      for (let i = 0; i < 10; i++) assert.equal((await change(i)).status, 201);

      const filler = path.join(root, disk, 'filler');
      const file = fs.openSync(filler, 'w');
      assert.throws(() => {
        for (;;) fs.writeSync(file, Buffer.alloc(4096));
      }, /ENOSPC/);
      fs.closeSync(file);
      // The log may have room left from before: write until it has not.
      let refused = null;
      for (let i = 10; i < 400 && refused === null; i++) {
        const answer = await change(i);
        if (answer.status >= 300) refused = answer;
      }
      assertProblem(refused, 503, 'ledger_full');
      assert.match(refused.headers['retry-after'], /^\d+$/);
      for (let i = 400; i < 410; i++) assertProblem(await change(i), 503, 'ledger_full');
      assert.equal((await server.call('GET', '/ready')).status, 503);
      await check();
      assert.equal((await server.call('GET', '/events')).status, 200);
      assert.equal((await server.admin('GET', '/admin/audit?limit=1')).status, 200);
      // One line says so; that the log can't be folded in may be another. No line per refusal.
      const complaints = server.stderr.split('\n').filter((line) => line.includes('level=error'));
      assert.equal(complaints.filter((line) => /the ledger cannot write.*(full|space)/.test(line)).length, 1, complaints.join('\n'));
      assert.ok(complaints.length <= 3, complaints.join('\n'));

      fs.rmSync(filler);
      await until('changes are taken again', async () => (await change(500)).status === 200);
      for (let i = 501; i < 511; i++) assert.equal((await change(i)).status, 200);
      assert.equal((await server.call('GET', '/ready')).status, 200);
      await check();
      assert.match(audit().stdout, /0 violations/);
      await server.stop();
      assert.equal(audit().status, 0);
      server = await begin();
      await check();
      assert.equal((await server.call('GET', '/events')).json.events.length, kept.size);
    } finally {
      await server.stop();
      await space.release();
      removeFolder(folder);
    }
  });

  test('a disk that is full when the server is killed: it starts again when there is room, with everything', async () => {
    const folder = tempFolder();
    const disk = path.join(folder, 'disk');
    fs.mkdirSync(disk);
    const space = await hold(['--mount'], `mount -t tmpfs -o size=6m admitone-e2e '${disk}'`);
    const root = `/proc/${space.pid}/root`;
    const begin = () => start({ dataDir: path.join(disk, 'data'), wrap: space.enter, root });
    let server = await begin();
    try {
      const kept = [];
      for (let i = 0; i < 1000; i++) {
        const answer = await server.admin('PUT', `/admin/events/FILL/${i}`, `${JSON.stringify(concert())}${' '.repeat(40000)}`);
        if (answer.status === 503) break;
        assert.equal(answer.status, 201);
        kept.push(i);
      }
      assert.ok(kept.length > 10 && kept.length < 1000, `${kept.length}`);
      await server.kill9();
      assert.equal(run(['audit', '--data', server.dataDir], { wrap: space.enter }).status, 0);
      await grow(space, disk);
      server = await begin();
      assert.equal((await server.call('GET', '/events?limit=1000')).json.events.length, kept.length);
      assert.equal((await put(server, 'AFTER/1')).status, 201);
    } finally {
      await server.stop();
      await space.release();
      removeFolder(folder);
    }
  });

  // The operator gives the disk more room.
  async function grow(space, disk) {
    const grown = launch([...space.enter, 'mount', '-t', 'tmpfs', '-o', 'remount,size=32m', 'admitone-e2e', disk]);
    assert.deepEqual(await grown.ended, { code: 0, signal: null }, grown.stderr);
  }
});
