// What only several nodes have: they work on the same queue and the same seats, without a leader.
// DESIGN.md §3, §7 and §8. Always on Redis and PostgreSQL.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe } from 'node:test';
import { SERVICES, holdCommits, homeOf, redis, releaseCommits, servicesOf } from './support/cluster.mjs';
import { Room, assertAudit, bearer, eachOf, entriesOf, keepAlive, query, users } from './support/queue.mjs';
import { Hall, MODE_OF, STRATEGIES, assertHotIsLedger, metric } from './support/reservations.mjs';
import { call, concert, isCluster, launch, storeFlags, pause, run, start, test, until } from './support/server.mjs';
import { Stream } from './support/sse.mjs';

assert.ok(isCluster, 'run it with ADMITONE_STACK=cluster');

let server;
before(async () => (server = await start({ args: ['--queue-tick-ms', '50'] })));
after(() => server.stop());

// The same event, seen by one node.
const at = (node, room) => new room.constructor(node, room.name);

// Looks at the numbers on every node, all the time, until it is told to end; then says how often.
function watch(room, look) {
  let over = false;
  let looks = 0;
  const loop = async (node) => {
    const own = at(node, room);
    for (; !over; looks++) look(await own.numbers());
  };
  const all = Promise.all(server.nodes.map(loop));
  all.catch(() => (over = true));
  return async () => {
    over = true;
    await all;
    return looks;
  };
}

describe('1,000 users, 100 units, two nodes: exactly 100 are sold, and no cap is passed', () => {
  const [MAX_ACTIVE, MAX_WAITING] = [300, 600];

  for (const strategy of STRATEGIES)
    test(`${strategy} (traps 2, 3, 4 and 14)`, { timeout: 180000 }, async (t) => {
      const section = { id: 'A', capacity: 100, mode: MODE_OF[strategy] };
      const rules = { maxActive: MAX_ACTIVE, maxWaiting: MAX_WAITING, entryBatchSize: 1000 };
      const hall = await Hall.open(server, `CROWD/${strategy}`, rules, { sections: [section], maxPerUser: 1 });
      const agent = keepAlive(32);
      const highest = { waiting: 0, active: 0 };
      const unwatch = watch(hall, ({ waiting, active }) => {
        highest.waiting = Math.max(highest.waiting, waiting);
        highest.active = Math.max(highest.active, active);
        assert.ok(waiting <= MAX_WAITING, `${waiting} wait`);
        assert.ok(active <= MAX_ACTIVE, `${active} are active`);
      });

      // Everybody enters, some twice at once on both nodes; whoever is turned away comes again.
      const sold = [];
      let refused = 0;
      const buy = async (userId, i) => {
        let place;
        await until(`${userId} has a place`, async () => {
          const answers = await Promise.all(Array.from({ length: i % 4 === 0 ? 2 : 1 }, () => hall.ask(userId, { agent })));
          for (const { status, text } of answers) assert.match(String(status), /^(200|202|429)$/, text);
          const had = answers.filter(({ status }) => status !== 429).map(({ json }) => json.entryToken);
          assert.ok(new Set(had).size <= 1, 'entering twice is one place');
          place = had[0];
          if (place === undefined) await pause(50);
          return place !== undefined;
        }, 120000);
        await until(`${userId} is in`, async () => {
          const { status } = await hall.status(place, { agent });
          if (status !== 'ACTIVE') await pause(50);
          return status === 'ACTIVE';
        }, 120000);
        const who = { userId, token: place };
        // Whoever is overtaken between a read and a write may ask again.
        const answer = await until(`${userId} is answered`, async () => {
          const one = await hall.hold(who, { quantity: 1, strategy }, { agent });
          return (one.status === 201 || !/^(conflict|lock_timeout)$/.test(one.json.code)) && one;
        }, 120000);
        if (answer.status === 201) {
          await hall.confirmed(who, answer.json.id, { agent });
          sold.push(answer.json.seats[0]);
        } else {
          assert.deepEqual([answer.status, answer.json.code], [409, 'sold_out'], answer.text);
          refused++;
          assert.equal((await server.call('DELETE', `/queue/${hall.name}/leave`, { agent, headers: bearer(place) })).status, 204);
        }
      };
      // More at a time than fit, so that both caps are met.
      await eachOf(users(1000, 'u'), 1000, buy);
      const looks = await unwatch();
      agent.release();
      t.diagnostic(`${looks} looks; at most ${highest.waiting} waiting and ${highest.active} active`);
      assert.ok(looks > 20, `${looks} looks`);

      assert.equal(sold.length, 100);
      assert.equal(refused, 900);
      assert.deepEqual(sold.sort((a, b) => a - b), Array.from({ length: 100 }, (_, i) => i + 1));
      const rows = hall.rows().filter(({ status }) => status === 'CONFIRMED');
      assert.equal(rows.length, 100);
      assert.equal(new Set(rows.map(({ user_id: user }) => user)).size, 100);
      const entries = entriesOf(hall);
      assert.equal(new Set(entries.map(({ user_id: user }) => user)).size, 1000);
      assert.equal(entries.length, 1000, 'nobody had two places');
      assert.deepEqual(await hall.counts(), { available: 0, held: 0, confirmed: 100 });
      await assertHotIsLedger(hall);
      assert.equal(await metric(server, 'admitone_reservation_guard_refusals_total'), 0, 'hot store and ledger never diverged');
    });
});

describe('a queue that two nodes serve', () => {
  test('the order is that of arrival, whichever node it was at (trap 2), and so is admission (trap 3)', async () => {
    const room = await Room.open(server, 'ORDER/1', { maxActive: 1, entryBatchSize: 1 });
    await room.enter('first');
    const names = ['user10', 'user9', 'user1', 'zed', 'anna', 'user2'];
    const places = [];
    for (const [i, name] of names.entries()) places.push(await at(server.nodes[i % 2], room).enter(name));
    assert.deepEqual(places.map(({ position }) => position), [1, 2, 3, 4, 5, 6]);
    for (const [i, { entryToken }] of places.entries())
      assert.equal((await at(server.nodes[(i + 1) % 2], room).status(entryToken)).position, i + 1, 'the other node says the same');
    const rows = entriesOf(room);
    assert.deepEqual(rows.map(({ user_id: user }) => user), ['first', ...names]);
  });

  test('who entered at one node is known to the other at once', async () => {
    const room = await Room.open(server, 'BOTH/1', { maxActive: 20, entryBatchSize: 1000 });
    const [a, b] = server.nodes.map((node) => at(node, room));
    for (const [i, user] of users(40).entries()) {
      const [here, there] = i % 2 === 0 ? [a, b] : [b, a];
      const place = await here.enter(user);
      const seen = await there.status(place.entryToken);
      assert.deepEqual([seen.status, seen.position], [place.status, place.position], user);
      const again = await there.enter(user);
      assert.equal(again.entryToken, place.entryToken);
    }
    assert.equal(entriesOf(room).length, 40);
  });

  test('all nodes tick, and each place is admitted once (trap 3)', async () => {
    const room = await Room.open(server, 'TICK/1', { maxActive: 40, entryBatchSize: 7 }, { state: 'PAUSED' });
    const places = await eachOf(users(120), 16, (user) => room.enter(user));
    const admitted = () => Promise.all(server.nodes.map((node) => node.metric('admitone_queue_admissions_total')));
    const before = await admitted();
    const unwatch = watch(room, ({ active }) => assert.ok(active <= 40, `${active} are active`));
    await room.did('resume');
    // Whoever is being admitted is active already, and counted when that is durable.
    await until('as many are in as may be', async () => entriesOf(room).filter(({ status }) => status === 'ACTIVE').length === 40, 30000);
    await until('they are counted', async () => (await admitted()).reduce((sum, count, i) => sum + count - before[i], 0) >= 40);
    await pause(200); // four ticks of each
    await unwatch();
    const grown = (await admitted()).map((count, i) => count - before[i]);
    assert.equal(grown[0] + grown[1], 40, `${grown}`);
    const inside = entriesOf(room).filter(({ status }) => status === 'ACTIVE').map(({ seq }) => seq);
    assert.deepEqual(inside, entriesOf(room).slice(0, 40).map(({ seq }) => seq), 'in order');
    assert.equal(places.length, 120);
  });

  test('the ledger refuses a second live place of a user, whoever asks for it (trap 14)', () => {
    const guard = "SELECT indexdef FROM pg_indexes WHERE indexname = 'queue_entries_live'";
    assert.match(query(server.dataDir, guard)[0].indexdef, /UNIQUE INDEX .*\(event_id, user_id\) WHERE/);
    const double = `INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at)
      SELECT event_id, seq + 1000000, user_id, lane, 'WAITING', joined_at FROM queue_entries WHERE status = 'WAITING' LIMIT 1`;
    assert.throws(() => query(server.dataDir, double), /queue_entries_live/);
  });

  test('a stream at one node hears what another node admitted, long before it would ask (trap 17)', async () => {
    const own = await start({ args: ['--push-interval-ms', '30000', '--queue-tick-ms', '50'] });
    const room = await Room.open(own, 'NEWS/1', { maxActive: 1, entryBatchSize: 100 });
    const [a, b] = own.nodes.map((node) => at(node, room));
    // Each node in turn has the stream, and the other one the act. Who admits is whoever ticks first.
    for (const [i, [here, there]] of [[a, b], [b, a], [a, b], [b, a]].entries()) {
      const active = await there.enter(`active${i}`);
      const waits = await there.enter(`waits${i}`);
      const stream = await Stream.open(here, waits.entryToken);
      await stream.hears('WAITING');
      const began = performance.now();
      assert.equal((await there.leave(active.entryToken)).status, 204);
      await stream.hears('ACTIVE', 15000);
      const ms = performance.now() - began;
      assert.ok(ms < 5000, `${ms} ms`);
      await stream.toEnd();
      assert.equal((await there.leave(waits.entryToken)).status, 204);
    }
    await own.stop();
  });
});

describe('an event that is changed at one node', () => {
  // How long until the other one shows it, asked all the time.
  async function seenAfter(node, target, isSeen) {
    const began = performance.now();
    await until(`${target} is seen`, async () => isSeen(await call(node, 'GET', target)), 5000);
    return performance.now() - began;
  }
  const put = (node, title) => node.admin('PUT', '/admin/events/NEWS/2', concert({ title }));

  test('is seen at the other as soon as it is announced', async (t) => {
    const [a, b] = server.nodes;
    const times = [];
    for (let i = 0; i < 10; i++) {
      const [here, there] = i % 2 === 0 ? [a, b] : [b, a];
      assert.equal((await put(here, `title ${i}`)).status, i === 0 ? 201 : 200);
      times.push(await seenAfter(there, '/events/NEWS/2', ({ json }) => json?.title === `title ${i}`));
    }
    t.diagnostic(`ms: ${times.map((ms) => ms.toFixed()).join(' ')}`);
    // Every second it would look anyway: half a second on average.
    const middle = times.sort((x, y) => x - y)[times.length / 2];
    assert.ok(middle < 300, `${middle} ms`);
    assert.equal((await a.admin('DELETE', '/admin/events/NEWS/2')).status, 204);
    await seenAfter(b, '/events/NEWS/2', ({ status }) => status === 404);
  });

  test('is seen within two seconds when the announcement is lost', async () => {
    const own = await start({ args: ['--queue-tick-ms', '1000'] });
    const [a, b] = own.nodes;
    // As if node A had died between its commit and its announcement.
    assert.equal((await put(a, 'before')).status, 201);
    await seenAfter(b, '/events/NEWS/2', ({ json }) => json?.title === 'before');
    query(own.dataDir, `INSERT INTO audit(at, actor, act, subject, detail) VALUES (1, 'admin', 'event.put', 'NEWS/2', '{}');
      UPDATE events SET title = 'after', version = (SELECT max(id) FROM audit)`);
    const ms = Math.max(...(await Promise.all([a, b].map((node) => seenAfter(node, '/events/NEWS/2', ({ json }) => json.title === 'after')))));
    assert.ok(ms < 2000, `${ms} ms`);
    await own.stop();
  });

  test('has its new rules in force as soon as Redis is back, where nobody could tell it', async () => {
    const own = await start({ nodes: 1, args: ['--hot-deadline-ms', '100'] });
    await Room.open(own, 'RULES/2', { maxWaiting: 1000 });
    for (const maxWaiting of [11, 12, 13, 14]) {
      redis(own.dataDir, 'CLIENT', 'PAUSE', '1000');
      // It is written; the numbers that go with the answer Redis can't tell.
      const { status, json } = await own.nodes[0].admin('PATCH', '/admin/queue/RULES/2', { maxWaiting });
      assert.deepEqual([status, json.queue.maxWaiting, json.entering, json.degraded, json.waiting], [200, maxWaiting, true, true, undefined]);
      assert.equal(query(own.dataDir, 'SELECT max_waiting FROM events')[0].max_waiting, maxWaiting);
      const rules = () => redis(own.dataDir, 'HGET', 'queue:{RULES:2}:meta', 'rules');
      await until(`Redis has heard of ${maxWaiting}`, async () => rules().includes(`max_waiting=${maxWaiting} `), 10000);
    }
    await own.stop();
  });

  test('has its new rules in force everywhere, at once: the hot store has them', async () => {
    const room = await Room.open(server, 'RULES/1', { maxActive: 1, maxWaiting: 1000, entryBatchSize: 100 });
    await room.enterAll(users(3));
    const [a, b] = server.nodes;
    const { status } = await a.admin('PATCH', '/admin/queue/RULES/1', { maxWaiting: 2 });
    assert.equal(status, 200);
    assert.equal((await at(b, room).ask('late')).status, 429);
  });
});

test('a third node joins without a restart of the others, and does what they do', async () => {
  const own = await start({ args: ['--queue-tick-ms', '50'] });
  const hall = await Hall.open(own, 'JOIN/1', { maxActive: 2 }, { sections: [{ id: 'A', capacity: 10 }] });
  const [ann, ben] = [await hall.buyer('ann'), await hall.buyer('ben')];
  const waits = await hall.enter('waits');
  const held = await hall.held(ann, { seats: [3] });
  const epoch = () => query(own.dataDir, "SELECT number FROM epochs WHERE name = 'hot'")[0].number;
  const before = epoch();

  const third = await own.join();
  const there = at(third, hall);
  assert.equal(epoch(), before, 'nothing was filled anew (trap 31)');
  assert.deepEqual(await there.counts(), { available: 9, held: 1, confirmed: 0 });
  assert.equal((await there.status(waits.entryToken)).position, 1);
  assert.equal((await there.hold(ben, { seats: [3] })).json.code, 'seat_taken');
  await there.confirmed(ann, held.id);
  await hall.becomes(waits.entryToken, 'ACTIVE');
  const late = await there.enter('late');
  assert.equal(late.status, 'WAITING');

  // It goes as it came, and so do the others: whoever is left does the work.
  await own.nodes[0].stop();
  await own.nodes[1].stop();
  assert.equal((await there.leave(waits.entryToken)).status, 204);
  assert.equal((await there.becomes(late.entryToken, 'ACTIVE')).status, 'ACTIVE');
  await there.held({ userId: 'late', token: late.entryToken }, { seats: [4] });
  assert.deepEqual(await there.counts(), { available: 8, held: 1, confirmed: 1 });
  assertAudit(own.dataDir);
  await own.stop();
});

test('nodes that stop and start again find what is in flight as it was (trap 31)', async () => {
  const own = await start({ args: ['--queue-tick-ms', '50'] });
  const hall = await Hall.open(own, 'AGAIN/1', { maxActive: 3 }, { sections: [{ id: 'A', capacity: 10 }, { id: 'B', capacity: 10, mode: 'seat' }] });
  const buyers = await hall.buyers(3);
  const waits = await hall.enter('waits');
  const [one] = [await hall.held(buyers[0], { seats: [1] }), await hall.held(buyers[1], { section: 'B', seats: [2] })];
  await Promise.all(own.nodes.map((node) => node.stop()));
  const again = await start({ dataDir: own.dataDir, args: ['--queue-tick-ms', '50'] });
  const now = at(again, hall);
  assert.deepEqual(await now.counts('A'), { available: 9, held: 1, confirmed: 0 });
  assert.deepEqual(await now.counts('B'), { available: 9, held: 1, confirmed: 0 });
  assert.equal((await now.status(waits.entryToken)).position, 1);
  await now.confirmed(buyers[0], one.id);
  await now.becomes(waits.entryToken, 'ACTIVE');
  await assertHotIsLedger(now);
  assertAudit(own.dataDir);
  await again.stop();
  await own.stop();
});

describe('one thing asked of both nodes at once', () => {
  for (const strategy of STRATEGIES)
    test(`${strategy}: the same Idempotency-Key has one effect`, async () => {
      const hall = await Hall.open(server, `KEY/${strategy}`, {}, { sections: [{ id: 'A', capacity: 100, mode: MODE_OF[strategy] }], maxPerUser: 2 });
      const ann = await hall.buyer('ann');
      const refusals = () => metric(server, 'admitone_reservation_guard_refusals_total');
      const before = await refusals();
      for (let round = 0; round < 10; round++) {
        const options = { headers: { 'idempotency-key': `${strategy} ${round}` } };
        const ask = (node) => at(node, hall).hold(ann, { quantity: 2, strategy }, options);
        const answers = await Promise.all([...server.nodes, ...server.nodes].map(ask));
        for (const { status, text } of answers) assert.equal(status, 201, text);
        assert.equal(new Set(answers.map(({ json }) => json.id)).size, 1);
        assert.equal(hall.rows().length, round + 1);
        assert.deepEqual(await hall.counts(), { available: 98, held: 2, confirmed: 0 });
        if (round < 9) await hall.cancelled(ann, answers[0].json.id); // with one more she would be over the limit
      }
      assert.equal(await refusals(), before, 'a replay is no refusal');
      await assertHotIsLedger(hall);
    });

  // The section's row is locked by somebody else, so the first has written its hold and can't commit.
  // The others wait for its rows, and see what has become of it only then; where there is a lock to be
  // had first, they wait for that.
  for (const strategy of STRATEGIES)
    test(`${strategy}: and while the first to ask has not committed`, async () => {
      const hall = await Hall.open(server, `SLOW/${strategy}`, {}, { sections: [{ id: 'A', capacity: 100, mode: MODE_OF[strategy] }], maxPerUser: 4 });
      const ann = await hall.buyer('ann');
      const { id } = await hall.held(ann, { quantity: 2, strategy });
      await hall.cancelled(ann, id);
      const refusals = () => metric(server, 'admitone_reservation_guard_refusals_total');
      const before = await refusals();
      const sessions = (where) => `pg_stat_activity WHERE datname = current_database() AND ${where}`;
      const count = (where) => query(server.dataDir, `SELECT count(*) AS n FROM ${sessions(where)}`)[0].n;

      const section = `SELECT s.id FROM sections s JOIN events e ON e.id = s.event_id WHERE e.type = '${hall.type}' AND e.external_id = '${hall.id}'`;
      const lock = `BEGIN; SELECT FROM sections WHERE id = (${section}) FOR UPDATE; SELECT pg_sleep(60)`;
      const psql = launch(['psql', homeOf(server.dataDir).postgresUrl, '-qAtX', '-c', lock]);
      await until('the row is locked', () => count("wait_event = 'PgSleep'") === 1);
      const ask = (node) => at(node, hall).hold(ann, { quantity: 2, strategy }, { headers: { 'idempotency-key': `slow ${strategy}` } });
      const asked = [...server.nodes, ...server.nodes].map(ask);
      const waiting = /lock$|adaptive/.test(strategy) ? 1 : asked.length;
      await until('they wait for rows', () => count("wait_event_type = 'Lock'") >= waiting);
      query(server.dataDir, `SELECT pg_terminate_backend(pid) FROM ${sessions("wait_event = 'PgSleep'")}`);
      await psql.ended;

      const answers = await Promise.all(asked);
      for (const { status, text } of answers) assert.equal(status, 201, text);
      assert.equal(new Set(answers.map(({ json }) => json.id)).size, 1);
      assert.equal(hall.rows().length, 2);
      assert.equal(await refusals(), before, 'a replay is no refusal');
      await assertHotIsLedger(hall);
    });

  test('confirm and cancel of one hold: one of them wins, and both say so', async () => {
    const hall = await Hall.open(server, 'RACE/1', {}, { sections: [{ id: 'A', capacity: 50 }], maxPerUser: 50, autoEnter: true });
    for (let round = 0; round < 25; round++) {
      const ann = await hall.buyer(`ann${round}`);
      const { id } = await hall.held(ann);
      const verbs = round % 2 === 0 ? ['confirm', 'cancel'] : ['cancel', 'confirm'];
      const answers = await Promise.all(server.nodes.map((node, i) => at(node, hall).finish(ann, verbs[i], id)));
      const confirm = answers[verbs.indexOf('confirm')];
      assert.match(String(confirm.status), /^(200|409)$/, confirm.text);
      assert.equal(answers[verbs.indexOf('cancel')].status, 200, 'what is confirmed can be cancelled');
      await hall.got(ann, id, 'CANCELLED');
    }
    assert.deepEqual(await hall.counts(), { available: 50, held: 0, confirmed: 0 });
    await assertHotIsLedger(hall);
  });
});

describe('distributed-lock over two nodes', () => {
  const WISH = { section: 'S', seats: [1], strategy: 'distributed-lock' };
  const open = (on, name) => Hall.open(on, name, {}, { sections: [{ id: 'S', capacity: 10, mode: 'seat' }], maxPerUser: 10 });

  const asked = (node, count) =>
    until(`${count} have asked`, async () => (await metric(node, 'admitone_reservation_attempts_total', { strategy: 'distributed-lock' })) >= count);

  test('who asks at one node waits for who has it at the other, and is told the truth', async () => {
    const own = await start();
    const hall = await open(own, 'LOCK/1');
    const [ann, ben] = await hall.buyers(2);
    const [a, b] = own.nodes;
    holdCommits();
    const first = at(a, hall).hold(ann, WISH);
    await until('the first has the lock', async () => (await metric(a, 'admitone_lock_wait_seconds_count', { strategy: 'distributed-lock' })) === 1);
    const second = at(b, hall).hold(ben, WISH);
    await asked(b, 1);
    await pause(300);
    assert.equal(await metric(b, 'admitone_lock_wait_seconds_count', { strategy: 'distributed-lock' }), 0, 'it waits in line');
    releaseCommits();
    assert.equal((await first).status, 201);
    assert.equal((await second).json.code, 'seat_taken');
    assert.ok((await metric(b, 'admitone_lock_wait_seconds_sum', { strategy: 'distributed-lock' })) >= 0.3, 'it has waited');
    await assertHotIsLedger(hall);
    await own.stop();
  });

  test('a node that stands still past its lease loses the lock, and comes too late with its fence (trap 20)', async (t) => {
    const own = await start({ args: ['--lock-lease-ms', '500'] });
    const hall = await open(own, 'LOCK/2');
    const [ann, ben] = await hall.buyers(2);
    const [a, b] = own.nodes;
    const seen = {};
    for (let round = 0; round < 6; round++) {
      const holding = at(a, hall).hold(ann, WISH);
      await pause(round); // sometimes before it has the lock, sometimes in the middle of its write
      a.signal('SIGSTOP');
      const other = at(b, hall).hold(ben, WISH);
      const answer = await other;
      a.signal('SIGCONT');
      const both = [await holding, answer];
      const won = both.filter(({ status }) => status === 201);
      // PostgreSQL ends the session of who stands still in a transaction: nothing was changed then, too.
      for (const one of both) if (one.status !== 201) assert.match(one.json.code, /^(seat_taken|conflict|lock_timeout|lock_lost|ledger_failed)$/, one.text);
      assert.ok(won.length <= 1, 'one seat, one owner');
      const rows = hall.rows().filter(({ status }) => status === 'HELD');
      assert.deepEqual(rows.map(({ id }) => id), won.map(({ json }) => json.id));
      const what = both.map(({ status, json }) => (status === 201 ? 'held' : json.code)).join(' / ');
      seen[what] = (seen[what] ?? 0) + 1;
      for (const [i, who] of [ann, ben].entries()) if (both[i].status === 201) await hall.cancelled(who, both[i].json.id);
    }
    t.diagnostic(JSON.stringify(seen));
    await assertHotIsLedger(hall);
    assertAudit(own.dataDir);
    await own.stop();
  });
});

test('a place that its node took and could not finish is finished by another (trap 13)', async () => {
  const own = await start({ args: ['--queue-tick-ms', '50', '--ledger-deadline-ms', '1000'] });
  const room = await Room.open(own, 'DEAD/1', { maxActive: 5, maxWaiting: 30, entryBatchSize: 1000 });
  const [a, b] = own.nodes;
  const told = [];
  const storm = Promise.all(users(20).map(async (user) => {
    const answer = await at(a, room).ask(user).catch(() => null);
    if (answer !== null) told.push(answer.json);
  }));
  await pause(5);
  await a.kill9();
  await storm;
  const there = at(b, room);
  // Whoever was told of a place has it, and nobody else is in the way for long.
  for (const place of told) assert.match((await there.status(place.entryToken)).status, /^(WAITING|ACTIVE)$/);
  await until('everybody who is there has a row', async () => {
    const live = entriesOf(room).filter(({ status }) => /^(WAITING|ACTIVE)$/.test(status)).length;
    const { waiting, active } = await there.numbers();
    return waiting + active === live;
  }, 20000);
  const places = await eachOf(users(20), 8, (user) => there.enter(user));
  assert.equal(new Set(places.map(({ entryToken }) => entryToken)).size, 20);
  for (const place of told) assert.ok(places.some(({ entryToken }) => entryToken === place.entryToken), 'the same place as before');
  await until('as many are in as may be', async () => (await there.numbers()).active === 5);
  assertAudit(own.dataDir);
  await own.stop();
});

test('who has a place that Redis can\'t show any more is not told that nothing was changed', async () => {
  const own = await start({ nodes: 1, args: ['--queue-tick-ms', '50'] });
  const room = await Room.open(own, 'LOST/1', { maxActive: 5 });
  holdCommits();
  const asked = room.ask('ann');
  await until('the place is taken', async () => redis(own.dataDir, 'HGET', 'queue:{LOST:1}:user', 'ann') !== '');
  await pause(100); // its record is under way
  assert.equal(spawnSync(SERVICES, ['stop', servicesOf().SERVICES_DIR, 'redis']).status, 0);
  releaseCommits();
  const { status, json } = await asked;
  assert.equal(spawnSync(SERVICES, ['start', 'redis', '--dir', servicesOf().SERVICES_DIR]).status, 0);
  assert.deepEqual([status, json.code], [503, 'hot_unknown']);
  assert.doesNotMatch(json.detail, /nothing was changed/i);
  assert.equal(entriesOf(room).length, 1);
  await until('the place is shown', async () => (await room.ask('ann')).status === 200, 20000);
  assert.equal(entriesOf(room).length, 1, 'it is the same');
  await own.stop();
});

test('admitone audit finds nothing wrong with all that, while the nodes run', () => {
  const audit = run(['audit', ...storeFlags(server.dataDir)], { timeoutMs: 60000 });
  assert.equal(audit.status, 0, audit.stdout + audit.stderr);
  assert.match(audit.stdout, /PostgreSQL at 127\.0\.0\.1/);
  assert.match(audit.stdout, /\d+ checks, 0 violations/);
});
