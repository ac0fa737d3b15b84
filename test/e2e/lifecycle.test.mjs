// The command line, the data folder and the log of one process.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { describe } from 'node:test';
import { clock } from './support/clock.mjs';
import { assertAudit, query } from './support/queue.mjs';
import { exchange, request } from './support/raw.mjs';
import { BINARY, assertProblem, call, concert, environment, launch, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';

// A folder for one test, removed behind it.
async function inFolder(use) {
  const folder = tempFolder();
  try {
    return await use(path.join(folder, 'data'), folder);
  } finally {
    removeFolder(folder);
  }
}

describe('starting', () => {
  // Fails before it serves, says why in one line, and leaves nothing running.
  async function assertNoStart(args, status, pattern, options = {}) {
    const failed = run(['serve', '--listen', '127.0.0.1:0', ...args], { timeoutMs: 10000, ...options });
    assert.equal(failed.status, status, failed.stderr);
    assert.match(failed.stderr, pattern);
    assert.match(failed.stderr, /^admitone: /m);
    assert.doesNotMatch(failed.stderr, /listening/);
    return failed;
  }

  test('a second server on one data folder is refused by name and pid, and the first goes on', () =>
    inFolder(async (dataDir) => {
      const server = await start({ dataDir });
      const { stderr } = await assertNoStart(['--data', dataDir], 1, /belongs to another admitone/);
      assert.ok(stderr.includes(dataDir) && stderr.includes(`pid ${server.pid}`), stderr);
      assert.equal((await server.call('GET', '/ready')).status, 200);
      await server.kill9();
      const next = await start({ dataDir });
      await next.stop();
    }));

  test('deleting the files that name the pid does not let a second server in, under any name', () =>
    inFolder(async (dataDir, folder) => {
      const server = await start({ dataDir });
      const file = (name) => path.join(dataDir, name);
      for (const name of ['lock', 'admitone.db.lock']) {
        assert.equal(fs.readFileSync(file(name), 'utf8'), `${server.pid}\n`);
        fs.rmSync(file(name));
      }
      await assertNoStart(['--data', dataDir], 1, /the data folder .* belongs to another admitone that runs \(pid unknown\)/);
      const other = ['--data', path.join(folder, 'other'), '--ledger'];
      fs.symlinkSync(file('admitone.db'), path.join(folder, 'soft.db'));
      fs.linkSync(file('admitone.db'), path.join(folder, 'hard.db'));
      for (const ledger of [file('admitone.db'), path.join(folder, 'soft.db'), path.join(folder, 'hard.db')])
        await assertNoStart([...other, `sqlite:${ledger}`], 1, /the ledger sqlite:.* belongs to another admitone that runs/);
      assert.match(run(['audit', '--data', dataDir]).stdout, /: a server runs on it\n/);
      await server.stop();
      assert.match(run(['audit', '--data', dataDir]).stdout, /: no server runs on it\n/);
    }));

  test('a clock that cannot be right stops the start, and the audit', () =>
    inFolder(async (dataDir) => {
      for (const [time, shown] of [
        ['1969-12-31T23:59:00Z', /it says 1969-12-31T23:59:\d\d/],
        ['1999-12-31T23:00:00Z', /it says 1999-/],
        ['2200-01-01T00:00:00Z', /it says 2200-/],
        ['+010000-01-02T00:00:00Z', /it says a year of another length/],
      ]) {
        clock.set(time);
        const { stderr } = await assertNoStart(['--data', dataDir], 1, /^admitone: the clock of this machine is wrong: /m, { env: clock.env() });
        assert.match(stderr, shown);
        assert.equal(run(['audit', '--data', dataDir], { env: clock.env() }).status, 2);
      }
      assert.ok(!fs.existsSync(dataDir), 'nothing was made');
      for (const time of ['2000-01-01T00:00:01Z', '2199-12-30T00:00:00Z']) {
        clock.set(time);
        await (await clock.start()).stop();
      }
    }));

  describe('after a crash', () => {
    // A server that was killed after it had acknowledged an event, and its files.
    async function crashed(dataDir, args = []) {
      const server = await start({ dataDir, args });
      assert.equal((await server.admin('PUT', '/admin/events/CRASH/1', concert())).status, 201);
      await server.kill9();
      const file = path.join(dataDir, 'admitone.db');
      return { server, file, wal: `${file}-wal`, mark: `${file}.open` };
    }
    const hasEvent = async (server) => (await server.call('GET', '/events/CRASH/1')).status === 200;
    const LOST = /^admitone: the ledger .*admitone\.db was not closed cleanly, and its write-ahead log .*admitone\.db-wal, .* is missing or empty\. Put that file back\./m;

    test('a ledger without its WAL is refused, until the WAL is back or the operator says so', () =>
      inFolder(async (dataDir) => {
        const { file, wal, mark } = await crashed(dataDir);
        fs.renameSync(wal, `${file}-kept`);
        for (const lose of [() => {}, () => fs.writeFileSync(wal, '')]) {
          lose();
          const { stderr } = await assertNoStart(['--data', dataDir], 1, LOST);
          assert.ok(stderr.includes(`remove ${mark} to start`), stderr);
          const audit = run(['audit', '--data', dataDir]);
          assert.equal(audit.status, 2);
          assert.match(audit.stderr, LOST);
        }
        fs.renameSync(`${file}-kept`, wal);
        const again = await start({ dataDir });
        assert.ok(await hasEvent(again));
        assert.doesNotMatch(again.stderr, /not closed cleanly/);
        await again.stop();
        assert.ok(!fs.existsSync(mark), 'a clean close needs no WAL');
        await (await start({ dataDir })).stop();

        const empty = path.join(path.dirname(dataDir), 'empty');
        const lost = await crashed(empty);
        fs.rmSync(lost.wal);
        await assertNoStart(['--data', empty], 1, LOST);
        fs.rmSync(lost.mark);
        const without = await start({ dataDir: empty });
        assert.ok(!(await hasEvent(without)));
        await without.stop();
      }));

    test('also after checkpoints, which change the ledger', () =>
      inFolder(async (dataDir) => {
        const server = await start({ dataDir, args: ['--ledger-wal-bytes-max', '65536'] });
        const file = path.join(dataDir, 'admitone.db');
        const changed = () => fs.statSync(file, { bigint: true }).mtimeNs;
        const began = changed();
        await until('the WAL is checkpointed', async () => {
          await server.admin('PUT', '/admin/events/CRASH/1', concert());
          return changed() !== began;
        });
        const noted = () => /changed (\d+)/.exec(fs.readFileSync(`${file}.open`, 'utf8'))[1];
        await until('the checkpoint is noted', () => BigInt(noted()) === changed());
        await server.kill9();
        fs.rmSync(`${file}-wal`);
        await assertNoStart(['--data', dataDir], 1, LOST);
      }));

    test('a ledger that another program has opened since, or a copy of it, starts with a warning', () =>
      inFolder(async (dataDir) => {
        const { file, wal } = await crashed(dataDir);
        query(dataDir, 'SELECT count(*) FROM events'); // as its last user, SQLite copies the WAL into the ledger
        assert.ok(!fs.existsSync(wal));
        const again = await start({ dataDir });
        assert.ok(await hasEvent(again));
        assert.match(again.stderr, /level=warn msg="the ledger was not closed cleanly, and another program changed it since"/);
        await again.kill9();

        fs.copyFileSync(file, `${file}-copy`);
        for (const old of [file, wal, `${file}-shm`]) fs.rmSync(old, { force: true });
        fs.renameSync(`${file}-copy`, file);
        const restored = await start({ dataDir });
        assert.match(restored.stderr, /level=warn msg="the ledger was not closed cleanly, and another file has replaced it since; if that is a backup, /);
        assert.ok(await hasEvent(restored));
        await restored.stop();
      }));
  });

  test('a port that is taken is named, by another server or anything else', () =>
    inFolder(async (dataDir) => {
      const server = await start();
      const { stderr } = await assertNoStart(['--data', dataDir, '--listen', `127.0.0.1:${server.port}`], 1, /cannot listen on 127\.0\.0\.1:\d+: Address already in use/);
      assert.ok(stderr.includes(String(server.port)) && stderr.includes('--listen'), stderr);
      assert.equal((await server.call('GET', '/health')).status, 200);
      await assertNoStart(['--data', dataDir, '--admin-listen', `127.0.0.1:${server.port}`], 1, /cannot listen on 127\.0\.0\.1:\d+: .* choose another with --admin-listen$/m);
      await assertNoStart(['--data', dataDir, '--metrics-listen', `127.0.0.1:${server.port}`], 1, /cannot listen on 127\.0\.0\.1:\d+: .* choose another with --metrics-listen$/m);
      await server.stop();
    }));

  test('a data folder or a ledger that cannot be used is named', () =>
    inFolder(async (dataDir, folder) => {
      const file = path.join(folder, 'file');
      fs.writeFileSync(file, 'not a folder');
      for (const bad of [file, path.join(file, 'data'), '/proc/admitone'])
        assert.ok((await assertNoStart(['--data', bad], 1, /data folder/)).stderr.includes(bad));
      const missing = path.join(folder, 'none/ledger.db');
      assert.ok((await assertNoStart(['--data', dataDir, '--ledger', `sqlite:${missing}`], 1, /admitone: /)).stderr.includes(missing));
      const garbage = path.join(folder, 'garbage.db');
      fs.writeFileSync(garbage, Buffer.alloc(8192, 'garbage '));
      assert.ok((await assertNoStart(['--data', dataDir, '--ledger', `sqlite:${garbage}`], 1, /admitone: /)).stderr.includes(garbage));
      assert.deepEqual(fs.readFileSync(garbage), Buffer.alloc(8192, 'garbage '), 'and is left as it was');
    }));

  test('keys are made for their owner alone, and a key that others can read is refused', () =>
    inFolder(async (dataDir, folder) => {
      const server = await start({ dataDir });
      const mode = (name) => fs.statSync(path.join(dataDir, name)).mode & 0o777;
      assert.equal(mode('admin.key'), 0o600);
      assert.equal(mode('secret'), 0o600);
      assert.equal(mode('pass.key'), 0o600);
      assert.equal(mode('.'), 0o700);
      assert.match(server.adminKey, /^[0-9a-f]{64}$/);
      const keys = ['admin.key', 'secret', 'pass.key'].map((name) => fs.readFileSync(path.join(dataDir, name), 'utf8'));
      assert.equal(new Set(keys).size, keys.length, 'each is a key of its own');
      assert.ok(!server.stderr.includes(server.adminKey), 'the log says where the key is, not what');
      await server.stop();

      for (const [name, bits] of [['admin.key', 0o644], ['admin.key', 0o620], ['secret', 0o604], ['pass.key', 0o640]]) {
        fs.chmodSync(path.join(dataDir, name), bits);
        const { stderr } = await assertNoStart(['--data', dataDir], 1, /can be read by others; run: chmod 600/);
        assert.ok(stderr.includes(path.join(dataDir, name)));
        fs.chmodSync(path.join(dataDir, name), 0o600);
      }
      const key = path.join(folder, 'key');
      await assertNoStart(['--data', dataDir, '--admin-key-file', key], 1, /cannot read the key file/);
      fs.writeFileSync(key, 'too short\n', { mode: 0o600 });
      for (const flags of [['--admin-key-file'], ['--secret-file'], ['--secret-previous-file'], ['--pass-key-file'], ['--users-auth', 'signed', '--users-key-file']])
        await assertNoStart(['--data', dataDir, ...flags, key], 1, /at least 16 characters/);
      const keyFile = (name) => {
        const file = path.join(folder, name);
        fs.writeFileSync(file, `long enough to be the key ${name}\n`, { mode: 0o600 });
        return file;
      };
      await (await start({ dataDir, args: ['--users-auth', 'signed', '--users-key-file', keyFile('users'), '--secret-previous-file', keyFile('previous'), '--pass-key-file', keyFile('pass')] })).stop();
      await (await start({ dataDir })).stop();
    }));

  test('the same key for two purposes is refused, with the names of both settings', () =>
    inFolder(async (dataDir, folder) => {
      const files = ['one', 'two'].map((name) => path.join(folder, name));
      for (const file of files) fs.writeFileSync(file, 'the same key, in two files\n', { mode: 0o600 });
      const flags = {
        secret_file: ['--secret-file'],
        secret_previous_file: ['--secret-previous-file'],
        pass_key_file: ['--pass-key-file'],
        admin_key_file: ['--admin-key-file'],
        'users.key_file': ['--users-auth', 'signed', '--users-key-file'],
        'shop.key_file': ['--shop-key-file'],
      };
      const names = Object.keys(flags);
      for (const [i, one] of names.entries())
        for (const two of names.slice(i + 1)) {
          const { stderr } = await assertNoStart(['--data', dataDir, ...flags[one], files[0], ...flags[two], files[1]], 1, /have the same key; each needs one that is used for nothing else$/m);
          assert.ok(stderr.includes(`admitone: ${one} and ${two} have`), stderr);
        }
      // Also if the second one is a named key.
      const digest = createHash('sha256').update('the same key, in two files').digest('hex');
      const ring = path.join(folder, 'ring');
      fs.writeFileSync(ring, `foo own sha256:${digest}\n`, { mode: 0o600 });
      for (const name of names) {
        const { stderr } = await assertNoStart(['--data', dataDir, '--keys-file', ring, ...flags[name], files[0]], 1, /have the same key; each needs one that is used for nothing else$/m);
        assert.ok(stderr.includes(`admitone: the key "foo" of the keys file ${ring} and ${name} have`), stderr);
      }
      // One that was made in the data folder, and is given again.
      await (await start({ dataDir })).stop();
      await assertNoStart(['--data', dataDir, '--pass-key-file', path.join(dataDir, 'secret')], 1, /secret_file and pass_key_file have the same key/);
    }));

  test('the file of named keys is found in the data folder, or must be there if it is set', () =>
    inFolder(async (dataDir, folder) => {
      const file = path.join(folder, 'keys');
      await assertNoStart(['--data', dataDir, '--keys-file', file], 1, /cannot read the key file .*keys: No such file/);
      fs.writeFileSync(file, 'shop shop sha256:0\n', { mode: 0o600 });
      await assertNoStart(['--data', dataDir, '--keys-file', file], 1, /the keys file .*keys, line 1: the third word is not sha256:/);
      fs.writeFileSync(file, '');
      fs.chmodSync(file, 0o644);
      await assertNoStart(['--data', dataDir, '--keys-file', file], 1, /keys can be read by others; run: chmod 600/);
      const server = await start({ dataDir });
      const { status, stdout, stderr } = run(['keys', 'add', 'ops', 'operate', '--data', dataDir]);
      assert.equal(status, 0, stderr);
      const ask = async (at) => (await at.call('GET', '/admin/audit', { headers: { authorization: `Bearer ${stdout.trim()}` } })).status;
      await until('the first key of the folder is known', async () => (await ask(server)) === 200);
      await server.stop();
      assert.ok(!server.stderr.includes(stdout.trim()));
      const again = await start({ dataDir });
      assert.equal(await ask(again), 200);
      await again.stop();
    }));

  test('with --metrics-listen the metrics are there, and only there', async () => {
    const server = await start({ args: ['--metrics-listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'] });
    const port = (what) => Number(new RegExp(`listening for ${what}" addr=127\\.0\\.0\\.1:(\\d+)`).exec(server.stderr)[1]);
    const metrics = { port: port('metrics') };
    for (const other of [server, { port: port('the admin') }]) assertProblem(await call(other, 'GET', '/metrics'), 404, 'not_found');
    assert.match((await call(metrics, 'GET', '/metrics')).text, /^admitone_build_info/m);
    const headers = { authorization: `Bearer ${server.adminKey}` };
    for (const target of ['/health', '/events', '/openapi.json', '/admin/audit']) assertProblem(await call(metrics, 'GET', target, { headers }), 404, 'not_found');
    assert.equal((await call(server, 'GET', '/events')).status, 200);
    await server.stop();
  });

  test('what is unknown or out of range stops the start with its name, and typing errors get a hint', () =>
    inFolder(async (dataDir, folder) => {
      let files = 0;
      const ini = (text) => {
        const file = path.join(folder, `${++files}.ini`);
        fs.writeFileSync(file, text);
        return ['--config', file];
      };
      // arguments, environment, what the message says
      const cases = [
        [['--lisen', 'x'], {}, /unknown key --lisen; did you mean --listen\?/],
        [['--queue-max-actve=1'], {}, /unknown key --queue-max-actve; did you mean --queue-max-active\?/],
        [['--nothing-of-the-kind'], {}, /unknown key --nothing-of-the-kind$/m],
        [ini('[queue]\nmax_activ = 5\n'), {}, /unknown key queue\.max_activ; did you mean queue\.max_active\? \(.*1\.ini, line 2\)/],
        [ini('workers = 2\nthis is no line\n'), {}, /2\.ini: line 2/],
        [ini('; a comment\n\n[queue\nmax_active = 5\n'), {}, /3\.ini: line 3 is neither "key = value" nor "\[section\]"$/m],
        [ini('[queue]\nmax_active = many\n'), {}, /queue\.max_active \(file .*\): "many" is not a whole number from 1 to 1000000/],
        [['--config', path.join(folder, 'none.ini')], {}, /cannot read the configuration file .*none\.ini/],
        [['--workers', '257'], {}, /workers \(flag --workers\): "257" is not a whole number from 0 to 256/],
        [['--workers', '-1'], {}, /workers \(flag --workers\)/],
        [['--workers', '2x'], {}, /workers \(flag --workers\)/],
        [['--workers', ''], {}, /workers \(flag --workers\)/],
        [['--workers', '99999999999999999999'], {}, /workers \(flag --workers\)/],
        [[], { ADMITONE_NET_IDLE_TIMEOUT_MS: '1' }, /net\.idle_timeout_ms \(environment ADMITONE_NET_IDLE_TIMEOUT_MS\): "1"/],
        [['--log-level', 'loud'], {}, /log\.level \(flag --log-level\): "loud" is not one of: debug info warn error/],
        [['--demo=maybe'], {}, /demo \(flag --demo\): "maybe" is not true or false/],
        [['--workers'], {}, /--workers needs a value/],
        [['8080'], {}, /unexpected argument "8080"/],
        [['-v'], {}, /unexpected argument "-v"/],
        [['--listen', 'somewhere:80'], {}, /listen: "somewhere:80" is not ADDR:PORT/],
        [['--listen', '127.0.0.1:65536'], {}, /listen: /],
        [['--listen', '127.0.0.1'], {}, /listen: /],
        [['--admin-listen', 'x'], {}, /admin\.listen: "x"/],
        [['--metrics-listen', 'x'], {}, /metrics\.listen: "x"/],
        [['--net-trusted-proxies', '192.0.2.0/33'], {}, /net\.trusted_proxies: "192\.0\.2\.0\/33"/],
        [['--reservation-currency', 'won'], {}, /reservation\.currency: "won"/],
        ...['https://shop.example/', 'https://Shop.example', 'shop.example', 'https://a.example;https://b.example', 'https://*.example', '*,https://a.example', 'null', 'https://a.example:443', 'http://a.example:x'].map(
          (origin) => [['--cors-origins', `https://b.example, ${origin}`], {}, /cors\.origins: "\S+" is not an origin as browsers send it/],
        ),
        [['--hot', 'disk'], {}, /hot: it is memory, redis:\/\//],
        [['--ledger', 'mysql://x'], {}, /ledger: it is sqlite:PATH or postgres:\/\//],
        [['--hot', 'redis://x'], {}, /ledger: with hot in Redis other nodes may join/],
        [['--ledger', 'postgres://x'], {}, /hot: with the ledger in PostgreSQL other nodes may join/],
        [['--hot', 'redis://x', '--ledger', 'postgres://x'], {}, /secret_file: nodes must have the same keys/],
        [['--listen', '0.0.0.0:0'], {}, /users\.auth: listen is not loopback, .*trusted .*signed .*anonymous/],
        [['--net-trusted-proxies', '127.0.0.1'], {}, /users\.auth: net\.trusted_proxies are in front, .*trusted .*signed .*anonymous/],
        [['--listen', '[::]:0'], {}, /users\.auth: listen /],
        [['--admin-listen', '192.0.2.1:0'], {}, /users\.auth: admin\.listen is not loopback/],
        [['--users-auth', 'open'], {}, /users\.auth \(flag --users-auth\): "open" is not one of: auto trusted signed anonymous/],
        [['--users-auth', 'signed'], {}, /users\.key_file: users\.auth is signed/],
        [['--users-key-file', 'x'], {}, /users\.key_file: it counts only when users\.auth is signed/],
        [['--queue-default-event', 'CONCERT'], {}, /queue\.default_event: "CONCERT" is not TYPE\/ID/],
        [['--queue-default-event', 'CONCERT/1/2'], {}, /queue\.default_event: /],
        [['--queue-default-event', '/1'], {}, /queue\.default_event: /],
        [['--feed', 'disk'], {}, /feed: "disk" is neither local nor kafka:\/\/HOST:PORT/],
        [['--feed', 'kafka://x'], {}, /feed: with Kafka other nodes may join/],
        [['--kafka-linger-ms', '5'], {}, /kafka\.linger\.ms: it counts only with --feed kafka/],
        [['--feed', 'kafka://x:1', '--kafka-group-id', 'mine'], {}, /kafka\.group\.id: admitone sets this itself/],
        [['--feed-topic-prefix', 'a b'], {}, /feed\.topic_prefix: up to 80 letters/],
      ];
      for (const [args, env, pattern] of cases) await assertNoStart(['--data', dataDir, ...args], 2, pattern, { env });
      assert.ok(!fs.existsSync(dataDir), 'nothing was made');
    }));

  test('--print-config shows what is in force and where it came from: a flag beats the environment, which beats the file', () =>
    inFolder(async (dataDir, folder) => {
      const file = path.join(folder, 'admitone.ini');
      fs.writeFileSync(file, '; a comment\nworkers = 3\n[queue]\nmax_active = 30\nmax_waiting = 31\nentry_batch_size = 32\n');
      const { status, stdout, stderr } = run(['serve', '--print-config', '--config', file, '--queue-max-active', '50', '--data', dataDir], {
        env: { ADMITONE_QUEUE_MAX_ACTIVE: '40', ADMITONE_QUEUE_MAX_WAITING: '41' },
      });
      assert.equal(status, 0, stderr);
      const line = (text) => assert.match(stdout, new RegExp(`^${text}$`, 'm'));
      line('max_active = 50 +; flag --queue-max-active');
      line('max_waiting = 41 +; environment ADMITONE_QUEUE_MAX_WAITING');
      line(`entry_batch_size = 32 +; file ${file}`);
      line(`workers = 3 +; file ${file}`);
      line('hold_seconds = 300 +; default');
      line('\\[queue\\]');
      assert.ok(!fs.existsSync(dataDir), 'it only shows');
      // What it prints is a configuration file.
      const copy = path.join(folder, 'copy.ini');
      fs.writeFileSync(copy, stdout.replace(/^config = .*$/m, ''));
      const again = run(['serve', '--print-config', '--config', copy]);
      assert.equal(again.status, 0, again.stderr);
      assert.match(again.stdout, /^max_active = 50 +; file /m);
    }));

  test('environment variables that are no keys are warned of, but for those of a Kubernetes Service', () =>
    inFolder(async (dataDir) => {
      const service = { ADMITONE_SERVICE_HOST: '10.0.0.11', ADMITONE_SERVICE_PORT: '8080', ADMITONE_PORT: 'tcp://10.0.0.11:8080', ADMITONE_PORT_8080_TCP_ADDR: '10.0.0.11' };
      const silent = await start({ dataDir, env: service });
      await silent.stop();
      assert.doesNotMatch(silent.stderr, /level=warn/);
      const env = { ADMITONE_WORKER: '2', ADMITONE_SOMETHING_ELSE: '2' };
      const server = await start({ dataDir, env });
      await server.stop();
      assert.match(server.stderr, /level=warn msg="environment variable ignored" reason="unknown key ADMITONE_WORKER; did you mean ADMITONE_WORKERS\?"/);
      assert.match(server.stderr, /reason="unknown key ADMITONE_SOMETHING_ELSE"/);
      for (const args of [['audit', '--data', dataDir], ['serve', '--print-config']]) {
        const { status, stderr } = run(args, { env });
        assert.equal(status, 0, stderr);
        assert.match(stderr, /^admitone: warning: ignored: unknown key ADMITONE_WORKER; did you mean ADMITONE_WORKERS\?$/m);
      }
    }));

  test("a password in a store's URL is never shown", () =>
    inFolder(async (dataDir, folder) => {
      const keys = ['--secret-file', '--pass-key-file', '--admin-key-file'].flatMap((flag) => {
        const key = path.join(folder, flag);
        fs.writeFileSync(key, `long enough to be a key: ${flag}\n`, { mode: 0o600 });
        return [flag, key];
      });
      const hot = ['--hot', 'redis://ann:hunter2@127.0.0.1:1/3'];
      const ledger = ['--ledger', 'postgres://ann:hunter2@127.0.0.1:1/shop?sslpassword=hunter2'];
      const rows = [
        [['serve', '--print-config', ...hot, ...ledger, ...keys], 0, /^hot = redis:\/\/ann:\*\*\*@127\.0\.0\.1:1\/3 [^]*^ledger = postgres:\/\/ann:\*\*\*@127\.0\.0\.1:1\/shop\?sslpassword=\*\*\* /m],
        [['serve', ...hot, ...ledger, ...keys, '--data', dataDir], 1, /cannot connect to PostgreSQL/],
        [['audit', ...hot, ...ledger], 2, /cannot connect to PostgreSQL/],
        [['reconcile', ...hot, ...ledger], 2, /cannot connect to PostgreSQL/],
        [['serve', 'postgres://ann:hunter2@db/shop'], 2, /unexpected argument "postgres:\/\/ann:\*\*\*@db\/shop"/],
        [['serve', '--feed', 'kafka://ann:hunter2@k'], 2, /feed: "kafka:\/\/ann:\*\*\*@k" is neither local nor kafka:\/\/HOST:PORT/],
        // libpq would take what stands behind the first "@" for the host.
        [['serve', ...hot, '--ledger', 'postgres://ann:x@hunter2@db/shop', ...keys], 2, /ledger: in a password or parameter write @ as %40/],
        [['serve', ...hot, '--ledger', 'postgres://ann:x/hunter2@db/shop', ...keys], 2, /ledger: in a password or parameter write @ as %40/],
      ];
      for (const [args, status, pattern] of rows) {
        const done = run(args);
        assert.equal(done.status, status, done.stderr);
        assert.match(done.stdout + done.stderr, pattern);
        assert.doesNotMatch(done.stdout + done.stderr, /hunter2/);
      }
    }));

  test('settings from file, environment and flags are those that work', () =>
    inFolder(async (dataDir, folder) => {
      const file = path.join(folder, 'admitone.ini');
      fs.writeFileSync(file, '[queue]\nmax_active = 30\n[reservation]\ncurrency = EUR\n');
      const server = await start({ dataDir, args: ['--queue-grace-seconds=33', '--config', file], env: { ADMITONE_RESERVATION_HOLD_SECONDS: '44' } });
      const { json } = await server.admin('PUT', '/admin/events/SET/1', concert());
      assert.deepEqual([json.queue.maxActive, json.currency, json.queue.graceSeconds, json.holdSeconds], [30, 'EUR', 33, 44]);
      await server.stop();
    }));

  test('--help teaches, of the program and of each command; version is a version', () => {
    for (const args of [['--help'], ['help'], ['-h']]) {
      const { status, stdout } = run(args);
      assert.equal(status, 0);
      for (const word of ['serve', 'audit', 'version', '--demo']) assert.ok(stdout.includes(word), word);
    }
    const keys = [...run(['serve', '--print-config']).stdout.matchAll(/^(?:\[(.*)\]|(\w+) = )/gm)];
    const { status, stdout } = run(['serve', '--help']);
    assert.equal(status, 0);
    let section = '';
    for (const [, opened, key] of keys) {
      if (opened !== undefined) section = `${opened}-`;
      else assert.match(stdout, new RegExp(`--${section}${key}`.replaceAll('_', '-') + '\\b'));
    }
    assert.ok(keys.length > 30);
    assert.match(stdout, /ADMITONE_/);
    assert.match(run(['audit', '--help']).stdout, /Exits with 0/);
    assert.match(run(['version']).stdout, /^admitone \d+\.\d+\.\d+\n$/);
    assert.match(run(['--version']).stdout, /^admitone \d+\.\d+\.\d+\n$/);
    const none = run([]);
    assert.equal(none.status, 2);
    assert.match(none.stderr, /admitone serve/);
    const wrong = run(['sevre']);
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /there is no command 'sevre'/);
  });

  test('audit: exit 2 where there is no ledger, and not 0 on one that is damaged', () =>
    inFolder(async (dataDir) => {
      const none = run(['audit', '--data', dataDir]);
      assert.equal(none.status, 2);
      assert.ok(none.stderr.includes(dataDir), none.stderr);
      assert.ok(!fs.existsSync(dataDir), 'nothing was made');
      const server = await start({ dataDir });
      for (let i = 0; i < 50; i++) await server.admin('PUT', `/admin/events/A/${i}`, concert());
      await server.stop();
      assertAudit(dataDir);
      const ledger = path.join(dataDir, 'admitone.db');
      const file = fs.openSync(ledger, 'r+');
      const size = fs.fstatSync(file).size;
      for (let at = 2 * 4096; at + 4096 <= size; at += 4096) fs.writeSync(file, Buffer.alloc(64, 0xa5), 0, 64, at);
      fs.closeSync(file);
      const damaged = run(['audit', '--data', dataDir]);
      assert.notEqual(damaged.status, 0, damaged.stdout);
    }));
});

const exchangeOne = async (server, bytes) => (await exchange(server, bytes))[0];

describe('logs', () => {
  const TRAFFIC = ['/health', '/nothing', '/events/%31/%22', '/a=b"c', '/events?x=%0a'];

  async function linesOf(args) {
    const server = await start({ args });
    for (const target of TRAFFIC) await server.call('GET', target.replaceAll('"', '%22'));
    await server.admin('PUT', '/admin/events/LOG/1', concert());
    await server.stop();
    assert.ok(server.stderr.endsWith('\n'));
    return server.stderr.trimEnd().split('\n');
  }

  test('JSON: every line is one object with time, level and msg', async () => {
    const lines = await linesOf(['--log-format', 'json', '--log-level', 'debug']);
    const rows = lines.map((line) => JSON.parse(line));
    assert.ok(rows.length >= TRAFFIC.length + 3);
    for (const row of rows) {
      assert.match(row.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      assert.ok(['debug', 'info', 'warn', 'error'].includes(row.level));
      assert.ok(row.msg.length > 0);
    }
    assert.equal(typeof rows.find((row) => row.msg === 'listening').workers, 'number');
    assert.equal(rows.at(-1).msg, 'stopped');
  });

  test('logfmt: every line is key=value, and levels below the set one are silent', async () => {
    const lines = await linesOf(['--log-level', 'debug']);
    for (const line of lines) assert.match(line, /^time=\S+ level=(debug|info|warn|error) msg=(\S+|"[^"]*")( [a-z_]+=([^\s"]+|"([^"\\]|\\.)*"))*$/);
    assert.ok(lines.filter((line) => line.includes('level=debug msg=request')).length >= TRAFFIC.length);
    for (const line of await linesOf([])) assert.doesNotMatch(line, /level=debug/);
  });

  test('no token and no key is ever in a log, however the client spells its path', async () => {
    for (const format of ['logfmt', 'json']) {
      const server = await start({ args: ['--log-level', 'debug', '--log-format', format] });
      const targets = [
        '/queue/CONCERT/1/subscribe/SECRET',
        '/queue/CONCERT/1/subscribe/SECRET?x=1',
        '/queue/CONCERT/1/%73ubscribe/SECRET',
        '/queue/CONCERT/1/subscribe/%53ECRET-SECRET',
        '/queue/CONCERT/1/subscribe%2FSECRET',
        '/api/v4/subscribe/SECRET/more',
        '/queue/CONCERT/1/status?token=SECRET',
        '/queue/CONCERT/1/status?a=b&token=SECRET&c=d',
        '/queue/CONCERT/1/status?%74oken=SECRET',
        '/queue/CONCERT/1/subscribe/SECRET%ff',
      ];
      for (const target of targets) await server.call('GET', target, { headers: { authorization: 'Bearer SECRET', 'x-queue-token': 'SECRET', cookie: 'entry=SECRET' } });
      await server.admin('GET', '/admin/audit');
      await server.stop();
      assert.doesNotMatch(server.stderr, /SECRET/);
      assert.ok(!server.stderr.includes(server.adminKey));
      assert.ok(server.stderr.split('subscribe').length > 3, 'the rest of the path is there');
      assert.ok(server.stderr.split('\n').filter((line) => line.includes('request')).length >= targets.length);
    }
  });

  test('at level debug each request is one line, with its status, its duration and its user', async () => {
    const server = await start({ args: ['--log-level', 'debug', '--log-format', 'json'] });
    await server.admin('PUT', '/admin/events/LOG/2', concert());
    let asked = 0;
    const seen = [];
    // Asks, and notes what the log must say of it.
    const ask = async (user, method, target, { status, headers, ...options } = {}) => {
      const id = `line-${++asked}`;
      const answer = await server.call(method, target, { ...options, headers: { ...headers, 'x-request-id': id } });
      assert.equal(answer.status, status ?? 200, answer.text);
      seen.push({ id, method, path: target.split('?')[0], status: answer.status, user });
      return answer.json;
    };
    const ANN = 'ann "the first" é';
    const { entryToken } = await ask(ANN, 'POST', '/queue/LOG/2/enter', { body: { userId: ANN } });
    const headers = { authorization: `Bearer ${entryToken}` };
    await ask(ANN, 'GET', '/queue/LOG/2/status', { headers });
    await ask(ANN, 'GET', '/gate/LOG/2', { headers, status: 204 });
    const body = { eventType: 'LOG', eventId: '2', section: 'A', quantity: 1 };
    const { id } = await ask(ANN, 'POST', '/reservations', { headers, body, status: 201 });
    await ask(ANN, 'GET', `/reservations/${id}?x=1`, { headers });
    await ask(ANN, 'POST', `/reservations/${id}/cancel`, { headers });
    await ask(ANN, 'DELETE', '/queue/LOG/2/leave', { headers, status: 204 });
    await ask('ben', 'GET', '/reservations?userId=ben');
    await ask('', 'GET', '/health');
    await ask('', 'GET', '/nothing', { status: 404 });
    await ask('', 'POST', '/reservations', { body, status: 401 });
    assertProblem(await exchangeOne(server, 'NONSENSE\r\n\r\n'), 400, 'bad_request');
    await server.stop();
    const rows = server.stderr.trimEnd().split('\n').map((line) => JSON.parse(line));
    for (const { id: requestId, ...expected } of seen) {
      const [row, ...more] = rows.filter((one) => one.request_id === requestId);
      assert.deepEqual(more, [], requestId);
      const { level, msg, method, path: shown, status, user } = row;
      assert.deepEqual({ level, msg, method, path: shown, status, user }, { level: 'debug', msg: 'request', ...expected });
      assert.ok(row.duration_us >= 0 && row.duration_us < 60e6, JSON.stringify(row));
      assert.equal(row.client, '127.0.0.1');
    }
    assert.equal(rows.filter((row) => row.status === 400 && row.path === '').length, 1, 'also of what is no request');
  });

  test('at level info only requests that failed in the server have their line, and not too many a second', async () => {
    const server = await start({ args: ['--ledger-queue-max', '1'] });
    await server.admin('PUT', '/admin/events/LOG/3', concert());
    let failed = 0;
    let users = 0; // new ones each time: one who has a place needs no write
    await until('many requests failed', async () => {
      const answers = await Promise.all(
        Array.from({ length: 100 }, () => server.call('POST', '/queue/LOG/3/enter', { body: { userId: `user${users++}` } })),
      );
      failed += answers.filter(({ status }) => status === 503).length;
      return failed >= 100;
    });
    await server.call('GET', '/nothing');
    await server.stop();
    const lines = server.stderr.split('\n').filter((line) => line.includes('msg=request'));
    assert.ok(lines.length > 0);
    for (const line of lines) assert.match(line, /^time=\S+ level=info msg=request method=POST path=\/queue\/LOG\/3\/enter status=503 duration_us=\d+ user=user\d+ client=127\.0\.0\.1 request_id=\w+( omitted=\d+)?$/);
    const omitted = lines.reduce((sum, line) => sum + Number(/omitted=(\d+)/.exec(line)?.[1] ?? 0), 0);
    assert.ok(lines.length + omitted <= failed);
    const seconds = new Set(lines.map((line) => line.slice(0, 'time=2026-01-01T00:00:00'.length))).size + 1;
    assert.ok(lines.length <= 2 * 10 * seconds, `${lines.length} lines in ${seconds} s`);
  });

  test('threads have names that say what they do', async () => {
    const server = await start();
    await server.call('GET', '/health');
    const tasks = `/proc/${server.pid}/task`;
    const names = fs.readdirSync(tasks).map((task) => fs.readFileSync(`${tasks}/${task}/comm`, 'utf8').trim());
    for (const name of ['worker 0', 'worker 1', 'ledger', 'ledger read 0', 'checkpointer', 'signals']) assert.ok(names.includes(name), `${name} of ${names}`);
    // A thread that is not named has the name of the first one.
    const first = fs.readFileSync(`/proc/${server.pid}/comm`, 'utf8').trim();
    assert.equal(names.filter((name) => name === first).length, 1, `threads without a name: ${names}`);
    await server.stop();
  });

  test('a log without a reader does not stop the server', async () => {
    const dataDir = path.join(tempFolder(), 'data');
    const self = launch(['sh', '-c', 'exec "$@" 2>&-', 'sh', BINARY, 'serve', '--listen', '127.0.0.1:0', '--data', dataDir, '--demo', '--log-level', 'debug'], { env: environment() });
    await until('the tour is printed', () => self.stdout.includes('Ctrl-C stops it') || self.exit);
    const port = Number(/http:\/\/127\.0\.0\.1:(\d+)\/events\n/.exec(self.stdout)[1]);
    for (let i = 0; i < 20; i++) assert.equal((await call({ port }, 'GET', '/health')).status, 200);
    process.kill(self.pid, 'SIGTERM');
    assert.deepEqual(await self.ended, { code: 0, signal: null });
    removeFolder(path.dirname(dataDir));
  });
});
