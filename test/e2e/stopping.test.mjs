// Stopping: whoever was served is answered, whoever hangs on is cut off, and it ends in time.
import assert from 'node:assert/strict';
import path from 'node:path';
import { describe } from 'node:test';
import { assertAudit } from './support/queue.mjs';
import { Raw, adminRequest, request } from './support/raw.mjs';
import { concert, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

const HEALTH = request('GET', '/health');

// So many connections are open, besides the one that asks each node for it.
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
    await connected(server, 2);
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
      await stopping(server);
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

  test('a second signal cuts off whoever is still there, and it is still a good end', () =>
    withHalfARequest([], async (server, raw) => {
      const began = performance.now();
      server.signal('SIGINT');
      await stopping(server);
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
