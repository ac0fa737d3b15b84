// Requests that wait for locks: they delay no other request, each wait ends in time, and a stalled
// holder does no damage (docs/pitfalls.md, 19 to 21).
import assert from 'node:assert/strict';
import { assertHotIsLedger, audit, Sale, metric } from './support/reservations.mjs';
import { assertAudit, keepAlive, users } from './support/queue.mjs';
import { assertProblem, isCluster, pause, start, test, until } from './support/server.mjs';
import { shimmed, withShim } from './support/shim.mjs';

const HALL = {
  maxPerUser: 1000,
  sections: [{ id: 'L', capacity: 1000, mode: 'lock' }, { id: 'S', capacity: 1000, mode: 'seat' }, { id: 'N', capacity: 1000, mode: 'slot' }],
};
const LOCKING = ['lock', 'distributed-lock'];

// A request that needs the section's lock, or those of some seats.
const anyOfL = { section: 'L', quantity: 1 };
const seatsOfS = (...seats) => ({ section: 'S', seats, strategy: 'distributed-lock' });

const outcomes = (server, strategy, outcome) => metric(server, 'admitone_reservation_outcomes_total', { strategy, outcome });
const attempts = (server, strategy) => metric(server, 'admitone_reservation_attempts_total', { strategy });
const waits = (server, strategy) => metric(server, 'admitone_lock_wait_seconds_count', { strategy });
const waitedSeconds = (server, strategy) => metric(server, 'admitone_lock_wait_seconds_sum', { strategy });

// Users whose holds were answered with 201 have these seats, and all other seats are free.
function assertTrue(sale, requests) {
  const rows = new Map(sale.rows().map((row) => [row.user_id, row]));
  for (const { user, answer } of requests) {
    const row = rows.get(user.userId);
    if (answer.status !== 201) {
      assert.equal(row, undefined, `${user.userId} was refused, and has seats`);
      continue;
    }
    assert.equal(row?.id, answer.json.id, user.userId);
    assert.deepEqual([row.status, row.seats], ['HELD', answer.json.seats.join(',')], user.userId);
  }
  const seats = [...rows.values()].flatMap((row) => row.seats.split(',').map((seat) => `${row.section_id}/${seat}`));
  assert.equal(new Set(seats).size, seats.length, 'a seat was sold twice');
}

// ---- other requests do not wait ----

// The median, which a pause of the machine does not move.
const middle = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];

// The median time of each request that needs no lock, in ms. `who`: a user with a place.
async function measure(sale, who, durationMs, what = ['enter', 'status', 'events']) {
  const agent = keepAlive(1);
  const asks = {
    enter: (i) => sale.enter(`new-${sale.name}-${performance.now()}-${i}`, { agent }),
    status: () => sale.status(who.token, { agent }),
    events: () => sale.server.call('GET', '/events', { agent }),
  };
  const times = Object.fromEntries(what.map((name) => [name, []]));
  const end = performance.now() + durationMs;
  for (let i = 0; performance.now() < end || i < 30; i++) {
    for (const name of what) {
      const began = performance.now();
      await asks[name](i);
      times[name].push(performance.now() - began);
    }
    await pause(2);
  }
  agent.release();
  return Object.fromEntries(what.map((name) => [name, middle(times[name])]));
}

// The requests that became slower, with a margin for a busy machine.
const slower = (before, during, roomMs) => Object.keys(before).filter((what) => during[what] > 3 * before[what] + roomMs);

// Keeps lines of waiting requests: every user releases a seat at once and requests it again. Stops at
// `end`.
class Lines {
  constructor(sale, buyers, wishOf) {
    this.owners = new Map();
    this.seen = {};
    this.end = false;
    this.agent = keepAlive(buyers.length);
    this.done = Promise.all(buyers.map((buyer, i) => this.#loop(sale, buyer, wishOf(i))));
    this.done.catch(() => {}); // it is waited for below
  }

  async #loop(sale, buyer, wish) {
    while (!this.end) {
      const answer = await sale.hold(buyer, wish, { agent: this.agent });
      const what = answer.status === 201 ? 'held' : answer.json?.code;
      this.seen[what] = (this.seen[what] ?? 0) + 1;
      if (answer.status !== 201) {
        assertRefusal(answer);
        await pause(2);
        continue;
      }
      const { id, section, seats } = sale.reservation(answer, 'HELD');
      const names = seats.map((seat) => `${section}/${seat}`);
      for (const name of names) {
        assert.ok(!this.owners.has(name), `${name} is ${this.owners.get(name)}'s and ${buyer.userId}'s`);
        this.owners.set(name, buyer.userId);
      }
      await pause(0); // lets another user get the same answer
      for (const name of names) this.owners.delete(name);
      await sale.cancelled(buyer, id, { agent: this.agent });
    }
  }

  async stop() {
    this.end = true;
    await this.done;
    this.agent.release();
  }
}

function assertRefusal(answer) {
  assert.equal(answer.status, 409, answer.text);
  assert.match(answer.json.code, /^(seat_taken|conflict|lock_timeout|lock_lost)$/);
}

const withLocks = (i) => (i % 2 === 0 ? anyOfL : seatsOfS(1));
const withoutLocks = (i) => ({ section: 'N', ...(i % 2 === 0 ? { quantity: 1 } : { seats: [1] }) });

test('locks that are fought over leave enter, status and /events as quick as they were', async (t) => {
  const server = await start();
  const sale = await Sale.open(server, 'WAIT/1', {}, HALL);
  const buyers = await sale.buyers(48);
  const tell = (what, times) => t.diagnostic(`median in ms ${what}: ${JSON.stringify(times)}`);
  const among = async (wishOf) => {
    const lines = new Lines(sale, buyers, wishOf);
    const times = await measure(sale, buyers[0], 2000);
    await lines.stop();
    return times;
  };
  const waited = () => Promise.all(LOCKING.map(async (strategy) => ({ strategy, count: await waits(server, strategy), s: await waitedSeconds(server, strategy) })));

  // A machine with other work is slow at times: of three tries one is enough, and where it is slow
  // with such a crowd anyway, that is what counts. A worker that waited with its clients would fail
  // each.
  let delayed;
  for (let round = 1; round <= 3; round++) {
    const before = await measure(sale, buyers[0], 1000);
    const earlier = await waited();
    const during = await among(withLocks);
    for (const [i, { strategy, count, s }] of (await waited()).entries()) {
      const [times, seconds] = [count - earlier[i].count, s - earlier[i].s];
      t.diagnostic(`${strategy}: ${times} waits of ${((seconds / times) * 1000).toFixed(1)} ms`);
      // 24 requests at a time: there was always a line.
      assert.ok(times > 20 && seconds > 2, `${strategy}: ${times} waits, ${seconds} s together`);
    }
    tell('before', before);
    tell('with locks', during);
    delayed = slower(before, during, 50);
    if (delayed.length === 0) break;
    const crowded = await among(withoutLocks);
    tell('with the crowd, without locks', crowded);
    delayed = slower(crowded, during, 50);
    if (delayed.length === 0) break;
  }
  assert.deepEqual(delayed, [], 'slower than before');
  await assertHotIsLedger(sale);
  audit(server);
  await server.stop();
});

// ---- lines that do not move: while syncs are delayed, the first request keeps its lock ----

// A sale with `count` users who want to buy.
async function saleOf(server, name, count) {
  const sale = await Sale.open(server, name, {}, HALL);
  sale.next = await Promise.all(users(count).map((user) => sale.buyer(user)));
  return sale;
}

// That many of them send a request, one after the other: when this returns, the first has the lock and
// the others wait in this order. Each is { user, answer, ms }, when it is answered; all() waits for
// that.
async function line(sale, count, wish) {
  const { server } = sale;
  const strategy = wish.strategy ?? 'lock';
  const requests = [];
  for (const user of sale.next.splice(0, count)) {
    const before = await attempts(server, strategy);
    const request = { user, answer: null };
    const began = performance.now();
    request.sent = sale.hold(user, wish).then(
      (answer) => Object.assign(request, { answer, ms: performance.now() - began }),
      (error) => Object.assign(request, { error }),
    );
    requests.push(request);
    await until('it is under way', async () => (await attempts(server, strategy)) === before + 1);
  }
  return requests;
}

const all = (requests) => Promise.all(requests.map(({ sent }) => sent));
const codes = (requests) => requests.map(({ answer, error }) => error?.code ?? (answer?.status === 201 ? 'held' : answer?.json.code));

test('locks that are held, with a line for each, delay neither status nor /events, and are kept until the commit (pitfall 19)', () =>
  withShim(async (server) => {
    const sale = await saleOf(server, 'WAIT/2', 17);
    const [who] = sale.next.splice(0, 1);
    const reads = ['status', 'events'];
    const before = await measure(sale, who, 1000, reads);
    server.hold();
    const ofL = await line(sale, 8, anyOfL);
    const ofS = await line(sale, 8, seatsOfS(1));
    const linedUp = performance.now();
    const during = await measure(sale, who, 1500, reads);
    assert.deepEqual(slower(before, during, 250), [], `${JSON.stringify(before)}, then ${JSON.stringify(during)}`);
    assert.ok([...ofL, ...ofS].every(({ answer }) => answer === null), 'they wait all the time');
    // The lock client has renewed the leases of the holders: no other request got a lock.
    for (const strategy of LOCKING) assert.equal(await waits(server, strategy), 1, strategy);
    const heldSeconds = (performance.now() - linedUp) / 1000;
    server.release();
    await all([...ofL, ...ofS]);
    assert.deepEqual(codes(ofL), Array(8).fill('held'));
    assert.deepEqual(codes(ofS), ['held', ...Array(7).fill('seat_taken')], 'in order of arrival');
    for (const strategy of LOCKING) assert.ok((await waitedSeconds(server, strategy)) > 7 * heldSeconds, strategy);
    assertTrue(sale, [...ofL, ...ofS]);
    await assertHotIsLedger(sale);
    audit(server);
  }));

test('a request that waits for longer than lock.wait_ms gets 409, in time, and the lock works as before (pitfall 21)', () =>
  withShim(async (server) => {
    const sale = await saleOf(server, 'WAIT/3', 26);
    server.hold();
    const ofL = await line(sale, 12, anyOfL);
    const ofS = await line(sale, 12, seatsOfS(1));
    const late = [...ofL.slice(1), ...ofS.slice(1)];
    await all(late);
    for (const { answer, ms } of late) {
      assertProblem(answer, 409, 'lock_timeout');
      // The server uses whole milliseconds: a part of the first one may have passed already.
      assert.ok(ms > 49, `${ms} ms`);
    }
    assert.deepEqual([ofL[0].answer, ofS[0].answer], [null, null], 'they have the locks');
    for (const strategy of LOCKING) assert.equal(await outcomes(server, strategy, 'lock_timeout'), 11);
    server.release();
    await all([ofL[0], ofS[0]]);
    assert.deepEqual(codes([ofL[0], ofS[0]]), ['held', 'held']);
    assertTrue(sale, [...ofL, ...ofS]);

    for (const wish of [anyOfL, seatsOfS(2)]) await sale.held(sale.next.pop(), wish);
    assert.equal(await metric(server, 'admitone_http_responses_total', { class: '5xx' }), 0);
    await assertHotIsLedger(sale);
    audit(server);
  }, ['--lock-wait-ms', '50']));

test('SIGTERM while lines wait for locks: requests in line are answered at once, holders when they are done', async () => {
  const server = await shimmed();
  const sale = await saleOf(server, 'WAIT/4', 24);
  server.hold();
  const ofL = await line(sale, 12, anyOfL);
  const ofS = await line(sale, 12, seatsOfS(1));
  server.signal('SIGTERM');
  const inLine = [...ofL.slice(1), ...ofS.slice(1)];
  await all(inLine);
  for (const { answer } of inLine) assertProblem(answer, 503, 'stopping');
  assert.deepEqual([ofL[0].answer, ofS[0].answer], [null, null], 'not on disk yet');
  server.release();
  await all([ofL[0], ofS[0]]);
  assert.deepEqual(codes([ofL[0], ofS[0]]), ['held', 'held'], 'what was under way is answered');
  await server.ended;
  assertTrue(sale, [...ofL, ...ofS]);
  assertAudit(server.dataDir);
  await server.stop();
});

// ---- a stopped process ----

const LEASE_MS = 1000;
// On a cluster, a record that is not written within the deadline is answered, or finished by other
// nodes.
const STANDING = ['--lock-lease-ms', String(LEASE_MS), '--ledger-deadline-ms', '30000'];

async function standStill(server, ms) {
  server.signal('SIGSTOP');
  await pause(ms);
  server.signal('SIGCONT');
}

test('a process that stands still for longer than lock.lease_ms: two have the lock, one gets the seat (pitfalls 19 and 20)', () =>
  withShim(async (server) => {
    const sale = await saleOf(server, 'WAIT/5', 20);
    server.hold();
    const ofL = await line(sale, 4, anyOfL);
    const ofS = await line(sale, 4, seatsOfS(1));
    await pause(3 * LEASE_MS);
    for (const strategy of LOCKING) assert.equal(await waits(server, strategy), 1, 'the watchdog renews what is held');

    await standStill(server, 2 * LEASE_MS);
    for (const strategy of LOCKING) await until('the next one has it', async () => (await waits(server, strategy)) >= 2);
    assert.ok([...ofL, ...ofS].every(({ answer }) => answer === null), 'though the first is not done');
    server.release();
    await all([...ofL, ...ofS]);
    assert.deepEqual(codes(ofL), Array(4).fill('held'), 'each another seat');
    assert.equal(codes(ofS).filter((code) => code === 'held').length, 1, `${codes(ofS)}`);
    for (const { answer } of ofS) if (answer.status !== 201) assertRefusal(answer);
    assertTrue(sale, [...ofL, ...ofS]);
    await assertHotIsLedger(sale);
    audit(server);
  }, STANDING));

// Four users who want a seat, or the seat before it, or both. `late` has the lock of the first seat
// and loses it to `next` while it waits for the lock of the second, which passes from `other` to
// `between` and to `late`.
const FOUR = ['other', 'between', 'late', 'next'];
// The final fences of both seats. On a cluster `late` may get the second lock before `between`: the
// locks skip a silent worker, and after a stall all workers were silent.
const FENCES = { other: [0, 1], between: [0, 2], late: [1, 3], next: [2, 0] };
const OVERTAKEN = { ...FENCES, between: [0, 3], late: [1, 2] };

// The answers of the requests that write in this order: a request whose fence is lower than the seat's
// is too late; otherwise it is refused if the seat is taken.
function toldOf(order, fences) {
  const seen = [0, 0];
  const taken = [false, false];
  const told = {};
  for (const who of order) {
    const wants = [0, 1].filter((seat) => fences[who][seat] > 0);
    if (wants.some((seat) => seen[seat] > fences[who][seat])) told[who] = 'lock_lost';
    else if (wants.some((seat) => taken[seat])) told[who] = 'seat_taken';
    else told[who] = 'held';
    if (told[who] === 'held') for (const seat of wants) [seen[seat], taken[seat]] = [fences[who][seat], true];
  }
  return FOUR.map((who) => told[who]).join(' ');
}

const orders = (all) => (all.length === 0 ? [[]] : all.flatMap((one) => orders(all.filter((other) => other !== one)).map((rest) => [one, ...rest])));

// One process gives locks by order of arrival, and its ledger writes in that of the locks. PostgreSQL
// writes such holds on several connections, in no order; what the fences allow is so all the same.
const POSSIBLE = new Set(
  isCluster
    ? [FENCES, OVERTAKEN].flatMap((fences) => orders(FOUR).map((order) => toldOf(order, fences)))
    : [toldOf(['other', 'between', 'next', 'late'], FENCES)],
);

test('a request that lost a lock while waiting for another comes too late, and the ledger refuses it (pitfall 20)', (t) =>
  withShim(async (server) => {
    const sale = await saleOf(server, 'WAIT/6', 16);
    // How many requests got a lock, and how many of them went on to write.
    const had = async (locks, writes) =>
      (await waits(server, 'distributed-lock')) >= locks && (await metric(server, 'admitone_ledger_queue_depth')) >= writes;
    server.hold();
    const groups = [];
    for (let seat = 1; seat <= 8; seat += 2) {
      const [other] = await line(sale, 1, seatsOfS(seat + 1));
      await until('it has the second lock', () => had(groups.length * 2 + 1, 0));
      const [between] = await line(sale, 1, seatsOfS(seat + 1));
      const [late] = await line(sale, 1, seatsOfS(seat, seat + 1));
      await until('it has the first lock', () => had(groups.length * 2 + 2, 0));
      const [next] = await line(sale, 1, seatsOfS(seat));
      groups.push([other, between, late, next]);
    }
    await until('those who have all their locks write', () => had(8, 4));
    await standStill(server, 2 * LEASE_MS);
    await until('the next have the locks', () => had(16, 12));
    await standStill(server, 2 * LEASE_MS);
    await until('the last have the second lock', () => had(20, 16));
    assert.equal(await waits(server, 'distributed-lock'), 20, 'each lock was had once by each');
    server.release();
    const requests = groups.flat();
    await all(requests);
    for (const group of groups) {
      const told = codes(group).join(' ');
      t.diagnostic(told);
      assert.ok(POSSIBLE.has(told), `${told}, where it can be ${[...POSSIBLE].join(', or ')}`);
    }
    assertTrue(sale, requests);
    await assertHotIsLedger(sale);
    audit(server);
  }, STANDING));

test('a process that stands still again and again in the middle of it: no seat has two owners, no answer is untrue (pitfalls 19 and 20)', async (t) => {
  const server = await start({ args: ['--lock-lease-ms', '100'] });
  const sale = await Sale.open(server, 'WAIT/7', {}, HALL);
  const buyers = await sale.buyers(32);
  const wishes = [anyOfL, seatsOfS(1), seatsOfS(1, 2), seatsOfS(2, 3)];
  const lines = new Lines(sale, buyers, (i) => wishes[i % wishes.length]);
  for (let round = 0; round < 10; round++) {
    const before = lines.seen.held ?? 0;
    await until('they go on', () => (lines.seen.held ?? 0) > before + 5);
    await pause(Math.random() * 20);
    await standStill(server, 150 + Math.random() * 100);
  }
  await lines.stop();
  t.diagnostic(JSON.stringify(lines.seen));
  assert.ok(sale.rows().every((row) => row.status === 'CANCELLED'), 'everything was given back');
  assert.deepEqual(await sale.counts('S'), { available: 1000, held: 0, confirmed: 0 });
  await assertHotIsLedger(sale);
  audit(server);
  await server.stop();
});
