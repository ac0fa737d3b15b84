// From the command line to the last log line: starting, being killed, stopping, and what is left
// behind. DESIGN.md §2 (promise 2) and §12.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { describe } from 'node:test';
import { Raw, adminRequest, request } from './support/raw.mjs';
import { BINARY, call, concert, environment, lasting, launch, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';

const HEALTH = request('GET', '/health');

// A folder for one test, removed behind it.
async function inFolder(use) {
  const folder = tempFolder();
  try {
    return await use(path.join(folder, 'data'), folder);
  } finally {
    removeFolder(folder);
  }
}

function assertAudit(dataDir, pattern = /no server runs on it/) {
  const audit = run(['audit', '--data', dataDir]);
  assert.equal(audit.status, 0, audit.stdout + audit.stderr);
  assert.match(audit.stdout, pattern);
  assert.match(audit.stdout, /\d+ checks, 0 violations/);
}

const allEvents = async (server) => (await server.call('GET', '/events?limit=1000')).json.events.map(lasting);

describe('what is acknowledged stays', () => {
  test('a restart finds every event as it was, also after changes and deletes', () =>
    inFolder(async (dataDir) => {
      const first = await start({ dataDir });
      for (let i = 0; i < 20; i++) await first.admin('PUT', `/admin/events/KEEP/${i}`, concert({ title: `é ${i}`, queue: { maxActive: i + 1 } }));
      for (let i = 0; i < 5; i++) await first.admin('DELETE', `/admin/events/KEEP/${i}`);
      for (let i = 5; i < 10; i++) await first.admin('PATCH', `/admin/events/KEEP/${i}`, { startsAt: '2030-01-01T00:00:00Z' });
      await first.admin('PUT', '/admin/events/KEEP/0', concert({ title: 'again' }));
      const before = await Promise.all((await allEvents(first)).map((e) => first.admin('GET', `/admin/events/${e.eventType}/${e.eventId}`)));
      const trail = (await first.admin('GET', '/admin/audit?limit=1000')).json;
      assert.equal(before.length, 16);
      await first.stop();
      assertAudit(dataDir);

      const second = await start({ dataDir });
      assert.match(second.stderr, /msg=listening .* events=16 /);
      for (const { json } of before) {
        const now = await second.admin('GET', `/admin/events/${json.eventType}/${json.eventId}`);
        assert.deepEqual(lasting(now.json), lasting(json));
      }
      assert.equal((await allEvents(second)).length, 16);
      assert.deepEqual((await second.admin('GET', '/admin/audit?limit=1000')).json, trail);
      assert.equal(second.adminKey, first.adminKey);
      const again = await second.admin('PUT', '/admin/events/KEEP/1', concert());
      assert.equal(again.status, 201);
      assert.ok(again.json.version > 0);
      assertAudit(dataDir, /a server runs on it/);
      await second.stop();
    }));

  // One client with events of its own: it knows for each what was acknowledged last, and what it
  // has asked for since.
  class Client {
    constructor(number) {
      this.names = Array.from({ length: 3 }, (_, i) => `STORM/${number}-${i}`);
      this.known = new Map(this.names.map((name) => [name, null]));
      this.number = number;
      this.asked = 0;
      this.acknowledged = 0;
    }

    // Until the server is gone. Resolves when the connection is.
    async storm(server) {
      this.flying = null;
      const raw = await Raw.connect(server);
      try {
        for (;;) {
          const name = this.names[this.asked % this.names.length];
          const known = this.known.get(name);
          const stamp = `${this.number}.${++this.asked}`;
          const kind = known === null ? 'PUT' : ['PATCH', 'PUT', 'PATCH', 'DELETE'][this.asked % 4];
          const wanted = { PUT: { title: stamp, hold: 300 }, PATCH: { ...known, hold: 1 + (this.asked % 1000) }, DELETE: null }[kind];
          const body = { PUT: concert({ title: stamp }), PATCH: { holdSeconds: wanted?.hold }, DELETE: undefined }[kind];
          this.flying = { name, wanted };
          const answer = await raw.write(adminRequest(server, kind, `/admin/events/${name}`, body)).answer();
          assert.ok(answer.status < 300, `${kind} ${answer.text}`);
          this.known.set(name, wanted);
          this.flying = null;
          this.acknowledged++;
        }
      } catch (error) {
        if (error.code === 'ERR_ASSERTION' || !/closed after|ECONN|EPIPE/.test(error.message)) throw error;
      } finally {
        raw.destroy();
      }
    }

    // What is there now was acknowledged last, or was under way.
    async check(server) {
      for (const name of this.names) {
        const { status, json } = await server.admin('GET', `/admin/events/${name}`);
        const now = status === 404 ? null : { title: json.title, hold: json.holdSeconds };
        const allowed = [this.known.get(name)];
        if (this.flying?.name === name) allowed.push(this.flying.wanted);
        assert.ok(
          allowed.some((one) => JSON.stringify(one) === JSON.stringify(now)),
          `${name} is ${JSON.stringify(now)}, not one of ${JSON.stringify(allowed)}`,
        );
        this.known.set(name, now);
      }
    }
  }

  const total = (clients, what) => clients.reduce((sum, client) => sum + client[what], 0);

  test('kill -9 in a storm of changes from 16 connections, ten times: nothing that was acknowledged is lost', { timeout: 120000 }, (t) =>
    inFolder(async (dataDir) => {
      const clients = Array.from({ length: 16 }, (_, i) => new Client(i));
      let flying = 0;
      for (let round = 0; round < 10; round++) {
        const server = await start({ dataDir });
        const goal = total(clients, 'acknowledged') + 100 + ((round * 137) % 400);
        const storms = Promise.all(clients.map((client) => client.storm(server)));
        await until('enough is acknowledged', () => total(clients, 'acknowledged') >= goal, 30000);
        await server.kill9();
        await storms;
        flying += clients.filter((client) => client.flying !== null).length;
        assertAudit(dataDir);
        const looked = await start({ dataDir });
        for (const client of clients) await client.check(looked);
        // The trail has each act that was acknowledged, and at most those under way besides.
        const newest = await looked.newestAudit();
        const acknowledged = total(clients, 'acknowledged');
        assert.ok(newest >= acknowledged && newest <= acknowledged + flying, `${acknowledged} acknowledged, ${flying} cut off, ${newest} in the trail`);
        await looked.stop();
      }
      assert.ok(flying > 0, 'something was under way when it was killed');
      t.diagnostic(`${total(clients, 'acknowledged')} changes acknowledged, ${flying} cut off`);
    }));

  test('SIGTERM in the same storm: exit 0 in time, and nothing that was acknowledged is lost', { timeout: 120000 }, () =>
    inFolder(async (dataDir) => {
      const clients = Array.from({ length: 16 }, (_, i) => new Client(i));
      for (let round = 0; round < 3; round++) {
        const server = await start({ dataDir });
        const goal = total(clients, 'acknowledged') + 200;
        const storms = Promise.all(clients.map((client) => client.storm(server)));
        await until('enough is acknowledged', () => total(clients, 'acknowledged') >= goal, 30000);
        const began = performance.now();
        await server.stop('SIGTERM');
        assert.ok(performance.now() - began < 10000);
        await storms;
        assertAudit(dataDir);
        const looked = await start({ dataDir });
        for (const client of clients) await client.check(looked);
        await looked.stop();
      }
    }));
});

describe('stopping', { concurrency: 3 }, () => {
  test('SIGTERM: every request that was sent before it is answered, new connections are refused, exit 0', async () => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGTERM']) {
      const server = await start();
      await server.admin('PUT', '/admin/events/LAST/0', concert());
      const connections = await Promise.all(Array.from({ length: 40 }, () => Raw.connect(server)));
      for (const raw of connections) await raw.write(HEALTH).answer();
      connections.forEach((raw, i) =>
        raw.write(i % 2 === 0 ? adminRequest(server, 'PUT', `/admin/events/LAST/${i}`, concert()) : request('GET', '/events/LAST/0')),
      );
      server.signal(signal);
      for (const [i, raw] of connections.entries()) {
        const answers = await raw.toEnd();
        assert.equal(answers.length, 2, `connection ${i}`);
        assert.ok([200, 201].includes(answers[1].status), answers[1].text);
        raw.destroy();
      }
      await assert.rejects(
        until('it refuses', async () => !(await Raw.connect(server)).destroy() && false, 5000),
        /ECONNREFUSED/,
      );
      await server.stop();
      assert.match(server.stderr, new RegExp(`msg=stopping signal=${signal}\n`));
      assert.match(server.stderr, /msg=stopped\n$/);
    }
  });

  test('idle connections do not delay the stop, and are closed in order', async () => {
    const server = await start();
    const idle = await Promise.all(Array.from({ length: 50 }, () => Raw.connect(server)));
    for (const raw of idle.slice(0, 25)) await raw.write(HEALTH).answer();
    const began = performance.now();
    await server.stop();
    assert.ok(performance.now() - began < 3000, 'promptly');
    for (const raw of idle) {
      await raw.toEnd();
      raw.destroy();
    }
  });

  // A client that has begun a request and does not end it.
  async function withHalfARequest(args, use) {
    const server = await start({ args });
    const raw = await Raw.connect(server);
    await raw.write(HEALTH).answer();
    raw.write('PUT /admin/events/A/1 HTT');
    const other = await Raw.connect(server);
    await other.write(request('PUT', '/admin/events/A/1', { headers: ['Content-Length: 10'] })).write('half');
    await until('both have begun', async () => (await server.metric('admitone_connections')) === 3);
    try {
      await use(server, raw);
    } finally {
      raw.destroy();
      other.destroy();
      await server.stop();
    }
  }

  test('half a request holds the stop up for less than 10 s, while new connections are refused', () =>
    withHalfARequest([], async (server) => {
      const began = performance.now();
      const stopped = server.stop();
      await until('it has begun to stop', () => server.stderr.includes('msg=stopping'));
      await assert.rejects(
        until('it refuses', async () => !(await Raw.connect(server)).destroy() && false, 5000),
        /ECONNREFUSED/,
      );
      assert.equal(server.exit, null, 'it still waits for the other half');
      await stopped;
      assert.ok(performance.now() - began < 10000, `${performance.now() - began} ms`);
      assert.match(server.stderr, /level=warn msg="clients were too slow and are cut off"/);
    }));

  test('half a request that is ended after SIGTERM is answered', async () => {
    const server = await start();
    const raw = await Raw.connect(server);
    const bytes = adminRequest(server, 'PUT', '/admin/events/HALF/1', concert());
    await raw.write(HEALTH).answer();
    raw.write(bytes.subarray(0, 60));
    await until('it has arrived', async () => (await server.metric('admitone_connections')) === 2);
    // A request of another connection that goes around behind it.
    await server.call('GET', '/health');
    server.signal('SIGTERM');
    await until('it has begun to stop', () => server.stderr.includes('msg=stopping'));
    raw.write(bytes.subarray(60));
    const answers = await raw.toEnd();
    assert.equal(answers[1].status, 201);
    assert.equal(answers[1].headers.connection, 'close');
    raw.destroy();
    await server.stop();
  });

  test('a second signal cuts off whoever is still there, and it is still a good end', () =>
    withHalfARequest([], async (server, raw) => {
      const began = performance.now();
      server.signal('SIGINT');
      await until('it has begun to stop', () => server.stderr.includes('msg=stopping'));
      server.signal('SIGINT');
      await server.stop('SIGINT');
      assert.ok(performance.now() - began < 3000, 'at once');
      assert.equal(raw.responses.length, 1);
    }));

  test('--demo: events of every mode, made once; a signal while they are made does no harm', () =>
    inFolder(async (dataDir) => {
      for (let i = 0; i < 5; i++) {
        const hasty = await start({ dataDir: `${dataDir}-${i}`, args: ['--demo'] });
        await hasty.stop();
        assertAudit(`${dataDir}-${i}`);
      }
      const server = await start({ dataDir, args: ['--demo'] });
      await until('the tour is printed', () => server.stdout.includes('Ctrl-C stops it'));
      assert.match(server.stdout, new RegExp(`curl -s ${server.url}/queue/CONCERT/1/enter `));
      assert.ok(server.stdout.includes(path.join(dataDir, 'admin.key')));
      const modes = (await server.call('GET', '/events/CONCERT/1')).json.sections.map((s) => s.mode);
      assert.deepEqual(modes.sort(), ['adaptive', 'lock', 'seat', 'slot']);
      assert.equal((await server.call('GET', '/events/TIMEDEAL/123')).status, 200);
      await server.admin('PATCH', '/admin/events/CONCERT/1', { title: 'Mine now' });
      const trail = await server.newestAudit();
      await server.stop();
      const again = await start({ dataDir, args: ['--demo'] });
      await until('the tour is printed', () => again.stdout.includes('Ctrl-C stops it'));
      assert.equal((await again.call('GET', '/events/CONCERT/1')).json.title, 'Mine now');
      assert.equal(await again.newestAudit(), trail);
      await again.stop();
    }));
});

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

  test('a port that is taken is named, by another server or anything else', () =>
    inFolder(async (dataDir) => {
      const server = await start();
      const { stderr } = await assertNoStart(['--data', dataDir, '--listen', `127.0.0.1:${server.port}`], 1, /cannot listen on 127\.0\.0\.1:\d+: Address already in use/);
      assert.ok(stderr.includes(String(server.port)) && stderr.includes('--listen'), stderr);
      assert.equal((await server.call('GET', '/health')).status, 200);
      await assertNoStart(['--data', dataDir, '--admin-listen', `127.0.0.1:${server.port}`], 1, /cannot listen on 127\.0\.0\.1:\d+/);
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
      fs.writeFileSync(key, 'long enough to be a key\n', { mode: 0o600 });
      await (await start({ dataDir, args: ['--users-auth', 'signed', '--users-key-file', key, '--secret-previous-file', key, '--pass-key-file', key] })).stop();
      await (await start({ dataDir })).stop();
    }));

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
        [[], { ADMITONE_WORKER: '2' }, /unknown key ADMITONE_WORKER; did you mean ADMITONE_WORKERS\?/],
        [[], { ADMITONE_SOMETHING_ELSE: '2' }, /unknown key ADMITONE_SOMETHING_ELSE$/m],
        [ini('[queue]\nmax_activ = 5\n'), {}, /unknown key queue\.max_activ; did you mean queue\.max_active\? \(.*1\.ini, line 2\)/],
        [ini('workers = 2\nthis is no line\n'), {}, /2\.ini: line 2/],
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
        [['--net-trusted-proxies', '192.0.2.0/33'], {}, /net\.trusted_proxies: "192\.0\.2\.0\/33"/],
        [['--reservation-currency', 'won'], {}, /reservation\.currency: "won"/],
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
        [['--feed', 'kafka://x'], {}, /feed: "kafka:\/\/x" is not known/],
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

  test('a log that nobody reads does not stop the server', async () => {
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
