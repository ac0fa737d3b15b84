// Acknowledged changes of events survive a restart and a crash.
import assert from 'node:assert/strict';
import path from 'node:path';
import { describe } from 'node:test';
import { forgetHot } from './support/cluster.mjs';
import { assertAudit } from './support/queue.mjs';
import { Raw, adminRequest } from './support/raw.mjs';
import { Sale } from './support/reservations.mjs';
import { concert, isCluster, lasting, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';

// A folder for one test, removed behind it.
async function inFolder(use) {
  const folder = tempFolder();
  try {
    return await use(path.join(folder, 'data'));
  } finally {
    removeFolder(folder);
  }
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
      assertAudit(dataDir);
      await second.stop();
    }));

  test('a queue goes on with its counts, also when Redis has to be rebuilt', () =>
    inFolder(async (dataDir) => {
      const TOTALS = ['waiting', 'active', 'entered', 'admitted', 'completed', 'left', 'avgWaitSeconds', 'maxWaitSeconds'];
      const numbers = async (sale) => Object.fromEntries(Object.entries(await sale.numbers()).filter(([name]) => TOTALS.includes(name)));
      const first = await start({ dataDir, args: ['--queue-tick-ms', '50'] });
      const sale = await Sale.open(first, 'KEEP/1', { maxActive: 2 });
      const [ann, ben] = await sale.buyers(2);
      const [cid, dan] = await sale.enterAll(['cid', 'dan', 'eve']);
      await sale.confirmed(ann, (await sale.held(ann)).id);
      await sale.becomes(cid.entryToken, 'ACTIVE');
      for (const token of [dan.entryToken, ben.token]) assert.equal((await sale.leave(token)).status, 204);
      const before = await until('eve is in', async () => {
        const now = await numbers(sale);
        return now.active === 2 && now.admitted === 4 && now;
      });
      assert.ok(before.maxWaitSeconds > 0);
      assert.deepEqual([before.entered, before.completed, before.left], [5, 1, 2]);
      await first.stop();
      if (isCluster) forgetHot(dataDir);

      const second = await start({ dataDir });
      assert.deepEqual(await numbers(new Sale(second, sale.name)), before);
      await second.stop();
    }));

  // One client with its own events: for each it knows the last acknowledged version and the requests
  // since.
  class Client {
    constructor(number) {
      this.names = Array.from({ length: 3 }, (_, i) => `STORM/${number}-${i}`);
      this.known = new Map(this.names.map((name) => [name, null]));
      this.number = number;
      this.asked = 0;
      this.acknowledged = 0;
    }

    // Until the server has ended. Resolves when the connection is closed.
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

    // The current version was acknowledged last, or was under way.
    async check(server) {
      for (const name of this.names) {
        // Nodes that died before they updated Redis: it is rebuilt then.
        const { status, json } = await until(`${name} can be shown`, async () => {
          const answer = await server.admin('GET', `/admin/events/${name}`);
          return answer.json?.code !== 'recovering' && answer;
        });
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

  const ROUNDS = times(10);
  test(`kill -9 in a storm of changes from 16 connections, ${ROUNDS} times: nothing that was acknowledged is lost`, (t) =>
    inFolder(async (dataDir) => {
      const clients = Array.from({ length: 16 }, (_, i) => new Client(i));
      let flying = 0;
      for (let round = 0; round < ROUNDS; round++) {
        const server = await start({ dataDir });
        const goal = total(clients, 'acknowledged') + 100 + ((round * 137) % 400);
        const storms = Promise.all(clients.map((client) => client.storm(server)));
        await until('enough is acknowledged', () => total(clients, 'acknowledged') >= goal);
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

  test('SIGTERM in the same storm: exit 0 in time, and nothing that was acknowledged is lost', () =>
    inFolder(async (dataDir) => {
      const clients = Array.from({ length: 16 }, (_, i) => new Client(i));
      for (let round = 0; round < 3; round++) {
        const server = await start({ dataDir });
        const goal = total(clients, 'acknowledged') + 200;
        const storms = Promise.all(clients.map((client) => client.storm(server)));
        await until('enough is acknowledged', () => total(clients, 'acknowledged') >= goal);
        await server.stop('SIGTERM');
        await storms;
        assertAudit(dataDir);
        const looked = await start({ dataDir });
        for (const client of clients) await client.check(looked);
        await looked.stop();
      }
    }));
});
