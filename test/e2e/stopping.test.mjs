// Stopping: requests under way are answered, connections that stay open are closed, and the process
// ends in time.
import assert from 'node:assert/strict';
import path from 'node:path';
import { describe } from 'node:test';
import { Proxy } from '../chaos/support/proxy.mjs';
import { nodeFlags } from './support/cluster.mjs';
import { assertAudit } from './support/queue.mjs';
import { Raw, adminRequest, request } from './support/raw.mjs';
import { BINARY, concert, launch, onlyOn, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

const HEALTH = request('GET', '/health');

// Waits until that many connections are open, besides the one that asks each node.
const connected = (server, count) =>
  until(`${count} are connected`, async () => (await server.metric('admitone_connections')) === count + server.nodes.length);
const stopping = (server) =>
  until('it has begun to stop', () => server.nodes.every(({ stderr }) => stderr.includes('msg=stopping')));
const toured = (server) =>
  until('the tour is printed', () => server.nodes.every(({ stdout }) => stdout.includes('Ctrl-C stops it')));

// A folder for one test, removed behind it.
async function inFolder(use) {
  const folder = tempFolder();
  try {
    return await use(path.join(folder, 'data'));
  } finally {
    removeFolder(folder);
  }
}

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
        until('it refuses', async () => !(await Raw.connect(server)).destroy() && false),
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
    await server.stop();
    assert.doesNotMatch(server.stderr, /stop deadline/, 'none was waited for');
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
    await connected(server, 2);
    try {
      await use(server, raw);
    } finally {
      raw.destroy();
      other.destroy();
      await server.stop();
    }
  }

  test('half a request holds the stop up until it is cut off, while new connections are refused', () =>
    withHalfARequest([], async (server) => {
      const stopped = server.stop();
      await stopping(server);
      await assert.rejects(
        until('it refuses', async () => !(await Raw.connect(server)).destroy() && false),
        /ECONNREFUSED/,
      );
      assert.equal(server.exit, null, 'it still waits for the other half');
      await stopped;
      assert.match(server.stderr, /level=warn msg="closing connections that did not finish before the stop deadline"/);
    }));

  test('half a request that is ended after SIGTERM is answered', async () => {
    const server = await start();
    const raw = await Raw.connect(server);
    const bytes = adminRequest(server, 'PUT', '/admin/events/HALF/1', concert());
    await raw.write(HEALTH).answer();
    raw.write(bytes.subarray(0, 60));
    await connected(server, 1);
    // A request of another connection that goes around behind it.
    await server.call('GET', '/health');
    server.signal('SIGTERM');
    await stopping(server);
    raw.write(bytes.subarray(60));
    const answers = await raw.toEnd();
    assert.equal(answers[1].status, 201);
    assert.equal(answers[1].headers.connection, 'close');
    raw.destroy();
    await server.stop();
  });

  test('a second signal closes the remaining connections, and the exit code is still 0', () =>
    withHalfARequest([], async (server, raw) => {
      server.signal('SIGINT');
      await stopping(server);
      server.signal('SIGINT');
      await server.stop('SIGINT');
      assert.doesNotMatch(server.stderr, /stop deadline/, 'not only when their time was over');
      assert.equal(raw.responses.length, 1);
    }));

  test('SIGHUP, SIGUSR1 and SIGUSR2 are logged and ignored', async () => {
    const server = await start();
    for (const signal of ['SIGHUP', 'SIGUSR1', 'SIGUSR2']) {
      server.signal(signal);
      const isLogged = ({ stderr }) => stderr.includes(`msg="ignoring a signal that has no effect" signal=${signal}\n`);
      await until(`${signal} is logged`, () => server.exit ?? server.nodes.every(isLogged));
    }
    assert.equal((await server.call('GET', '/health')).status, 200);
    await server.stop();
  });

  // A node whose PostgreSQL answers until the node waits for it to know the events.
  async function withSilentPostgres(use) {
    await inFolder(async (dataDir) => {
      const flags = nodeFlags(dataDir, []);
      const url = new URL(flags[flags.indexOf('--ledger') + 1]);
      const proxy = await Proxy.open(Number(url.port));
      proxy.watch = (bytes) => void (bytes.includes("FROM epochs WHERE name = 'hot'") && proxy.hold());
      url.port = proxy.port;
      flags[flags.indexOf('--ledger') + 1] = url.href;
      const node = launch([BINARY, 'serve', '--listen', '127.0.0.1:0', '--data', path.join(dataDir, 'node-1'), '--ledger-deadline-ms', '3000', ...flags]);
      try {
        await until('it has noticed', () => node.exit ?? node.stderr.includes('a dependency is unavailable'));
        await use(node);
      } finally {
        proxy.close();
      }
    });
  }

  for (const signal of ['SIGTERM', 'SIGINT'])
    test(`${signal} while the start waits for PostgreSQL ends the process`, onlyOn('redis+postgres', 'SQLite is never waited for'), () =>
      withSilentPostgres(async (node) => {
        node.child.kill(signal);
        await until('it has ended', () => node.exit);
        assert.deepEqual(node.exit, { code: 0, signal: null }, node.stderr);
        assert.match(node.stderr, new RegExp(`msg="stopping before the start was complete" signal=${signal}\n`));
      }));

  test('--demo: events of every mode, made once; a signal while they are made does no harm', () =>
    inFolder(async (dataDir) => {
      for (let i = 0; i < 5; i++) {
        const hasty = await start({ dataDir: `${dataDir}-${i}`, args: ['--demo'] });
        await hasty.stop();
        assertAudit(`${dataDir}-${i}`);
      }
      const server = await start({ dataDir, args: ['--demo'] });
      await toured(server);
      assert.match(server.stdout, new RegExp(`curl -s ${server.url}/queue/CONCERT/1/enter `));
      assert.ok(server.stdout.includes(path.join(dataDir, 'admin.key')));
      const modes = (await server.call('GET', '/events/CONCERT/1')).json.sections.map((s) => s.mode);
      assert.deepEqual(modes.sort(), ['adaptive', 'lock', 'seat', 'slot']);
      assert.equal((await server.call('GET', '/events/TIMEDEAL/123')).status, 200);
      await server.admin('PATCH', '/admin/events/CONCERT/1', { title: 'Mine now' });
      const trail = await server.newestAudit();
      await server.stop();
      const again = await start({ dataDir, args: ['--demo'] });
      await toured(again);
      assert.equal((await again.call('GET', '/events/CONCERT/1')).json.title, 'Mine now');
      assert.equal(await again.newestAudit(), trail);
      await again.stop();
    }));
});
