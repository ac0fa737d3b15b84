// The waiting room and kill -9: after the restart every answer is still true, and the order is kept.
import assert from 'node:assert/strict';
import path from 'node:path';
import { WaitingRoom, assertAudit, bearer, entriesOf, keepAlive, rewrite } from './support/queue.mjs';
import { pause, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';

async function inFolder(use) {
  const folder = tempFolder();
  try {
    return await use(path.join(folder, 'data'));
  } finally {
    removeFolder(folder);
  }
}

// The answers that many users got: for each user the token, the last status, and the times of the
// request and of the answer.
class Crowd {
  constructor() {
    this.known = new Map();
    this.flying = new Set(); // asked for a place, not answered
    this.number = 0;
    this.told = { WAITING: 0, ACTIVE: 0, LEFT: 0 };
  }

  // Until the server has ended: users enter, read their status and leave when they are ACTIVE.
  async storm(room) {
    this.agent = keepAlive(24);
    const gone = (error) => assert.match(error.code ?? '', /ECONNRESET|ECONNREFUSED|EPIPE|HPE_/, String(error.stack));
    try {
      await Promise.all([
        ...Array.from({ length: 8 }, () => this.#enter(room).catch(gone)),
        ...Array.from({ length: 4 }, (_, i) => this.#poll(room, i).catch(gone)),
      ]);
    } finally {
      this.agent.release();
    }
  }

  async #enter(room) {
    for (;;) {
      const user = `u${++this.number}`;
      const asked = performance.now();
      this.flying.add(user);
      const { entryToken, status } = await room.enter(user, { agent: this.agent });
      this.flying.delete(user);
      this.told[status]++;
      this.known.set(user, { entryToken, status, asked, answered: performance.now() });
    }
  }

  // The pollers share the crowd, so that each user has one.
  async #poll(room, share) {
    for (;;) {
      let looked = 0;
      for (const [user, one] of this.known) {
        if (Number(user.slice(1)) % 4 !== share || one.status === 'LEFT') continue;
        // Only the head of the line is worth a look.
        if (++looked > 20) break;
        const now = await room.status(one.entryToken, { agent: this.agent });
        if (one.status === 'ACTIVE') assert.equal(now.status, 'ACTIVE', user);
        if (now.status !== one.status) this.told[now.status]++;
        one.status = now.status;
        if (one.status !== 'ACTIVE') continue;
        one.leaving = true;
        const left = await room.server.call('DELETE', `/queue/${room.name}/leave`, { headers: bearer(one.entryToken), agent: this.agent });
        assert.equal(left.status, 204);
        this.told.LEFT++;
        one.status = 'LEFT';
      }
      await pause(1);
    }
  }

  // Everything that was said is so.
  async check(room) {
    const rows = new Map(entriesOf(room).map((row) => [row.user_id, row]));
    assert.equal(rows.size, entriesOf(room).length, 'nobody is there twice');
    for (const [user, one] of this.known) {
      const row = rows.get(user);
      assert.ok(row, `${user} was acknowledged and is lost`);
      if (one.status === 'ACTIVE') assert.match(row.status, one.leaving ? /^(ACTIVE|LEFT)$/ : /^ACTIVE$/, `${user} was told ACTIVE`);
      if (one.status === 'LEFT') assert.equal(row.status, 'LEFT', user);
    }
    for (const user of rows.keys()) assert.ok(this.known.has(user) || this.flying.has(user) || user === 'first', `${user} never asked`);

    // Whoever was answered before another asked is before it.
    const line = [...rows.values()].map((row) => this.known.get(row.user_id)).filter(Boolean);
    let answeredLater = Infinity;
    for (const one of line.reverse()) {
      assert.ok(answeredLater >= one.asked, 'a later one has the lower number');
      answeredLater = Math.min(answeredLater, one.answered);
    }
  }

  // The same tokens are valid and have the same status; waiting users are in the same order.
  async checkAnswers(room) {
    const agent = keepAlive(16);
    const waiting = entriesOf(room).filter((row) => row.status === 'WAITING');
    const { entryToken } = await room.enter(waiting.at(-1).user_id, { agent });
    assert.equal((await room.status(entryToken, { agent })).position, waiting.length);
    for (const [i, row] of waiting.entries()) {
      const one = this.known.get(row.user_id);
      const place = await room.enter(row.user_id, { agent });
      assert.equal(place.status, 'WAITING');
      assert.equal(place.position, i + 1, row.user_id);
      if (one) assert.equal(place.entryToken, one.entryToken, 'the same token');
      // Whoever got no answer asks again, and has the place that was taken for them.
      else this.known.set(row.user_id, { entryToken: place.entryToken, status: 'WAITING', asked: 0, answered: Infinity });
    }
    for (const [user, one] of this.known) {
      if (one.status === 'WAITING') continue;
      const { status } = await room.status(one.entryToken, { agent });
      if (one.status === 'ACTIVE' && one.leaving) one.status = status; // it got there, or it did not
      assert.match(status, /^(ACTIVE|LEFT)$/, user);
      assert.equal(status, one.status, user);
      one.leaving = false;
      if (status === 'ACTIVE') assert.equal((await room.enter(user, { agent })).entryToken, one.entryToken, 'the same stay');
    }
    agent.release();
  }
}

const ROUNDS = times(10);
test(`kill -9 in the middle of entering and admitting, ${ROUNDS} times: no place is lost, moved or doubled, and no answer is untrue (pitfall 13)`, (t) =>
  inFolder(async (dataDir) => {
    const args = ['--queue-tick-ms', '10'];
    const rules = { maxActive: 10, entryBatchSize: 100000, activeTtlSeconds: 86400, graceSeconds: 86400 };
    const crowd = new Crowd();
    let server = await start({ dataDir, args });
    let room = await WaitingRoom.open(server, 'CRASH/1', rules);
    for (let round = 0; round < ROUNDS; round++) {
      const before = { ...crowd.told };
      const storm = crowd.storm(room);
      storm.catch(() => {}); // it is waited for below
      await until('something of each was said', () => crowd.told.WAITING > before.WAITING + 20 && crowd.told.ACTIVE > before.ACTIVE + 5);
      await pause(Math.random() * 50); // kills it at a random moment
      await server.kill9();
      await storm;
      assertAudit(dataDir);
      room = new WaitingRoom({ dataDir }, 'CRASH/1');
      await crowd.check(room);

      // The gate is shut for the look, else the line moves on.
      rewrite(dataDir, "UPDATE events SET state = 'PAUSED'");
      server = await start({ dataDir, args });
      room = new WaitingRoom(server, 'CRASH/1');
      await crowd.check(room);
      await crowd.checkAnswers(room);
      crowd.flying.clear();
      await room.did('resume');
    }
    t.diagnostic(`${crowd.known.size} entered, ${JSON.stringify(crowd.told)}`);
    await server.stop();
    assertAudit(dataDir);
  }));

test('a restart keeps tokens, positions and stays, and grace starts again', () =>
  inFolder(async (dataDir) => {
    const first = await start({ dataDir });
    let room = await WaitingRoom.open(first, 'KEEP/1', { maxActive: 1, graceSeconds: 2 });
    const active = await room.enter('active');
    const lanes = [8, 0, 8, 3, 0];
    const places = [];
    for (const [i, lane] of lanes.entries()) places.push(room.place(await room.askAsAdmin(`u${i}`, { lane }), 202));
    const seen = Date.now();
    await first.stop();
    await until('longer than graceSeconds', () => Date.now() - seen > 3000);

    const second = await start({ dataDir, args: ['--queue-tick-ms', '10'] });
    const began = Date.now();
    room = new WaitingRoom(second, 'KEEP/1');
    for (const end = began + 700; Date.now() < end; await pause(20))
      assert.equal((await room.numbers()).waiting, 5, 'they could not be seen while it was down');
    const positions = await Promise.all(places.map(async (place) => (await room.status(place.entryToken)).position));
    assert.deepEqual(positions, [4, 1, 5, 3, 2]);
    const still = await room.status(active.entryToken);
    assert.equal(still.activeExpiresAt, active.activeExpiresAt, 'a stay goes on, and is no longer');
    assert.equal((await room.enter('u0')).entryToken, places[0].entryToken);
    assert.equal((await room.enter('new')).position, 6, 'behind them all');
    await until('the silent ones go', async () => (await room.numbers()).waiting === 0);
    assert.ok(Date.now() - began >= 2000, 'a whole graceSeconds after the start');
    await second.stop();
  }));

test('a stay that ended while the server was down is over, and its place is free', () =>
  inFolder(async (dataDir) => {
    const first = await start({ dataDir });
    let room = await WaitingRoom.open(first, 'KEEP/1', { maxActive: 1, activeTtlSeconds: 1 });
    const a = await room.enter('a');
    const b = await room.enter('b');
    await first.kill9();
    await until('it is over', () => Date.now() > Date.parse(a.activeExpiresAt));
    const second = await start({ dataDir });
    room = new WaitingRoom(second, 'KEEP/1');
    assert.equal((await room.status(a.entryToken)).status, 'EXPIRED');
    await room.becomes(b.entryToken, 'ACTIVE');
    await second.stop();
    assertAudit(dataDir);
  }));

test('a number is never given twice: after a restart the token of an ended place names no other user', () =>
  inFolder(async (dataDir) => {
    const first = await start({ dataDir });
    let room = await WaitingRoom.open(first, 'KEEP/1', { maxActive: 1 });
    const gone = await room.enterAll(['a', 'b', 'c']);
    for (const place of gone) assert.equal((await room.leave(place.entryToken)).status, 204);
    await first.kill9();
    const second = await start({ dataDir });
    room = new WaitingRoom(second, 'KEEP/1');
    const active = await room.enter('d');
    assert.equal(active.status, 'ACTIVE');
    for (const place of gone) {
      assert.equal((await room.status(place.entryToken)).status, 'LEFT');
      assert.equal((await room.gate(place.entryToken)).status, 403);
    }
    assert.equal((await room.enter('e')).position, 1);
    assert.deepEqual(entriesOf(room).map((row) => row.user_id), ['a', 'b', 'c', 'd', 'e']);
    await second.stop();
    assertAudit(dataDir);
  }));
