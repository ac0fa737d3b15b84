// The waiting room when a thousand users enter at once: each has one place, no limit is exceeded, and
// the order is kept.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { WaitingRoom, assertAudit, bearer, eachOf, entriesOf, keepAlive, users } from './support/queue.mjs';
import { random } from './support/random.mjs';
import { start, test, times, until } from './support/server.mjs';

let server;
before(async () => (server = await start({ args: ['--queue-tick-ms', '10'] })));
after(async () => {
  assertAudit(server.dataDir);
  await server.stop();
});

// A room with one active user, where all others wait.
async function busy(name, queue = {}) {
  const room = await WaitingRoom.open(server, name, { maxActive: 1, entryBatchSize: 1000, ...queue });
  room.first = await room.enter('first');
  return room;
}

const oneTo = (count) => Array.from({ length: count }, (_, i) => i + 1);
const ascending = (numbers) => [...numbers].sort((a, b) => a - b);

describe('many at once', () => {
  test('1,000 clients enter at once: positions 1 to 1,000, each once, none lost; again: the same places (pitfalls 1, 2 and 7)', async () => {
    const room = await busy('CROWD/1');
    const agent = keepAlive(1000);
    const names = users(1000);
    const places = await Promise.all(names.map((user) => room.enter(user, { agent })));
    assert.ok(places.every((place) => place.status === 'WAITING'));
    assert.deepEqual(ascending(places.map((place) => place.position)), oneTo(1000));
    assert.equal(new Set(places.map((place) => place.entryToken)).size, 1000);
    assert.equal((await room.numbers()).waiting, 1000);

    const again = await Promise.all(names.map((user) => room.enter(user, { agent })));
    agent.release();
    for (const [i, place] of again.entries()) {
      assert.equal(place.userId, names[i]);
      assert.equal(place.entryToken, places[i].entryToken);
      assert.equal(place.position, places[i].position);
    }
    const rows = entriesOf(room);
    assert.deepEqual(rows.map((row) => row.seq), oneTo(1001), 'the numbers are dense');
    // A position is the rank of the number.
    const position = new Map(rows.map((row, i) => [row.user_id, i]));
    for (const [i, place] of places.entries()) assert.equal(place.position, position.get(names[i]));
  });

  test('20 requests for one user at once: one place, and 20 equal answers (pitfall 7)', async () => {
    const room = await busy('CROWD/2');
    const agent = keepAlive(200);
    const names = users(10, 'twin');
    const answers = await Promise.all(names.flatMap((user) => Array.from({ length: 20 }, () => room.enter(user, { agent }))));
    agent.release();
    for (const [i, user] of names.entries()) {
      const own = answers.slice(i * 20, i * 20 + 20);
      for (const { entryToken, position, userId, status } of own)
        assert.deepEqual({ entryToken, position, userId, status }, { entryToken: own[0].entryToken, position: own[0].position, userId: user, status: 'WAITING' });
    }
    const firsts = names.map((_, i) => answers[i * 20]);
    assert.deepEqual(ascending(firsts.map((place) => place.position)), oneTo(10));
    assert.equal((await room.numbers()).waiting, 10);
    assert.equal(entriesOf(room).length, 11);
  });

  test('20 requests at once for a user who is ACTIVE at once: one stay (pitfalls 5 and 7)', async () => {
    const room = await WaitingRoom.open(server, 'CROWD/3', { maxActive: 20, entryBatchSize: 20 });
    const answers = await Promise.all(Array.from({ length: 20 }, () => room.enter('one')));
    for (const answer of answers) {
      assert.equal(answer.status, 'ACTIVE');
      assert.equal(answer.entryToken, answers[0].entryToken);
      assert.equal(answer.activeExpiresAt, answers[0].activeExpiresAt);
      assert.equal((await room.gate(answer.entryToken)).status, 204);
    }
    assert.equal((await room.numbers()).active, 1);
  });

  test('64 clients enter, leave and expire at random: maxWaiting and maxActive are never exceeded (pitfalls 4 and 6)', async (t) => {
    const room = await WaitingRoom.open(server, 'CROWD/4', { maxActive: 8, maxWaiting: 20, entryBatchSize: 100000, activeTtlSeconds: 1, graceSeconds: 1 });
    const seed = Date.now() & 0xffff;
    const agent = keepAlive(64);
    const watch = keepAlive(1);
    const seen = { waiting: 0, active: 0, samples: 0, 200: 0, 202: 0, 429: 0 };
    const end = Date.now() + 5000;
    const ofEverybody = async () => {
      while (Date.now() < end) {
        const { waiting, active } = await room.numbers({ agent: watch });
        assert.ok(waiting <= 20, `${waiting} wait (seed ${seed})`);
        assert.ok(active <= 8, `${active} are active (seed ${seed})`);
        seen.waiting = Math.max(seen.waiting, waiting);
        seen.active = Math.max(seen.active, active);
        seen.samples++;
      }
    };
    const client = async (_, number) => {
      const next = random(seed + number);
      const token = (text) => ({ agent, headers: bearer(text) });
      while (Date.now() < end) {
        const answer = await room.ask(`c${Math.floor(next() * 96)}`, { agent });
        seen[answer.status]++;
        assert.ok([200, 202, 429].includes(answer.status), answer.text);
        if (answer.status === 429) continue;
        const { entryToken, totalWaiting } = room.place(answer, answer.status);
        assert.ok(totalWaiting <= 20);
        for (let polls = Math.floor(next() * 6); polls > 0; polls--) await room.status(entryToken, { agent });
        if (next() < 0.5) assert.equal((await server.call('DELETE', `/queue/${room.name}/leave`, token(entryToken))).status, 204);
      }
    };
    await Promise.all([ofEverybody(), ...Array.from({ length: 64 }, client)]);
    agent.release();
    watch.release();
    t.diagnostic(JSON.stringify(seen));
    assert.equal(seen.active, 8, 'it was full');
    assert.equal(seen.waiting, 20, 'and so was the queue');
    assert.ok(seen.samples > 10 && seen[429] > 0 && seen[200] + seen[202] > 64, JSON.stringify(seen));

    await until('everybody has gone', async () => {
      const { waiting, active } = await room.numbers();
      return waiting === 0 && active === 0;
    }, 30000);
    const { entered, left, expired } = await room.numbers();
    assert.equal(entered, left + expired);
    assert.equal(entriesOf(room).length, entered, 'each is in the ledger, once');
  });

  const ENTRANTS = times(10000);
  test(`${ENTRANTS} entrants in two lanes are admitted in order: lane, then number, with no inversion (pitfalls 2, 3 and 18)`, async (t) => {
    const room = await busy('CROWD/5', { maxWaiting: 100000, graceSeconds: 3600 });
    const agent = keepAlive(64);
    const next = random(20);
    const lanes = new Map(users(ENTRANTS).map((user) => [user, next() < 0.3 ? 0 : 8]));
    const acknowledged = new Map([['first', Date.now()]]);
    let opened = null;
    await eachOf([...lanes.keys()], 64, async (user, i) => {
      // A fifth is admitted while others come, the rest in one large batch when all are there.
      if (i === ENTRANTS / 5) opened = room.patch({ maxActive: ENTRANTS / 5, entryBatchSize: 400 });
      const answer = await room.askAsAdmin(user, { lane: lanes.get(user), agent });
      assert.ok(answer.status === 202 || answer.status === 200, answer.text);
      acknowledged.set(user, Date.now());
    });
    await opened;
    const before = await room.numbers();
    await room.patch({ maxActive: 1000000, entryBatchSize: 100000 });
    await until('all are admitted', async () => (await room.numbers()).admitted === ENTRANTS + 1);
    agent.release();
    t.diagnostic(`${before.admitted} admitted while others came`);

    const rows = entriesOf(room).filter((row) => row.user_id !== 'first');
    assert.equal(rows.length, ENTRANTS);
    for (const row of rows) {
      assert.equal(row.status, 'ACTIVE');
      assert.equal(row.lane, lanes.get(row.user_id));
    }
    const waited = rows.filter((row) => row.admitted_at > row.joined_at);
    assert.ok(waited.length > ENTRANTS / 2, `${waited.length} had to wait`);
    const of = (lane) => waited.filter((row) => row.lane === lane);
    let inversions = 0;
    for (const lane of [0, 8])
      of(lane).reduce((earlier, row) => {
        if (row.admitted_at < earlier.admitted_at) inversions++;
        return row;
      });
    assert.equal(inversions, 0, 'in a lane, by number');
    // No user of the later lane is admitted while one of the first lane waits whose entry is known to
    // be durable, and whose predecessors in the lane are too: pending entries delay those behind them.
    const firsts = of(0);
    let knownAt = 0;
    let known = 0; // how many of the first lane were known when this user was admitted
    let latest = 0; // when the last of them was admitted
    for (const row of of(8)) {
      for (; known < firsts.length; known++) {
        knownAt = Math.max(knownAt, acknowledged.get(firsts[known].user_id));
        if (knownAt >= row.admitted_at) break;
        latest = firsts[known].admitted_at;
      }
      if (latest > row.admitted_at) inversions++;
    }
    assert.equal(inversions, 0, 'lane first');
  });
});
