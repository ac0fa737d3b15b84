// Behaviour that needs several nodes: they share queues and seats, without a leader. Always on Redis
// and PostgreSQL.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs, { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { PSQL, REDIS_LIBRARY, SERVICES, holdCommits, homeOf, nodeFlags, redis, releaseCommits, servicesOf, setReadOnly } from './support/cluster.mjs';
import { WaitingRoom, assertAudit, assertPlace, bearer, eachOf, entriesOf, keepAlive, query, users } from './support/queue.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, metric } from './support/reservations.mjs';
import { BINARY, assertProblem, call, concert, environment, isCluster, launch, pause, removeFolder, run, start, storeFlags, tempFolder, test, until } from './support/server.mjs';
import { Stream } from './support/sse.mjs';

assert.ok(isCluster, 'run it with ADMITONE_STACK=cluster');

let server;
before(async () => (server = await start({ args: ['--queue-tick-ms', '50'] })));
after(() => server.stop());

// The same event, seen by one node.
const at = (node, room) => new room.constructor(node, room.name);

// Reads the numbers on every node again and again until it is stopped; returns how often.
function watch(room, look) {
  let over = false;
  let looks = 0;
  const loop = async (node) => {
    const own = at(node, room);
    for (; !over; looks++) {
      look(await own.numbers());
      await pause(20);
    }
  };
  const all = Promise.all(server.nodes.map(loop));
  all.catch(() => (over = true));
  return async () => {
    over = true;
    await all;
    return looks;
  };
}

const isFull = Boolean(process.env.TEST_FULL);
const isTsan = process.env.SANITIZER === 'thread';
// Under TSan only what nodes or threads do at the same time is tested.
const sequential = isTsan && !isFull ? { skip: 'not under TSan: it does one thing after the other' } : {};

describe('100 units, two nodes, many more users: exactly 100 are sold, and no limit is exceeded', () => {
  // The queue is the same for all strategies, so the largest crowd is needed once only. TSan looks for
  // races between threads, of which each request has all.
  for (const [i, strategy] of STRATEGIES.entries()) {
    const CROWD = isFull || (i === 0 && !isTsan) ? 1000 : isTsan ? 140 : 200;
    const [MAX_ACTIVE, MAX_WAITING] = [CROWD * 0.3, CROWD * 0.6];
    test(`${strategy}, ${CROWD} users (pitfalls 2, 3, 4 and 14)`, async (t) => {
      // Nobody buys in the last section: users are admitted as long as the event has seats.
      const sections = [{ id: 'A', capacity: 100, mode: MODE_OF[strategy] }, { id: 'other', capacity: 1 }];
      const rules = { maxActive: MAX_ACTIVE, maxWaiting: MAX_WAITING, entryBatchSize: 1000 };
      const sale = await Sale.open(server, `CROWD/${strategy}`, rules, { sections, maxPerUser: 1 });
      const agent = keepAlive(32);
      const highest = { waiting: 0, active: 0 };
      const unwatch = watch(sale, ({ waiting, active }) => {
        highest.waiting = Math.max(highest.waiting, waiting);
        highest.active = Math.max(highest.active, active);
        assert.ok(waiting <= MAX_WAITING, `${waiting} wait`);
        assert.ok(active <= MAX_ACTIVE, `${active} are active`);
      });

      // All users enter, some twice at once on both nodes; a refused user tries again.
      const sold = [];
      let refused = 0;
      const buy = async (userId, i) => {
        let place;
        await until(`${userId} has a place`, async () => {
          const answers = await Promise.all(Array.from({ length: i % 4 === 0 ? 2 : 1 }, () => sale.ask(userId, { agent })));
          for (const { status, text } of answers) assert.match(String(status), /^(200|202|429)$/, text);
          const had = answers.filter(({ status }) => status !== 429).map(({ json }) => json.entryToken);
          assert.ok(new Set(had).size <= 1, 'entering twice is one place');
          place = had[0];
          if (place === undefined) await pause(250);
          return place !== undefined;
        }, 120000);
        await until(`${userId} is in`, async () => {
          const { status } = await sale.status(place, { agent });
          if (status !== 'ACTIVE') await pause(250);
          return status === 'ACTIVE';
        }, 120000);
        const who = { userId, token: place };
        // A request that lost a race between read and write may be repeated.
        const answer = await until(`${userId} is answered`, async () => {
          const one = await sale.hold(who, { quantity: 1, strategy }, { agent });
          return (one.status === 201 || !/^(conflict|lock_timeout)$/.test(one.json.code)) && one;
        }, 120000);
        if (answer.status === 201) {
          await sale.confirmed(who, answer.json.id, { agent });
          sold.push(answer.json.seats[0]);
        } else {
          assert.deepEqual([answer.status, answer.json.code], [409, 'sold_out'], answer.text);
          refused++;
          assert.equal((await server.call('DELETE', `/queue/${sale.name}/leave`, { agent, headers: bearer(place) })).status, 204);
        }
      };
      // More at a time than fit, so that both caps are met.
      await eachOf(users(CROWD, 'u'), CROWD, buy);
      const looks = await unwatch();
      agent.release();
      t.diagnostic(`${looks} looks; at most ${highest.waiting} waiting and ${highest.active} active`);
      assert.ok(looks > 5, `${looks} looks`);

      assert.equal(sold.length, 100);
      assert.equal(refused, CROWD - 100);
      assert.deepEqual(sold.sort((a, b) => a - b), Array.from({ length: 100 }, (_, i) => i + 1));
      const rows = sale.rows().filter(({ status }) => status === 'CONFIRMED');
      assert.equal(rows.length, 100);
      assert.equal(new Set(rows.map(({ user_id: user }) => user)).size, 100);
      const entries = entriesOf(sale);
      assert.equal(new Set(entries.map(({ user_id: user }) => user)).size, CROWD);
      assert.equal(entries.length, CROWD, 'no user had two places');
      assert.deepEqual(await sale.counts(), { available: 0, held: 0, confirmed: 100 });
      await assertHotIsLedger(sale);
      assert.equal(await metric(server, 'admitone_reservation_guard_refusals_total'), 0, 'hot store and ledger never diverged');
    });
  }
});

describe('a queue that two nodes serve', () => {
  test('the order is that of arrival, whichever node it was at (pitfall 2), and so is admission (pitfall 3)', async () => {
    const room = await WaitingRoom.open(server, 'ORDER/1', { maxActive: 1, entryBatchSize: 1 });
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

  test('a user who entered at one node is known to the other at once', async () => {
    const room = await WaitingRoom.open(server, 'BOTH/1', { maxActive: 20, entryBatchSize: 1000 });
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

  test('all nodes tick, and each place is admitted once (pitfall 3)', async () => {
    const room = await WaitingRoom.open(server, 'TICK/1', { maxActive: 40, entryBatchSize: 7 }, { state: 'PAUSED' });
    const places = await eachOf(users(120), 16, (user) => room.enter(user));
    const admitted = () => Promise.all(server.nodes.map((node) => node.metric('admitone_queue_admissions_total')));
    const before = await admitted();
    const unwatch = watch(room, ({ active }) => assert.ok(active <= 40, `${active} are active`));
    await room.did('resume');
    // A user whose admission is pending is active already, and is counted when that is durable.
    await until('as many are in as may be', async () => entriesOf(room).filter(({ status }) => status === 'ACTIVE').length === 40);
    await until('they are counted', async () => (await admitted()).reduce((sum, count, i) => sum + count - before[i], 0) >= 40);
    await pause(200); // four ticks of each
    await unwatch();
    const grown = (await admitted()).map((count, i) => count - before[i]);
    assert.equal(grown[0] + grown[1], 40, `${grown}`);
    const inside = entriesOf(room).filter(({ status }) => status === 'ACTIVE').map(({ seq }) => seq);
    assert.deepEqual(inside, entriesOf(room).slice(0, 40).map(({ seq }) => seq), 'in order');
    assert.equal(places.length, 120);
  });

  test('the ledger refuses a second live place of a user, whichever node asks (pitfall 14)', sequential, () => {
    const guard = "SELECT indexdef FROM pg_indexes WHERE indexname = 'queue_entries_live'";
    assert.match(query(server.dataDir, guard)[0].indexdef, /UNIQUE INDEX .*\(event_id, user_id\) WHERE/);
    const double = `INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at)
      SELECT event_id, seq + 1000000, user_id, lane, 'WAITING', joined_at FROM queue_entries WHERE status = 'WAITING' LIMIT 1`;
    assert.throws(() => query(server.dataDir, double), /queue_entries_live/);
  });

  test('a stream at one node shows an admission by another node, long before its next poll (pitfall 17)', async () => {
    const own = await start({ args: ['--push-interval-ms', '60000', '--queue-tick-ms', '50'] });
    const room = await WaitingRoom.open(own, 'NEWS/1', { maxActive: 1, entryBatchSize: 100 });
    const [a, b] = own.nodes.map((node) => at(node, room));
    // The stream is alternately on each node, and the request on the other one. Either node may admit.
    for (const [i, [here, there]] of [[a, b], [b, a], [a, b], [b, a]].entries()) {
      const active = await there.enter(`active${i}`);
      const waits = await there.enter(`waits${i}`);
      const stream = await Stream.open(here, waits.entryToken);
      await stream.hears('WAITING');
      assert.equal((await there.leave(active.entryToken)).status, 204);
      await stream.hears('ACTIVE', 30000);
      await stream.toEnd();
      assert.equal((await there.leave(waits.entryToken)).status, 204);
    }
    await own.stop();
  });
});

test('while Redis is away, polls and streams show places as the ledger has them, and nothing of seats', sequential, async () => {
  const own = await start({ nodes: 1, args: ['--hot-deadline-ms', '200', '--push-interval-ms', '100', '--queue-tick-ms', '50'] });
  const rules = { maxActive: 1, entryBatchSize: 100, entryIntervalSeconds: 1 };
  const sale = await Sale.open(own, 'AWAY/1', rules, { sections: [{ id: 'A', capacity: 10 }] });
  const ann = await sale.buyer('ann');
  await sale.held(ann, { seats: [3] });
  await sale.enter('ben');
  const cid = await sale.enter('cid');
  const stream = await Stream.open(at(own.nodes[0], sale), cid.entryToken);
  await stream.hears(2);
  const told = (degraded, position) =>
    until(`the stream is told ${position}, degraded ${degraded}`, () => {
      assert.ok(!stream.closed, 'the stream goes on');
      const { data } = stream.last;
      return data.degraded === degraded && data.position === position && data;
    }, 30000);
  process.kill(servicesOf().REDIS_PID, 'SIGSTOP');
  try {
    const shown = await until('a place is degraded', async () => {
      const place = await sale.status(ann.token);
      return place.degraded && place;
    });
    assert.deepEqual([shown.status, shown.reserving], ['ACTIVE', null], 'she holds a seat, which nobody can tell now');
    assertPlace(await told(true, 2));
    query(own.dataDir, "UPDATE queue_entries SET status = 'LEFT', finished_at = 1 WHERE user_id = 'ben'");
    const { totalWaiting } = await told(true, 1);
    assert.equal(totalWaiting, 1);
  } finally {
    process.kill(servicesOf().REDIS_PID, 'SIGCONT');
  }
  await told(undefined, 2); // no node has updated Redis for ben
  assert.equal((await sale.status(ann.token)).reserving, true);
  await own.stop();
});

describe('an event that is changed at one node', sequential, () => {
  const NEWS = '/admin/events/NEWS/2';
  const priced = (price) => concert({ title: `price ${price}`, sections: [{ id: 'A', capacity: 100, price }] });

  test('is in force at the other when the change is answered: made, priced, deleted', async () => {
    for (let round = 0; round < 15; round++) {
      const [here, there] = round % 2 === 0 ? server.nodes : [...server.nodes].reverse();
      assert.equal((await here.admin('PUT', NEWS, priced(100))).status, 201);
      const made = await call(there, 'GET', '/events/NEWS/2');
      assert.deepEqual([made.status, made.json.title], [200, 'price 100'], made.text);
      const sale = new Sale(there, 'NEWS/2');
      const buyer = await sale.buyer('ann');
      assert.equal((await here.admin('PUT', NEWS, priced(200))).status, 200);
      const reservation = await sale.held(buyer);
      assert.equal(reservation.price, 200);
      await sale.cancelled(buyer, reservation.id);
      assert.equal((await here.admin('DELETE', NEWS)).status, 204);
      assert.equal((await call(there, 'GET', '/events/NEWS/2')).status, 404);
    }
  });

  // The state after a node died between its commit and its announcement: a copy of NEWS/1 exists.
  function makeUnannounced(own, id) {
    const like = (table, condition, changes) =>
      `INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(t, jsonb_build_object('id', (SELECT max(id) + 1 FROM ${table}), ${changes}))).* FROM ${table} t WHERE ${condition};`;
    query(own.dataDir, `INSERT INTO audit(at, actor, act, subject, detail) VALUES (1, 'admin', 'event.put', 'NEWS/${id}', '{}');
      ${like('events', "external_id = '1'", `'external_id', '${id}', 'version', (SELECT max(id) FROM audit)`)}
      ${like('sections', "event_id = (SELECT id FROM events WHERE external_id = '1')", `'event_id', (SELECT max(id) FROM events)`)}`);
  }

  test('is asked for in the ledger by a node that has not heard of it, before it says that there is none', async () => {
    const own = await start({ args: ['--queue-tick-ms', '1000'] });
    assert.equal((await own.admin('PUT', '/admin/events/NEWS/1', priced(100))).status, 201);
    for (let id = 2; id < 12; id++) {
      const absent = await own.call('GET', `/gate/NEWS/${id}`);
      assert.equal(absent.status, 404, absent.text);
      makeUnannounced(own, id + 100);
      const [gates, holds] = await Promise.all([
        Promise.all(own.nodes.map((node) => call(node, 'GET', `/gate/NEWS/${id + 100}`))),
        Promise.all(own.nodes.map((node) => call(node, 'POST', '/reservations', { body: { userId: 'ann', eventType: 'NEWS', eventId: String(id + 100), section: 'A', quantity: 1 } }))),
      ]);
      for (const { status, text } of gates) assert.equal(status, 401, text);
      for (const { status, text } of holds) assert.equal(status, 401, text);
    }
    await own.stop();
  });

  test('is noticed when the announcement is lost and no request needs it', sequential, async () => {
    const own = await start({ args: ['--queue-tick-ms', '1000'] });
    assert.equal((await own.admin('PUT', NEWS, priced(1))).status, 201);
    query(own.dataDir, `INSERT INTO audit(at, actor, act, subject, detail) VALUES (1, 'admin', 'event.put', 'NEWS/2', '{}');
      UPDATE events SET title = 'after', version = (SELECT max(id) FROM audit)`);
    for (const node of own.nodes) await until('it is seen', async () => (await call(node, 'GET', '/events/NEWS/2')).json.title === 'after');
    await own.stop();
  });

  test('has its new rules in force as soon as Redis is back, after it could not be notified', sequential, async () => {
    const own = await start({ nodes: 1, args: ['--hot-deadline-ms', '100'] });
    await WaitingRoom.open(own, 'RULES/2', { maxWaiting: 1000 });
    for (const maxWaiting of [11, 12, 13, 14]) {
      redis(own.dataDir, 'CLIENT', 'PAUSE', '1000');
      // The change is written; the counts in the answer are missing because Redis can't be asked.
      const { status, json } = await own.nodes[0].admin('PATCH', '/admin/queue/RULES/2', { maxWaiting });
      assert.deepEqual([status, json.queue.maxWaiting, json.entering, json.degraded, json.waiting], [200, maxWaiting, true, true, undefined]);
      assert.equal(query(own.dataDir, 'SELECT max_waiting FROM events')[0].max_waiting, maxWaiting);
      const rules = () => redis(own.dataDir, 'HGET', 'queue:{RULES:2}:meta', 'rules');
      await until(`Redis has heard of ${maxWaiting}`, async () => rules().includes(`max_waiting=${maxWaiting} `));
    }
    await own.stop();
  });

  test('has its new rules in force everywhere, at once: the hot store has them', async () => {
    const room = await WaitingRoom.open(server, 'RULES/1', { maxActive: 1, maxWaiting: 1000, entryBatchSize: 100 });
    await room.enterAll(users(3));
    const [a, b] = server.nodes;
    const { status } = await a.admin('PATCH', '/admin/queue/RULES/1', { maxWaiting: 2 });
    assert.equal(status, 200);
    assert.equal((await at(b, room).ask('late')).status, 429);
  });
});

describe('an event that is deleted while Redis does not answer', sequential, () => {
  const meta = (own, id, field) => redis(own.dataDir, 'HGET', `queue:{GONE:${id}}:meta`, field);
  const deaf = (own) => redis(own.dataDir, 'CLIENT', 'PAUSE', '1000');

  test('is deleted there too, as soon as it answers again', async () => {
    const own = await start({ args: ['--hot-deadline-ms', '100'] });
    const room = await WaitingRoom.open(own, 'GONE/1', { maxActive: 1 });
    await room.enter('ann');
    deaf(own);
    assert.equal((await own.nodes[0].admin('DELETE', '/admin/events/GONE/1')).status, 204);
    await until('Redis has forgotten it', () => meta(own, 1, 'deleted') === '1' && redis(own.dataDir, 'EXISTS', 'queue:{GONE:1}:entry') === '0');
    await own.stop();
  });

  test('and made again under its name has a queue of its own', async () => {
    const own = await start({ args: ['--hot-deadline-ms', '100', '--queue-tick-ms', '50'] });
    const room = await WaitingRoom.open(own, 'GONE/2', { maxActive: 1 });
    const ann = await room.enter('ann');
    assert.equal(ann.status, 'ACTIVE');
    const before = meta(own, 2, 'key');
    deaf(own);
    const [node] = own.nodes;
    assert.equal((await node.admin('DELETE', '/admin/events/GONE/2')).status, 204);
    assert.equal((await node.admin('PUT', '/admin/events/GONE/2', concert({ queue: { maxActive: 1 } }))).status, 201);
    await until('Redis has heard of the new one', () => meta(own, 2, 'key') !== before);
    const ben = await until('it takes somebody', async () => {
      const answer = await room.ask('ben');
      return answer.status === 200 && answer.json;
    });
    assert.equal(ben.status, 'ACTIVE', 'no user of the old event is in the way');
    const old = await room.server.call('GET', '/queue/GONE/2/status', { headers: bearer(ann.entryToken) });
    assert.notEqual(old.json.status, 'ACTIVE', old.text);
    assert.equal((await room.gate(ann.entryToken)).status, 403);
    await own.stop();
  });
});

// The functions of Redis that a server's nodes call while `act` runs, by name, with how often.
async function callsDuring(own, act) {
  const { number, redisUrl } = homeOf(own.dataDir);
  const monitor = launch(['redis-cli', '-u', redisUrl, 'MONITOR']);
  await until('MONITOR listens', () => monitor.stdout.includes('OK'));
  await act();
  redis(own.dataDir, 'ECHO', 'the end');
  await until('MONITOR has seen it all', () => monitor.stdout.includes('"the end"'));
  process.kill(monitor.pid, 'SIGTERM');
  await monitor.ended;
  const calls = {};
  for (const [, database, name] of monitor.stdout.matchAll(/\[(\d+) [^\]]+:\d+\] "FCALL" "admitone_\d+_(\w+)"/g))
    if (Number(database) === number) calls[name] = (calls[name] ?? 0) + 1;
  return calls;
}

describe('a hundred events', sequential, () => {
  const EVENTS = 100;
  const [TYPE, SEATS] = ['MANY', 10];
  let own;
  before(async () => {
    own = await start({ nodes: 1, args: ['--queue-tick-ms', '50'] });
    const sections = [{ id: 'A', capacity: SEATS }];
    const put = async (i) => assert.equal((await own.nodes[0].admin('PUT', `/admin/events/${TYPE}/${i}`, concert({ sections }))).status, 201);
    await eachOf(Array.from({ length: EVENTS }, (_, i) => i + 1), 8, put);
    await until('no event needs a tick', () => redis(own.dataDir, 'ZCARD', 'admitone:{hot}:ticks') === '1');
  });
  after(() => own.stop());

  test('that have nothing to do are not asked for at every tick', async () => {
    const calls = await callsDuring(own, () => until('some ticks have passed', () => pause(1000).then(() => true)));
    assert.ok(calls.ticks > 0, JSON.stringify(calls));
    for (const name of ['admit', 'due', 'overdue', 'look', 'count']) assert.equal(calls[name], undefined, JSON.stringify(calls));
  });

  test('become busy and idle again: a user waits, is admitted, holds a seat until it ends', async () => {
    const sale = await Sale.open(own, `${TYPE}/awake`, { maxActive: 1, entryIntervalSeconds: 1 }, { holdSeconds: 2, sections: [{ id: 'A', capacity: SEATS }] });
    const [ann, ben] = [await sale.buyer('ann'), await sale.enter('ben')];
    const held = await sale.held(ann, { seats: [3] });
    assert.equal((await sale.leave(ann.token)).status, 204);
    const buyer = { userId: 'ben', token: (await sale.becomes(ben.entryToken, 'ACTIVE')).entryToken };
    const { id } = await sale.held(buyer, { seats: [4] });
    await until('the hold ends by itself', async () => (await sale.get(buyer, id)).json.status === 'EXPIRED');
    assert.equal((await sale.get(ann, held.id)).json.status, 'CANCELLED');
    assert.equal((await sale.leave(buyer.token)).status, 204);
    // Ended events are dropped after a day; until then they need no tick.
    const next = () => Number(redis(own.dataDir, 'ZSCORE', 'admitone:{hot}:ticks', `${TYPE}:awake`));
    await until('it rests', () => next() > Date.now() + 3600000);
  });

  test('cost lists and metrics no call each, and these are right within seconds', async () => {
    const sale = new Sale(own, `${TYPE}/7`);
    const ann = await sale.buyer('ann');
    await sale.held(ann, { quantity: 3 });
    const shown = async () => {
      const { json } = await own.call('GET', `/events?type=${TYPE}&limit=1000`);
      return json.events.find(({ eventId }) => eventId === '7')?.sections[0].available;
    };
    const active = () => own.metric(`admitone_queue_active{event="${TYPE}/7"}`);
    await until('the list shows it', async () => (await shown()) === SEATS - 3);
    await until('metrics show it', async () => (await active()) === 1);
    const calls = await callsDuring(own, async () => {
      for (let i = 0; i < 3; i++) {
        await own.call('GET', '/metrics');
        await shown();
      }
    });
    assert.equal(calls.look ?? calls.count, undefined, JSON.stringify(calls));
    assert.ok((calls.ticked ?? 0) <= 6 && (calls.census ?? 0) <= 6, JSON.stringify(calls));
  });

  test('are not asked for a user\'s reservations where the user has none', async () => {
    const [eight, nine] = [new Sale(own, `${TYPE}/8`), new Sale(own, `${TYPE}/9`)];
    const held = [await nine.held(await nine.buyer('bob'), { quantity: 1 }), await eight.held(await eight.buyer('bob'), { quantity: 2 })];
    const list = async () => (await own.admin('GET', '/reservations?userId=bob')).json.reservations.map(({ id }) => id);
    let listed;
    const calls = await callsDuring(own, async () => (listed = await list()));
    assert.deepEqual(listed, [held[1].id, held[0].id], 'in the order of the events');
    assert.deepEqual([calls.buyer, calls.holds], [1, 2], JSON.stringify(calls));
    await nine.cancelled({ userId: 'bob', token: (await nine.enter('bob')).entryToken }, held[0].id);
    assert.deepEqual(await list(), [held[1].id]);
  });
});

describe('a node that does not go together with the cluster refuses to start, and says why', sequential, () => {
  let own;
  let folder;
  before(async () => {
    own = await start({ nodes: 1 });
    folder = tempFolder();
  });
  after(async () => {
    await own.stop();
    removeFolder(folder);
  });
  const keyFile = (name) => {
    const file = path.join(folder, name);
    if (!fs.existsSync(file)) fs.writeFileSync(file, `${name} ${'x'.repeat(32)}\n`, { mode: 0o600 });
    return file;
  };
  const flags = (...more) => ['serve', '--listen', '127.0.0.1:0', '--data', path.join(folder, 'data'), '--workers', '1', ...nodeFlags(own.dataDir, more), ...more];
  const refused = (why, ...more) => {
    const { status, stderr } = run(flags(...more));
    assert.equal(status, 1, stderr);
    assert.match(stderr, why);
  };
  // One that starts, and is ended at once.
  const starts = async (...more) => {
    const node = launch([BINARY, ...flags(...more)], { env: environment() });
    await until('it listens', () => node.exit !== null || node.stderr.includes('msg=listening'), 30000);
    assert.equal(node.exit, null, node.stderr);
    process.kill(node.pid, 'SIGTERM');
    assert.equal((await node.ended).code, 0, node.stderr);
    return node.stderr;
  };

  test('with another token secret, unless one of the keys is the same', async () => {
    refused(/secret_file is not that of the nodes that run/, '--secret-file', keyFile('new'));
    await starts('--secret-file', keyFile('new'), '--secret-previous-file', path.join(own.dataDir, 'secret'));
    refused(/secret_file is not that of the nodes that run/, '--secret-file', keyFile('third'));
    // Both nodes would know the old key, and neither the other's new one.
    refused(/secret_file is not that of the nodes that run/, '--secret-file', keyFile('third'), '--secret-previous-file', path.join(own.dataDir, 'secret'));
  });

  test('but with another key for passes or for the admin it only warns: these are replaced node by node', async () => {
    const stderr = await starts('--secret-previous-file', keyFile('new'), '--pass-key-file', keyFile('pass'));
    assert.match(stderr, /level=warn msg="a key is not that of the node which started last; .*" setting=pass_key_file/);
    assert.doesNotMatch(stderr, /setting=admin_key_file/);
  });

  test('with another time zone, unless it keeps no rankings', async () => {
    refused(/rankings.time_zone is Asia\/Seoul, and UTC at the nodes that run/, '--rankings-time-zone', 'Asia/Seoul');
    await starts('--rankings-time-zone', 'Asia/Seoul', '--rankings-enabled=false');
  });

  test('with another users.auth, also if confirmBy of no event depends on it', async () => {
    refused(/users\.auth is anonymous, and trusted at the nodes that run/, '--users-auth', 'anonymous');
    refused(/users\.auth is signed, and trusted at the nodes that run/, '--users-auth', 'signed', '--users-key-file', keyFile('users'));
    await starts('--users-auth', 'trusted'); // what auto means on loopback
  });

  test('with another ledger on the same Redis, which the first one keeps', async () => {
    const rebuilds = () => own.metric('admitone_hot_rebuilds_total');
    const before = await rebuilds();
    const { postgresUrl } = homeOf(path.join(folder, 'other'));
    const { status, stderr } = run([...flags().filter((one) => one !== '--ledger' && one !== homeOf(own.dataDir).postgresUrl), '--ledger', postgresUrl]);
    assert.equal(status, 1, stderr);
    assert.match(stderr, /this Redis holds the state of another ledger/);
    assert.equal(await rebuilds(), before);
    assert.equal((await own.call('GET', '/ready')).status, 200);
  });

  test('when all nodes are stopped, another secret, another zone and another users.auth may be chosen', async () => {
    await own.stop();
    await starts('--secret-file', keyFile('new'), '--rankings-time-zone', 'Asia/Seoul', '--users-auth', 'anonymous');
  });
});

test('a third node joins without a restart of the others, and does what they do', async () => {
  const own = await start({ args: ['--queue-tick-ms', '50'] });
  const sale = await Sale.open(own, 'JOIN/1', { maxActive: 2 }, { sections: [{ id: 'A', capacity: 10 }] });
  const [ann, ben] = [await sale.buyer('ann'), await sale.buyer('ben')];
  const waits = await sale.enter('waits');
  const held = await sale.held(ann, { seats: [3] });
  const epoch = () => query(own.dataDir, "SELECT number FROM epochs WHERE name = 'hot'")[0].number;
  const before = epoch();

  const third = await own.join();
  const there = at(third, sale);
  assert.equal(epoch(), before, 'nothing was rebuilt (pitfall 31)');
  assert.deepEqual(await there.counts(), { available: 9, held: 1, confirmed: 0 });
  assert.equal((await there.status(waits.entryToken)).position, 1);
  assert.equal((await there.hold(ben, { seats: [3] })).json.code, 'seat_taken');
  await there.confirmed(ann, held.id);
  await sale.becomes(waits.entryToken, 'ACTIVE');
  const late = await there.enter('late');
  assert.equal(late.status, 'WAITING');

  // The other nodes stop as well; the remaining node does the work.
  await own.nodes[0].stop();
  await own.nodes[1].stop();
  assert.equal((await there.leave(waits.entryToken)).status, 204);
  assert.equal((await there.becomes(late.entryToken, 'ACTIVE')).status, 'ACTIVE');
  await there.held({ userId: 'late', token: late.entryToken }, { seats: [4] });
  assert.deepEqual(await there.counts(), { available: 8, held: 1, confirmed: 1 });
  assertAudit(own.dataDir);
  await own.stop();
});

test('nodes that stop and start again find what is in flight as it was (pitfall 31)', sequential, async () => {
  const own = await start({ args: ['--queue-tick-ms', '50'] });
  const sale = await Sale.open(own, 'AGAIN/1', { maxActive: 3 }, { sections: [{ id: 'A', capacity: 10 }, { id: 'B', capacity: 10, mode: 'seat' }] });
  const buyers = await sale.buyers(3);
  const waits = await sale.enter('waits');
  const [one] = [await sale.held(buyers[0], { seats: [1] }), await sale.held(buyers[1], { section: 'B', seats: [2] })];
  await Promise.all(own.nodes.map((node) => node.stop()));
  const again = await start({ dataDir: own.dataDir, args: ['--queue-tick-ms', '50'] });
  const now = at(again, sale);
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
      const sale = await Sale.open(server, `KEY/${strategy}`, {}, { sections: [{ id: 'A', capacity: 100, mode: MODE_OF[strategy] }], maxPerUser: 2 });
      const ann = await sale.buyer('ann');
      const refusals = () => metric(server, 'admitone_reservation_guard_refusals_total');
      const before = await refusals();
      for (let round = 0; round < 10; round++) {
        const options = { headers: { 'idempotency-key': `${strategy} ${round}` } };
        const ask = (node) => at(node, sale).hold(ann, { quantity: 2, strategy }, options);
        const answers = await Promise.all([...server.nodes, ...server.nodes].map(ask));
        for (const { status, text } of answers) assert.equal(status, 201, text);
        assert.equal(new Set(answers.map(({ json }) => json.id)).size, 1);
        assert.equal(sale.rows().length, round + 1);
        assert.deepEqual(await sale.counts(), { available: 98, held: 2, confirmed: 0 });
        if (round < 9) await sale.cancelled(ann, answers[0].json.id); // with one more she would be over the limit
      }
      assert.equal(await refusals(), before, 'a replay is no refusal');
      await assertHotIsLedger(sale);
    });

  // Another session locks the section's row, so the first request has written its hold and can't
  // commit. The others wait for its rows, or first for the lock if the strategy has one.
  for (const strategy of STRATEGIES)
    test(`${strategy}: and while the first to ask has not committed`, async () => {
      const sale = await Sale.open(server, `SLOW/${strategy}`, {}, { sections: [{ id: 'A', capacity: 100, mode: MODE_OF[strategy] }], maxPerUser: 4 });
      const ann = await sale.buyer('ann');
      const { id } = await sale.held(ann, { quantity: 2, strategy });
      await sale.cancelled(ann, id);
      const refusals = () => metric(server, 'admitone_reservation_guard_refusals_total');
      const before = await refusals();
      const sessions = (where) => `pg_stat_activity WHERE datname = current_database() AND ${where}`;
      const count = (where) => query(server.dataDir, `SELECT count(*) AS n FROM ${sessions(where)}`)[0].n;

      const section = `SELECT s.id FROM sections s JOIN events e ON e.id = s.event_id WHERE e.type = '${sale.type}' AND e.external_id = '${sale.id}'`;
      const lock = `BEGIN; SELECT FROM sections WHERE id = (${section}) FOR UPDATE; SELECT pg_sleep(60)`;
      const psql = launch([PSQL, homeOf(server.dataDir).postgresUrl, '-qAtX', '-c', lock]);
      await until('the row is locked', () => count("wait_event = 'PgSleep'") === 1);
      const ask = (node) => at(node, sale).hold(ann, { quantity: 2, strategy }, { headers: { 'idempotency-key': `slow ${strategy}` } });
      const asked = [...server.nodes, ...server.nodes].map(ask);
      const waiting = /lock$|adaptive/.test(strategy) ? 1 : asked.length;
      await until('they wait for rows', () => count("wait_event_type = 'Lock'") >= waiting);
      query(server.dataDir, `SELECT pg_terminate_backend(pid) FROM ${sessions("wait_event = 'PgSleep'")}`);
      await psql.ended;

      const answers = await Promise.all(asked);
      for (const { status, text } of answers) assert.equal(status, 201, text);
      assert.equal(new Set(answers.map(({ json }) => json.id)).size, 1);
      assert.equal(sale.rows().length, 2);
      assert.equal(await refusals(), before, 'a replay is no refusal');
      await assertHotIsLedger(sale);
    });

  test('confirm and cancel of one hold: one of them wins, and both say so', async () => {
    const sale = await Sale.open(server, 'RACE/1', {}, { sections: [{ id: 'A', capacity: 50 }], maxPerUser: 50, autoEnter: true });
    for (let round = 0; round < 25; round++) {
      const ann = await sale.buyer(`ann${round}`);
      const { id } = await sale.held(ann);
      const verbs = round % 2 === 0 ? ['confirm', 'cancel'] : ['cancel', 'confirm'];
      const answers = await Promise.all(server.nodes.map((node, i) => at(node, sale).finish(ann, verbs[i], id)));
      const confirm = answers[verbs.indexOf('confirm')];
      assert.match(String(confirm.status), /^(200|409)$/, confirm.text);
      assert.equal(answers[verbs.indexOf('cancel')].status, 200, 'what is confirmed can be cancelled');
      await sale.got(ann, id, 'CANCELLED');
    }
    assert.deepEqual(await sale.counts(), { available: 50, held: 0, confirmed: 0 });
    await assertHotIsLedger(sale);
  });
});

describe('distributed-lock over two nodes', () => {
  const WISH = { section: 'S', seats: [1], strategy: 'distributed-lock' };
  const open = (on, name) => Sale.open(on, name, {}, { sections: [{ id: 'S', capacity: 10, mode: 'seat' }], maxPerUser: 10 });

  const asked = (node, count) =>
    until(`${count} have asked`, async () => (await metric(node, 'admitone_reservation_attempts_total', { strategy: 'distributed-lock' })) >= count);

  test('a request at one node waits for the holder at the other, and gets the true result', async () => {
    const own = await start();
    const sale = await open(own, 'LOCK/1');
    const [ann, ben] = await sale.buyers(2);
    const [a, b] = own.nodes;
    holdCommits();
    const first = at(a, sale).hold(ann, WISH);
    await until('the first has the lock', async () => (await metric(a, 'admitone_lock_wait_seconds_count', { strategy: 'distributed-lock' })) === 1);
    const second = at(b, sale).hold(ben, WISH);
    await asked(b, 1);
    await pause(300);
    assert.equal(await metric(b, 'admitone_lock_wait_seconds_count', { strategy: 'distributed-lock' }), 0, 'it waits in line');
    releaseCommits();
    assert.equal((await first).status, 201);
    assert.equal((await second).json.code, 'seat_taken');
    assert.ok((await metric(b, 'admitone_lock_wait_seconds_sum', { strategy: 'distributed-lock' })) >= 0.3, 'it has waited');
    await assertHotIsLedger(sale);
    await own.stop();
  });

  test('a node that stands still past its lease loses the lock, and comes too late with its fence (pitfall 20)', async (t) => {
    const own = await start({ args: ['--lock-lease-ms', '500'] });
    const sale = await open(own, 'LOCK/2');
    const [ann, ben] = await sale.buyers(2);
    const [a, b] = own.nodes;
    const seen = {};
    for (let round = 0; round < 6; round++) {
      const holding = at(a, sale).hold(ann, WISH);
      await pause(round); // sometimes before it has the lock, sometimes in the middle of its write
      a.signal('SIGSTOP');
      const other = at(b, sale).hold(ben, WISH);
      const answer = await other;
      a.signal('SIGCONT');
      const both = [await holding, answer];
      const won = both.filter(({ status }) => status === 201);
      // PostgreSQL ends a session that is idle in a transaction: then nothing was changed, too.
      for (const one of both) if (one.status !== 201) assert.match(one.json.code, /^(seat_taken|conflict|lock_timeout|lock_lost|ledger_failed)$/, one.text);
      assert.ok(won.length <= 1, 'one seat, one owner');
      const rows = sale.rows().filter(({ status }) => status === 'HELD');
      assert.deepEqual(rows.map(({ id }) => id), won.map(({ json }) => json.id));
      const what = both.map(({ status, json }) => (status === 201 ? 'held' : json.code)).join(' / ');
      seen[what] = (seen[what] ?? 0) + 1;
      for (const [i, who] of [ann, ben].entries()) if (both[i].status === 201) await sale.cancelled(who, both[i].json.id);
    }
    t.diagnostic(JSON.stringify(seen));
    await assertHotIsLedger(sale);
    assertAudit(own.dataDir);
    await own.stop();
  });
});

test('a place that its node took and could not finish is finished by another (pitfall 13)', async () => {
  const own = await start({ args: ['--queue-tick-ms', '50', '--ledger-deadline-ms', '1000'] });
  const room = await WaitingRoom.open(own, 'DEAD/1', { maxActive: 5, maxWaiting: 30, entryBatchSize: 1000 });
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
  // Every acknowledged place exists, and no other one is in the way for long.
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

test('a place that a confirmation completed ends in Redis too, though its node died when Redis knew of the seats only', sequential, async () => {
  const own = await start({ args: ['--queue-tick-ms', '50'] });
  const sale = await Sale.open(own, 'DEAD/2', { maxActive: 1 });
  const ann = await sale.buyer('ann');
  const held = await sale.held(ann, { seats: [1] });
  const seq = redis(own.dataDir, 'HGET', 'queue:{DEAD:2}:user', 'ann');
  const entry = redis(own.dataDir, 'HGET', 'queue:{DEAD:2}:entry', seq);
  await sale.confirmed(ann, held.id);
  const told = () => query(own.dataDir, "SELECT relayed_at FROM facts WHERE kind = 'CONFIRMED'")[0].relayed_at !== null;
  await until('the confirmation is relayed', told);

  // Restores the ACTIVE place in Redis, as if no node had ended it; then confirms again.
  redis(own.dataDir, 'HSET', 'queue:{DEAD:2}:entry', seq, entry);
  redis(own.dataDir, 'HSET', 'queue:{DEAD:2}:user', 'ann', seq);
  redis(own.dataDir, 'ZREM', 'queue:{DEAD:2}:ended', seq);
  redis(own.dataDir, 'ZADD', 'queue:{DEAD:2}:active', Date.now() + 600000, seq);
  await sale.confirmed(ann, held.id);
  const ben = await sale.enter('ben');
  assert.equal(ben.status, 'WAITING');
  query(own.dataDir, "UPDATE facts SET relayed_at = NULL WHERE kind = 'CONFIRMED'");
  await sale.becomes(ben.entryToken, 'ACTIVE');
  assert.equal((await sale.status(ann.token)).status, 'COMPLETED');
  assert.notEqual((await sale.enter('ann')).entryToken, ann.token);
  await own.stop();
});

// Calls functions of the library in the name of an unknown node, so the replies are lost. All at once.
function callAsNobody(dataDir, event, commands) {
  const part = (name) => `queue:{${event}}:${name}`;
  const keys = ['meta', 'seq', 'user', 'entry', 'waiting', 'active', 'pending', 'seen', 'ended', 'offers'].map(part);
  keys.push(`section:{${event}}:counts`, `limit:{${event}}`, `limit:{${event}}:reserving`, `claim:{${event}}:pending`, `claim:{${event}}:due`);
  keys.push('admitone:{hot}:ticks', 'admitone:{hot}:ticked');
  const known = [redis(dataDir, 'HGET', 'admitone:{hot}:incarnation', 'epoch'), redis(dataDir, 'HGET', part('meta'), 'key')];
  const fcall = (name, ...args) => `FCALL ${REDIS_LIBRARY}_${name} ${keys.length} ${[...keys, ...known, 0, 'nobody', ...args].join(' ')}`;
  const lines = ['MULTI', ...commands(fcall, part), 'EXEC'];
  const { stdout, error } = spawnSync('redis-cli', ['-u', homeOf(dataDir).redisUrl], { input: `${lines.join('\n')}\n`, encoding: 'utf8', timeout: 60000 });
  assert.ifError(error);
  assert.doesNotMatch(stdout, /ERR/, stdout);
}

test('places that a node took and could not finish are undone together', sequential, async () => {
  const own = await start({ nodes: 1, args: ['--queue-tick-ms', '50', '--ledger-deadline-ms', '1000'] });
  const room = await WaitingRoom.open(own, 'DEAD/3', { maxActive: 1, maxWaiting: 1000 });
  await room.enter('first');
  const many = users(200);
  const commits = () => own.metric('admitone_ledger_commit_seconds_count');
  const before = await commits();
  callAsNobody(own.dataDir, 'DEAD:3', (fcall) => many.map((user) => fcall('enter', user, 8, 0)));
  assert.equal((await room.numbers()).waiting, 200);
  await until('all are undone', async () => (await room.numbers()).waiting === 0, 30000);
  assert.equal(await own.metric('admitone_hot_finished_total{what="enter"}'), 200);
  const took = (await commits()) - before;
  assert.ok(took < 100, `${took} commits`);
  await own.stop();
});

test('an expiry that was reported to no node reaches the ledger, and a place that had ended before is shown as it ended', sequential, async () => {
  const own = await start({ nodes: 1, args: ['--queue-tick-ms', '50', '--ledger-deadline-ms', '1000'] });
  const room = await WaitingRoom.open(own, 'SILENT/1', { maxActive: 10, entryBatchSize: 100 });
  const places = await room.enterAll(['ann', 'ben', 'cat']);
  const [ann, ben, cat] = places.map(({ entryToken }) => entryToken);
  const key = (part) => `queue:{SILENT:1}:${part}`;
  const seqs = ['ann', 'ben', 'cat'].map((user) => redis(own.dataDir, 'HGET', key('user'), user));
  query(own.dataDir, "UPDATE queue_entries SET status = 'COMPLETED', finished_at = admitted_at WHERE user_id = 'ben'");
  query(own.dataDir, "UPDATE queue_entries SET status = 'LEFT', finished_at = admitted_at WHERE user_id = 'cat'");

  // Their time is over, and this client, which is not a node, ends them.
  callAsNobody(own.dataDir, 'SILENT:1', (fcall, part) => [...seqs.map((seq) => `ZADD ${part('active')} 1 ${seq}`), fcall('admit')]);
  const live = () => query(own.dataDir, "SELECT 1 AS one FROM queue_entries WHERE status = 'ACTIVE'").length;
  assert.equal((await room.status(ann)).status, 'EXPIRED');
  await until('the ledger has heard of it', () => live() === 0, 20000);
  assert.deepEqual(query(own.dataDir, 'SELECT status FROM queue_entries ORDER BY seq').map(({ status }) => status), ['EXPIRED', 'COMPLETED', 'LEFT']);
  await until('Redis shows what the ledger has', async () => {
    const shown = await Promise.all([ann, ben, cat].map(async (token) => (await room.status(token)).status));
    return shown.join() === 'EXPIRED,COMPLETED,LEFT';
  }, 20000);
  assert.equal(redis(own.dataDir, 'ZCARD', key('pending')), '0');
  await own.stop();
});

test('a user whose place Redis can\'t show any more is not answered that nothing was changed', sequential, async () => {
  const own = await start({ nodes: 1, args: ['--queue-tick-ms', '50'] });
  const room = await WaitingRoom.open(own, 'LOST/1', { maxActive: 5 });
  holdCommits();
  const asked = room.ask('ann');
  await until('the place is taken', async () => redis(own.dataDir, 'HGET', 'queue:{LOST:1}:user', 'ann') !== '');
  await pause(100); // its record is under way
  assert.equal(spawnSync(SERVICES, ['stop', servicesOf().SERVICES_DIR, 'redis'], { timeout: 60000 }).status, 0);
  releaseCommits();
  const { status, json } = await asked;
  assert.equal(spawnSync(SERVICES, ['start', 'redis', '--dir', servicesOf().SERVICES_DIR], { timeout: 90000 }).status, 0);
  assert.deepEqual([status, json.code], [503, 'hot_unknown']);
  assert.doesNotMatch(json.detail, /nothing was changed/i);
  assert.equal(entriesOf(room).length, 1);
  await until('the place is shown', async () => (await room.ask('ann')).status === 200);
  assert.equal(entriesOf(room).length, 1, 'it is the same');
  await own.stop();
});

describe('a Redis that refuses writes is shown, by every node, until it takes them again', sequential, () => {
  const ready = (node) => call(node, 'GET', '/ready');
  const shown = (own, state) =>
    until(`every node shows ${state}`, async () => (await Promise.all(own.nodes.map(ready))).every(({ json }) => json.hot === state), 20000);
  const states = async (node) =>
    Object.fromEntries([...(await call(node, 'GET', '/metrics')).text.matchAll(/^admitone_hot_state\{state="(\w+)"\} (\d)$/gm)].map(([, name, value]) => [name, Number(value)]));
  const set = (own, ...words) => assert.equal(redis(own.dataDir, 'CONFIG', 'SET', ...words), 'OK');
  const none = { ok: 0, oom: 0, misconf: 0, noreplicas: 0, readonly: 0 };

  test('at maxmemory no new user is accepted, and leaving, confirming, cancelling and admission go on', async () => {
    const own = await start({ args: ['--queue-tick-ms', '50'] });
    const sale = await Sale.open(own, 'FULL/1', { maxActive: 3 }, { sections: [{ id: 'A', capacity: 10 }] });
    const [ann, ben, cat] = [await sale.buyer('ann'), await sale.buyer('ben'), await sale.buyer('cat')];
    const [bought, given] = [await sale.held(ann, { seats: [1] }), await sale.held(ben, { seats: [2] })];
    const [dan, eve] = await sale.enterAll(['dan', 'eve']);
    assert.deepEqual([dan.status, eve.status], ['WAITING', 'WAITING']);

    set(own, 'maxmemory', '1');
    await shown(own, 'oom'); // without any request
    for (const node of own.nodes) {
      const { status, json } = await ready(node);
      assert.deepEqual([status, json.ready], [200, true]);
      assert.deepEqual(await states(node), { ...none, oom: 1 });
      const refused = await at(node, sale).ask('flo');
      assertProblem(refused, 503, 'hot_full');
      assertProblem(await at(node, sale).hold(cat, { seats: [3] }), 503, 'hot_full');
    }
    assert.equal((await sale.leave(cat.token)).status, 204);
    await sale.becomes(dan.entryToken, 'ACTIVE');
    await sale.cancelled(ben, given.id);
    await sale.confirmed(ann, bought.id); // which completes her place
    await sale.becomes(eve.entryToken, 'ACTIVE');
    assert.equal((await sale.status(cat.token)).status, 'LEFT');
    assert.equal((await sale.map()).seats, 'CAAAAAAAAA');
    await assertHotIsLedger(sale);

    set(own, 'maxmemory', '0');
    await shown(own, 'ok');
    assert.deepEqual(await states(own.nodes[0]), { ...none, ok: 1 });
    assert.equal((await sale.ask('flo')).status, 202);
    for (const { stderr } of own.nodes) {
      assert.equal(stderr.match(/msg="redis refuses writes" state=oom/g).length, 1, stderr);
      assert.equal(stderr.match(/msg="redis accepts writes again"/g).length, 1, stderr);
    }
    await own.stop();
  });

  test('without enough replicas, and as a replica itself, every write is refused, and reads go on', async () => {
    const own = await start({ args: ['--queue-tick-ms', '50'] });
    const room = await WaitingRoom.open(own, 'FULL/2', { maxActive: 1 });
    const [ann, ben] = await room.enterAll(['ann', 'ben']);
    const waits = async () => {
      assert.equal((await ready(own.nodes[0])).status, 200);
      assertProblem(await room.ask('cat'), 503, 'hot_unavailable');
      assert.equal((await room.status(ben.entryToken)).position, 1);
    };
    set(own, 'min-replicas-to-write', '1');
    await shown(own, 'noreplicas');
    await waits();
    assert.equal((await room.leave(ann.entryToken)).status, 204);
    set(own, 'min-replicas-to-write', '0');
    await shown(own, 'ok');
    await room.becomes(ben.entryToken, 'ACTIVE'); // Redis is updated about the user who has left
    const cat = await room.enter('cat');

    redis(own.dataDir, 'REPLICAOF', '127.0.0.1', '1');
    await shown(own, 'readonly');
    assert.equal((await ready(own.nodes[0])).status, 200);
    assert.deepEqual(await states(own.nodes[0]), { ...none, readonly: 1 });
    assertProblem(await room.ask('dan'), 503, 'hot_unavailable');
    redis(own.dataDir, 'REPLICAOF', 'NO', 'ONE');
    await shown(own, 'ok');
    const found = await until('her place is found again', async () => (await room.ask('cat')).json.entryToken, 20000);
    assert.equal(found, cat.entryToken);
    await own.stop();
  });
});

// The identity changes as after a failover to a replica. It may change under an open connection, too.
test('while PostgreSQL is read-only no node is ready, idle or not, and all are soon after', sequential, async () => {
  const room = await WaitingRoom.open(server, 'READONLY/1');
  const readies = () => Promise.all(server.nodes.map((node) => node.call('GET', '/ready')));
  const isReadOnly = ({ status, json }) => status === 503 && json.ready === false && json.ledger === 'readonly';
  const areReady = async () => (await readies()).every(({ status }) => status === 200);
  // The tests before have restarted this Redis and made it a replica: it may still be rebuilt.
  await until('Redis is rebuilt', async () => (await areReady()) && (await room.ask('first')).status < 300);
  setReadOnly(true);
  try {
    await until('no node is ready', async () => (await readies()).every(isReadOnly));
    const refused = await room.ask('ann');
    assert.deepEqual([refused.status, refused.json.code], [503, 'ledger_failed']);
    for (let i = 0; i < 20; i++) {
      for (const ready of await readies()) assert.ok(isReadOnly(ready), `a write changes nothing of that: ${ready.text}`);
      await pause(20);
    }
  } finally {
    setReadOnly(false);
  }
  await until('all nodes are ready', areReady);
  assert.equal((await room.ask('ann')).status, 200);
});

describe('what the stores hold and no node has written', sequential, () => {
  let own;
  before(async () => (own = await start({ nodes: 1 })));
  after(() => own.stop());
  const runs = async () => assert.equal((await own.call('GET', '/health')).status, 200);

  test('is no answer to a repeated request', async () => {
    const sale = await Sale.open(own, 'ODD/1', {}, { sections: [{ id: 'A', capacity: 10 }] });
    const buyer = await sale.buyer('ann');
    const again = () => sale.hold(buyer, { quantity: 1 }, { headers: { 'idempotency-key': 'one' } });
    const first = await again();
    assert.equal(first.status, 201);
    query(own.dataDir, 'UPDATE idempotency SET reservation_id = gen_random_uuid()');
    assert.equal((await again()).status, 503);
    query(own.dataDir, "UPDATE idempotency SET reservation_id = NULL, response = 'odd'");
    assert.equal((await again()).status, 503);
    query(own.dataDir, `UPDATE idempotency SET reservation_id = '${first.json.id}'`);
    await until('it is answered again', async () => (await again()).status === 201);
    await runs();
  });

  test('is no time of a place', async () => {
    const room = await WaitingRoom.open(own, 'ODD/2', { maxActive: 1, tokenTtlSeconds: 0 });
    await room.enter('ann');
    const entries = 'queue:{ODD:2}:entry';
    const [seq, packed] = redis(own.dataDir, 'HGETALL', entries).split('\n');
    const words = packed.split(' ');
    redis(own.dataDir, 'HSET', entries, seq, [...words.slice(0, 2), '-5', ...words.slice(3)].join(' '));
    assert.equal((await room.ask('ann')).status, 500);
    redis(own.dataDir, 'HSET', entries, seq, packed);
    assert.equal((await room.ask('ann')).status, 200);
    await runs();
  });

  test('is passed over by rankings, which count the rest', async () => {
    const sale = await Sale.open(own, 'ODD/3', {}, { sections: [{ id: 'A', capacity: 10 }] });
    query(own.dataDir, "INSERT INTO facts(kind, event_id, seat_count, at, relayed_at) SELECT 'SOLD_OUT', id, 0, -1, 1 FROM events WHERE external_id = '3'");
    await sale.held(await sale.buyer('ann'));
    await until('it is counted', async () => (await own.call('GET', '/rankings/daily/ODD/3')).json.reservationCount === 1);
    assert.match(own.stderr, /msg="ignored a fact whose time or number of seats is not valid/);
    query(own.dataDir, 'DELETE FROM facts WHERE at = -1');
  });

  test('keeps no node from starting: a deleted event with a name that none may have', async () => {
    await own.admin('PUT', '/admin/events/ODD/4', concert());
    assert.equal((await own.admin('DELETE', '/admin/events/ODD/4')).status, 204);
    query(own.dataDir, "UPDATE events SET type = 'bad name' WHERE external_id = '4'");
    const second = await own.join();
    assert.match(second.stderr, /msg="ignored a deleted event whose name or version is not valid"/);
    assert.equal((await second.call('GET', '/ready')).status, 200);
    await second.stop();
  });
});

test('admitone audit finds nothing wrong with all that, while the nodes run', async () => {
  let audit;
  // 2: Redis was restarted and is being rebuilt.
  await until('it can look', () => (audit = run(['audit', ...storeFlags(server.dataDir)], { timeoutMs: 60000 })).status !== 2);
  assert.equal(audit.status, 0, audit.stdout + audit.stderr);
  assert.match(audit.stdout, /PostgreSQL at 127\.0\.0\.1/);
  assert.match(audit.stdout, /\d+ checks, 0 violations/);
});

test('the threads of a node have names that say what they do', async () => {
  for (const pid of server.pids) {
    const tasks = `/proc/${pid}/task`;
    const names = readdirSync(tasks).map((task) => readFileSync(`${tasks}/${task}/comm`, 'utf8').trim());
    for (const name of ['worker 0', 'ledger', 'ledger read 0', 'ledger pool 0', 'ledger wait 0', 'ledger acts 0', 'hot rebuilder', 'reconcile', 'retention', 'redis listener', 'signals'])
      assert.ok(names.includes(name), `${name} of ${names}`);
  }
});
