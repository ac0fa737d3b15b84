// Hostile or careless clients, operators and other processes do not break the server.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { BINARY, call, concert, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';
import { Raw, adminRequest, request } from './support/raw.mjs';

const many = (count, make) => Array.from({ length: count }, (_, i) => make(i));
const wide = () => concert({ sections: many(200, (i) => ({ id: `S${i}`, capacity: 10 })) });

function residentBytes(pid) {
  return Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
}

test('a page of the list is bounded in bytes, and the pages together are the whole', async () => {
  const server = await start();
  for (let i = 0; i < 12; i++) assert.equal((await server.admin('PUT', `/admin/events/WIDE/${i}`, wide())).status, 201);
  const seen = [];
  let after = '';
  for (let pages = 0; after !== null; pages++) {
    assert.ok(pages <= 12);
    const page = await call(server, 'GET', `/events?limit=1000${after && `&after=${encodeURIComponent(after)}`}`);
    assert.ok(page.text.length < 160 * 1024, `a page of ${page.text.length} bytes`);
    seen.push(...page.json.events.map((one) => one.eventId));
    after = page.json.next;
  }
  assert.deepEqual([...seen].sort(), many(12, String).sort());
  assert.equal(seen.length, 12);
  await server.stop();
});

test('clients that do not read cost no more than a page each', async () => {
  // Freed memory that a sanitizer keeps does not count.
  const server = await start({ env: { ASAN_OPTIONS: 'quarantine_size_mb=1' } });
  for (let i = 0; i < 20; i++) await server.admin('PUT', `/admin/events/WIDE/${i}`, wide());
  const before = residentBytes(server.pid);
  const clients = await Promise.all(
    many(60, async () => {
      const raw = await Raw.connect(server);
      raw.socket.pause();
      for (let i = 0; i < 40; i++) raw.write(request('GET', '/events?limit=1000'));
      return raw;
    }),
  );
  await until('the server has read what they sent', async () => (await server.metric('admitone_connections')) >= 60);
  for (let i = 0; i < 20; i++) await call(server, 'GET', '/health');
  const grown = residentBytes(server.pid) - before;
  assert.ok(grown < 60 * 400 * 1024, `${grown} bytes for 60 clients`);
  for (const one of clients) one.socket.destroy();
  await server.stop();
});

// Bytes that the kernel has accepted from the server and not yet sent, of all its connections.
function kernelUnsentBytes(port) {
  const lines = fs.readFileSync('/proc/net/tcp', 'utf8').trim().split('\n').slice(1);
  const rows = lines.map((line) => line.trim().split(/\s+/));
  const own = rows.filter(([, local]) => parseInt(local.split(':')[1], 16) === port);
  return own.reduce((sum, row) => sum + parseInt(row[4].split(':')[0], 16), 0);
}

test('clients that do not read large maps take bounded memory of process and kernel, and others are served', async () => {
  const CLIENTS = 200;
  const server = await start({ env: { ASAN_OPTIONS: 'quarantine_size_mb=1' } });
  await server.admin('PUT', '/admin/events/WIDE/1', concert({ sections: [{ id: 'A', capacity: 1000000 }] }));
  const target = '/events/WIDE/1/sections/A/seats';
  const { text } = await call(server, 'GET', target);
  const before = residentBytes(server.pid);
  const answered = () => server.metric('admitone_http_responses_total{class="2xx"}');
  const answeredBefore = await answered();
  const clients = await Promise.all(
    many(CLIENTS, async () => {
      const raw = await Raw.connect(server, { sink: true });
      raw.socket.pause();
      for (let i = 0; i < 8; i++) raw.write(request('GET', target));
      return raw;
    }),
  );
  let peak = 0;
  await until('each of them has an answer under way', async () => {
    peak = Math.max(peak, residentBytes(server.pid) - before);
    return (await answered()) >= answeredBefore + CLIENTS;
  }, 30000);
  // Answers that are read in the meantime arrive complete, so other clients are served.
  assert.equal((await call(server, 'GET', target)).text, text);
  peak = Math.max(peak, residentBytes(server.pid) - before);
  const kernel = kernelUnsentBytes(server.port);
  // Two workers may keep 16 MiB each, and a sanitizer needs more; 1,600 MB were asked for.
  assert.ok(peak < 96 << 20, `the process grew by ${peak >> 20} MiB`);
  assert.ok(kernel < CLIENTS * (256 << 10), `${kernel >> 10} KiB in the kernel`);
  assert.ok((await server.metric('admitone_connections_dropped_total')) > 0);
  // One that reads after all gets everything that it has asked for.
  const last = await Raw.connect(server, { sink: true });
  last.socket.pause();
  for (let i = 0; i < 8; i++) last.write(request('GET', target));
  last.socket.resume();
  await until('all is read', () => last.received > 8 * text.length, 30000);
  for (const one of [...clients, last]) one.socket.destroy();
  await server.stop();
});

test('an answer arrives whole though unread requests stand behind it', async () => {
  const server = await start();
  await server.admin('PUT', '/admin/events/WIDE/1', wide());
  const raw = await Raw.connect(server);
  const last = request('GET', '/events/WIDE/1', { headers: ['Connection: close'] });
  raw.write(Buffer.concat([last, ...many(8000, () => request('GET', '/health'))]));
  const responses = await raw.toEnd();
  assert.equal(responses.length, 1);
  assert.equal(responses[0].json.sections.length, 200);
  await server.stop();
});

test('what a client sent is cut between characters when a message quotes it', async () => {
  const server = await start();
  const key = `${'a'.repeat(63)}é`;
  const unknown = await server.admin('PUT', '/admin/events/CONCERT/1', { ...concert(), [key]: 1 });
  assert.equal(unknown.json.code, 'unknown_field');
  assert.ok(!unknown.text.includes('\ufffd'), unknown.text);
  await server.admin('PUT', '/admin/events/CONCERT/1', concert());
  for (const length of [460, 470, 480, 481, 482, 483]) {
    const section = `${'a'.repeat(length)}${'%C3%A9'.repeat(200)}`;
    const raw = await Raw.connect(server);
    raw.write(adminRequest(server, 'PATCH', `/admin/events/CONCERT/1/sections/${section}`, {}));
    const [answer] = await raw.answers(1);
    assert.equal(answer.status, 404);
    assert.ok(!answer.text.includes('\ufffd'), answer.text);
    raw.socket.destroy();
  }
  await server.stop();
});

test('one ledger belongs to one server, wherever its data folder is', async () => {
  const folder = tempFolder();
  const ledger = `sqlite:${path.join(folder, 'shared.db')}`;
  const server = await start({ args: ['--ledger', ledger] });
  const other = run(['serve', '--listen', '127.0.0.1:0', '--data', path.join(folder, 'other'), '--ledger', ledger]);
  assert.equal(other.status, 1);
  assert.match(other.stderr, /the ledger sqlite:.*shared\.db belongs to another admitone that runs \(pid \d+\)/);
  const audit = run(['audit', '--data', server.dataDir, '--ledger', ledger]);
  assert.equal(audit.status, 0);
  assert.match(audit.stdout, /a server runs on it/);
  await server.stop();
  removeFolder(folder);
});

test('a ledger has one owner by whatever name or link it is reached', async () => {
  const folder = tempFolder();
  const server = await start({ dataDir: path.join(folder, 'data') });
  const file = path.join(folder, 'data', 'admitone.db');
  const link = path.join(folder, 'link.db');
  fs.symlinkSync(file, link);
  for (const name of [file, link]) {
    const other = run(['serve', '--listen', '127.0.0.1:0', '--data', path.join(folder, 'other'), '--ledger', `sqlite:${name}`]);
    assert.equal(other.status, 1, name);
    assert.match(other.stderr, /the ledger .* belongs to another admitone/);
    assert.match(run(['audit', '--data', path.join(folder, 'other'), '--ledger', `sqlite:${name}`]).stdout, /a server runs on it/);
  }
  await server.stop();
  assert.match(run(['audit', '--data', path.join(folder, 'data')]).stdout, /no server runs on it/);
  removeFolder(folder);
});

test('a client that sends very much at once does not keep others waiting', async () => {
  const server = await start({ args: ['--workers', '1'] });
  for (let i = 0; i < 50; i++) await server.admin('PUT', `/admin/events/MANY/${i}`, concert());
  const greedy = await Raw.connect(server, { sink: true });
  const page = request('GET', '/events?limit=50');
  const pageBytes = (await call(server, 'GET', '/events?limit=50')).text.length;
  for (let i = 0; i < 20; i++) greedy.write(Buffer.concat(many(1000, () => page)));
  assert.equal((await call(server, 'GET', '/health')).status, 200);
  const answered = greedy.received / pageBytes;
  assert.ok(answered < 10000, `${answered.toFixed()} of 20000 were answered first`);
  greedy.destroy();
  await server.stop();
});

test('pipelined requests beyond one turn are all answered, also when the client has closed its side', async () => {
  const server = await start();
  const raw = await Raw.connect(server);
  raw.socket.end(Buffer.concat(many(500, () => request('GET', '/health'))));
  const answers = await raw.toEnd();
  assert.equal(answers.length, 500);
  assert.ok(answers.every((one) => one.status === 200));
  await server.stop();
});

test('an empty data folder name is refused', () => {
  const done = run(['serve', '--listen', '127.0.0.1:0', '--data', '']);
  assert.equal(done.status, 2);
  assert.match(done.stderr, /data: the folder needs a name/);
});

test('too few open files are refused at the start, with the number that would do', () => {
  const folder = tempFolder();
  const done = run(['serve', '--listen', '127.0.0.1:0', '--data', path.join(folder, 'd'), '--workers', '2'], {
    wrap: ['sh', '-c', 'ulimit -n 64; exec "$0" "$@"'],
  });
  assert.equal(done.status, 1);
  assert.match(done.stderr, /the limit on open files is 64; with 2 workers it must be at least \d+/);
  removeFolder(folder);
});

test('a ledger that can not be written is refused at the start', () => {
  const folder = tempFolder();
  const data = path.join(folder, 'd');
  fs.mkdirSync(data);
  fs.writeFileSync(path.join(data, 'admitone.db'), '', { mode: 0o400 });
  const args = ['serve', '--listen', '127.0.0.1:0', '--data', data];
  let done;
  if (process.getuid() !== 0) {
    done = run(args);
  } else {
    // As another user, because file modes do not stop root; with a copy that this user may read.
    const copy = path.join(folder, 'admitone');
    fs.copyFileSync(BINARY, copy);
    fs.chmodSync(copy, 0o755);
    fs.chmodSync(folder, 0o755);
    for (const one of [data, path.join(data, 'admitone.db')]) fs.chownSync(one, 65534, 65534);
    const as = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'];
    done = run(args, { wrap: [...as, 'sh', '-c', 'shift; exec "$0" "$@"', copy] });
  }
  assert.equal(done.status, 1, done.stderr);
  assert.match(done.stderr, /cannot open .*admitone\.db: it can't be written/);
  removeFolder(folder);
});

test('a key file is read without the white space around the key', async () => {
  const folder = tempFolder();
  const file = path.join(folder, 'key');
  fs.writeFileSync(file, '\n  a-key-that-nobody-guesses \r\n\n', { mode: 0o600 });
  const server = await start({ args: ['--admin-key-file', file] });
  const headers = { authorization: 'Bearer a-key-that-nobody-guesses' };
  assert.equal((await call(server, 'GET', '/admin/audit', { headers })).status, 200);
  await server.stop();
  removeFolder(folder);
});
