// GET /admin/facts: another system follows the sale. Every change of a reservation comes once, in
// order, over pages, waits, restarts and crashes.
import assert from 'node:assert/strict';
import path from 'node:path';
import { hexOf } from './support/cluster.mjs';
import { TIME, eachOf, query } from './support/queue.mjs';
import { Raw, adminRequest } from './support/raw.mjs';
import { Sale, audit } from './support/reservations.mjs';
import { assertProblem, isCluster, removeFolder, start, tempFolder, test, times, until, within } from './support/server.mjs';

const FIELDS = [
  'version', 'id', 'kind', 'at', 'eventType', 'eventId', 'section', 'reservationId', 'userId', 'seatCount', 'seats',
  'price', 'currency',
];
const ARGS = ['--queue-tick-ms', '20'];
const MODES = ['slot', 'lock', 'adaptive', 'seat'];

function assertFact(fact) {
  const text = JSON.stringify(fact);
  assert.deepEqual(Object.keys(fact), FIELDS, text);
  assert.equal(fact.version, 1);
  assert.match(fact.id, /^\d+$/);
  assert.match(fact.at, TIME);
  assert.match(fact.kind, /^(HELD|CONFIRMED|CANCELLED|EXPIRED|SOLD_OUT)$/);
  const { section, reservationId, userId, seatCount, seats, price, currency } = fact;
  if (fact.kind === 'SOLD_OUT')
    return assert.deepEqual([section, reservationId, userId, seatCount, seats, price, currency], [null, null, null, 0, null, null, null], text);
  assert.equal(seats.length, seatCount, text);
  assert.ok(seatCount > 0 && Number.isInteger(price) && /^[A-Z]{3}$/.test(currency), text);
}

const target = (parameters) => `/admin/facts?${new URLSearchParams(parameters)}`;

// One page: { facts, next }.
async function page(server, parameters = {}) {
  const answer = await server.admin('GET', target(parameters));
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(Object.keys(answer.json), ['facts', 'next']);
  for (const fact of answer.json.facts) assertFact(fact);
  assert.ok(answer.json.facts.length <= (parameters.limit ?? 100));
  return answer.json;
}

// Another system: it keeps what it has read, and its cursor.
class Follower {
  constructor() {
    this.facts = [];
    this.cursor = undefined;
  }

  async step(server, parameters = {}) {
    const { facts, next } = await page(server, { ...parameters, ...(this.cursor === undefined ? {} : { after: this.cursor }) });
    if (facts.length === 0 && this.cursor !== undefined) assert.equal(next, this.cursor);
    this.facts.push(...facts);
    this.cursor = next;
    return facts;
  }

  // All that there is by now.
  async catchUp(server, parameters = {}) {
    const { dataDir } = server;
    await until('all facts were read', async () => {
      while ((await this.step(server, parameters)).length > 0) continue;
      return this.facts.length >= query(dataDir, 'SELECT count(*) AS n FROM facts')[0].n;
    });
  }
}

const storedFacts = (dataDir) =>
  query(
    dataDir,
    `SELECT f.id, f.kind, f.user_id, f.seat_count, ${hexOf('f.reservation_id')} AS reservation_id, c.code, e.type, e.external_id
     FROM facts f JOIN events e ON e.id = f.event_id LEFT JOIN sections c ON c.id = f.section_id`,
  );

// The follower has every fact of the ledger, once, and those of each reservation in a possible order.
function assertFollowed(follower, dataDir) {
  const shown = follower.facts.map((f) => [f.id, f.kind, f.userId, f.seatCount, f.reservationId?.replaceAll('-', '') ?? null, f.section, f.eventType, f.eventId]);
  const stored = storedFacts(dataDir).map((f) => [String(f.id), f.kind, f.user_id, f.seat_count, f.reservation_id || null, f.code, f.type, f.external_id]);
  const byId = ([a], [b]) => (BigInt(a) < BigInt(b) ? -1 : 1);
  assert.deepEqual(shown.sort(byId), stored.sort(byId));
  const kinds = {};
  for (const { reservationId, kind } of follower.facts) if (reservationId !== null) (kinds[reservationId] ??= []).push(kind);
  for (const [id, list] of Object.entries(kinds))
    assert.match(list.join(' '), /^HELD( EXPIRED| CANCELLED| CONFIRMED( CANCELLED)?)?$/, id);
}

const idsOf = (facts) => facts.map(({ kind, reservationId }) => `${kind} ${reservationId}`);

test('a page has every kind of fact, in order, with the members of version 1', async () => {
  const server = await start({ args: ARGS });
  const sale = await Sale.open(server, 'CONCERT/1', {}, { holdSeconds: 600, sections: [{ id: 'A', capacity: 3, price: 2500 }] });
  assert.deepEqual((await page(server)).facts, []);
  const [ann, ben] = await sale.buyers(2);
  const bought = await sale.held(ann, { seats: [1, 3] });
  await sale.confirmed(ann, bought.id);
  const last = await sale.held(ben, { seats: [2] });
  await sale.cancelled(ann, bought.id);
  await server.admin('PATCH', '/admin/events/CONCERT/1', { holdSeconds: 1 });
  const short = await sale.held(await sale.buyer('cid'), { seats: [1] });
  const follower = new Follower();
  await until('the hold has expired', async () => (await follower.step(server, { wait: 5 })).some((f) => f.kind === 'EXPIRED'));
  const own = (id) => follower.facts.filter(({ reservationId }) => reservationId === id).map(({ kind }) => kind);
  assert.deepEqual(own(bought.id), ['HELD', 'CONFIRMED', 'CANCELLED']);
  assert.deepEqual(own(last.id), ['HELD']);
  assert.deepEqual(own(short.id), ['HELD', 'EXPIRED']);
  assert.deepEqual(follower.facts.map(({ kind }) => kind), ['HELD', 'CONFIRMED', 'HELD', 'SOLD_OUT', 'CANCELLED', 'HELD', 'EXPIRED']);
  const { id, at, ...rest } = follower.facts[1];
  assert.deepEqual(rest, {
    version: 1, kind: 'CONFIRMED', eventType: 'CONCERT', eventId: '1', section: 'A', reservationId: bought.id,
    userId: ann.userId, seatCount: 2, seats: [1, 3], price: 5000, currency: bought.currency,
  });
  const { confirmedAt } = await sale.got(ann, bought.id);
  assert.equal(at, confirmedAt);
  assertFollowed(follower, server.dataDir);

  // Pages of one are the same facts.
  const byOne = new Follower();
  while ((await byOne.step(server, { limit: 1 })).length > 0) continue;
  assert.deepEqual(byOne.facts, follower.facts);
  await server.stop();
});

test('bad parameters are refused, and the admin key is needed', async () => {
  const server = await start();
  const refused = async (parameters, detail) => {
    const problem = assertProblem(await server.admin('GET', target(parameters)), 400, 'invalid_parameter');
    assert.match(problem.detail, detail);
  };
  for (const after of ['', 'x', '1', '-1', '1-', '1-2-3', '1-x', '01-1', '1-99999999999999999999']) await refused({ after }, /^after must be/);
  if (!isCluster) await refused({ after: '731-42' }, /^after is a cursor of another ledger\.$/);
  for (const limit of ['0', '1001', '-1', 'x', '']) await refused({ limit }, /^limit must be a whole number from 1 to 1000\.$/);
  for (const wait of ['-1', '31', '0.5', 'x', '']) await refused({ wait }, /^wait must be a whole number from 0 to 30\.$/);
  assertProblem(await server.call('GET', '/admin/facts'), 401, 'admin_key_required');
  assertProblem(await server.call('GET', '/admin/facts?wait=30', { headers: { authorization: 'Bearer wrong' } }), 401, 'admin_key_required');
  assert.deepEqual((await page(server, { limit: 1000, wait: 0 })).facts, []);
  await server.stop();
});

test('a wait ends with the first fact, or empty when its time is over', async () => {
  const server = await start({ args: ARGS });
  const sale = await Sale.open(server, 'CONCERT/1');
  const ann = await sale.buyer('ann');
  const { next: first } = await page(server);
  const began = performance.now();
  assert.deepEqual(await page(server, { after: first, wait: 1 }), { facts: [], next: first });
  assert.ok(performance.now() - began >= 1000, 'it has waited');

  // On every node and worker, more than one at a time.
  const countedBefore = await server.metric('admitone_request_duration_seconds_sum');
  const waitingSince = performance.now();
  const waiting = Array.from({ length: 8 }, () => page(server, { after: first, wait: 30 }));
  assert.equal(await within(600, Promise.race(waiting)), 'pending');
  const { id } = await sale.held(ann);
  const woken = await Promise.all(waiting);
  const waitedSeconds = (waiting.length * (performance.now() - waitingSince)) / 1000;
  for (const { facts } of woken) assert.deepEqual(idsOf(facts), [`HELD ${id}`]);
  // A fact that is there already is not waited for.
  const at = woken[0].next;
  await sale.confirmed(ann, id);
  assert.deepEqual(idsOf((await page(server, { after: at, wait: 30 })).facts), [`CONFIRMED ${id}`]);
  // A wait is not a slow request: it is not in the durations.
  const counted = (await server.metric('admitone_request_duration_seconds_sum')) - countedBefore;
  assert.ok(counted < waitedSeconds / 2, `${counted} of ${waitedSeconds} s`);
  await server.stop();
});

test('a client that goes away while it waits harms nothing, and makes room for others', async () => {
  const server = await start();
  const [node] = server.nodes;
  const stays = page(node, { wait: 30 });
  // Its connection, and that of the question. Behind sixty others it would be refused.
  await until('it waits', async () => (await node.metric('admitone_connections')) >= 2);
  for (let i = 0; i < 3; i++) {
    const gone = await Promise.all(Array.from({ length: 60 }, () => Raw.connect(node)));
    for (const raw of gone) raw.write(adminRequest(server, 'GET', '/admin/facts?wait=30'));
    await until('they wait', async () => (await node.metric('admitone_connections')) >= 50);
    for (const [n, raw] of gone.entries()) n % 2 === 0 ? raw.destroy() : raw.socket.resetAndDestroy();
    await until('they are gone', async () => (await node.metric('admitone_connections')) < 10);
  }
  assert.equal(await within(0, stays), 'pending', 'they ended before their time');
  const sale = await Sale.open(server, 'CONCERT/1');
  const waiting = page(node, { wait: 30 });
  await sale.held(await sale.buyer('ann'));
  for (const one of [stays, waiting]) assert.equal((await one).facts.length, 1);
  await server.stop();
});

test('too many waits are refused with 503, and pages without a wait are still answered', async () => {
  const server = await start();
  const [node] = server.nodes;
  const answers = Array.from({ length: 100 }, () => node.admin('GET', target({ wait: 3 })));
  const first = await Promise.race(answers);
  assertProblem(first, 503, 'overloaded');
  assert.ok(Number(first.headers['retry-after']) >= 1);
  assert.deepEqual((await page(node)).facts, []);
  for (const { status, text } of await Promise.all(answers)) assert.ok(status === 200 || status === 503, text);
  assert.deepEqual((await page(node, { wait: 1 })).facts, []);
  await server.stop();
});

test('a stop ends a wait: it is answered, and the process ends at once', async () => {
  const server = await start();
  const { next } = await page(server);
  const waiting = await Promise.all(server.nodes.flatMap((node) => Array.from({ length: 6 }, () => Raw.connect(node))));
  for (const raw of waiting) raw.write(adminRequest(server, 'GET', target({ after: next, wait: 30 })));
  assert.equal(await within(700, Promise.race(waiting.map((raw) => raw.answer()))), 'pending');
  const stopped = server.stop();
  for (const raw of waiting) {
    const [answer] = await raw.toEnd();
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(answer.json, { facts: [], next });
    assert.equal(answer.headers.connection, 'close');
    raw.destroy();
  }
  await stopped;
  assert.doesNotMatch(server.stderr, /stop deadline/, 'no wait held the stop up');
});

const ready = (server) =>
  until('every node is ready', async () => (await Promise.all(server.nodes.map((node) => node.call('GET', '/ready')))).every(({ status }) => status === 200));

// Users who hold, confirm, cancel, leave, or let their hold expire. Ends when the server is gone.
async function buy(sale, users, isCut = false) {
  const cut = (error) => {
    if (!isCut || !/ECONNRESET|ECONNREFUSED|EPIPE|HPE_/.test(error.code ?? '')) throw error;
  };
  const act = async (userId, i) => {
    const who = await sale.buyer(userId);
    const wish = { section: MODES[i % MODES.length], quantity: 1 + (i % 3) };
    const answer = await sale.hold(who, wish);
    if (answer.status !== 201) return assert.match(answer.json.code, /^(sold_out|seat_taken|conflict|lock_timeout|lock_lost)$/);
    const { id } = answer.json;
    const first = i % 5;
    if (first === 0) return sale.leave(who.token);
    if (first === 1) return sale.cancel(who, id);
    if (first === 2) return; // it expires
    // Two changes at the same time: one of them is first.
    await Promise.all([sale.confirm(who, id), ...(first === 3 ? [sale.cancel(who, id)] : [])]);
    if (first === 4 && i % 2 === 0) await sale.cancel(who, id);
  };
  await eachOf(users, 16, (userId, i) => act(userId, i).catch(cut));
}

const crowd = (count, prefix) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);
// One more section, in which nobody buys: users are admitted as long as the event has seats.
const bigSale = (server) => {
  const sections = [...MODES.map((id) => ({ id, capacity: 30, mode: id })), { id: 'other', capacity: 1 }];
  return Sale.open(server, 'CONCERT/1', {}, { holdSeconds: 1, maxPerUser: 10, sections });
};

test('a follower gets every fact once and in order while many users buy at the same time', async () => {
  const server = await start({ args: ARGS });
  const sale = await bigSale(server);
  const followers = [{ limit: 1000, wait: 30 }, { limit: 3, wait: 1 }].map((parameters) => ({ parameters, follower: new Follower() }));
  let isOver = false;
  const following = followers.map(async ({ parameters, follower }) => {
    while (!isOver) await follower.step(server, parameters);
  });
  await buy(sale, crowd(times(400), 'u'));
  await until('no hold is left', async () => sale.rows().every(({ status }) => status !== 'HELD'));
  isOver = true;
  // Ends the wait of those that have read everything.
  const last = await sale.held(await sale.buyer('last'), { section: 'slot', quantity: 1 });
  await Promise.all(following);
  for (const { follower } of followers) {
    await follower.catchUp(server, { limit: 50 });
    assertFollowed(follower, server.dataDir);
    assert.ok(follower.facts.some(({ reservationId }) => reservationId === last.id));
    for (const kind of ['HELD', 'CONFIRMED', 'CANCELLED', 'EXPIRED'])
      assert.ok(follower.facts.some((fact) => fact.kind === kind), kind);
  }
  audit(server);
  await server.stop();
});

test('a cursor stays valid over restarts, also after kill -9 under load', async () => {
  const folder = tempFolder();
  const dataDir = path.join(folder, 'data');
  const follower = new Follower();
  for (let round = 0; round < 4; round++) {
    const server = await start({ dataDir, args: ARGS });
    await ready(server);
    const sale = round === 0 ? await bigSale(server) : new Sale(server, 'CONCERT/1');
    const before = follower.facts.length;
    const following = (async () => {
      for (;;) await follower.step(server, { limit: 7, wait: 30 });
    })().catch((error) => {
      if (error instanceof assert.AssertionError) throw error;
    });
    const buying = buy(sale, crowd(times(200), `r${round}-`), true);
    await until('some facts were read', () => follower.facts.length > before + 20);
    await server.kill9();
    await Promise.all([buying, following]);
  }
  const server = await start({ dataDir, args: ARGS });
  await until('no hold is left', async () => new Sale(server, 'CONCERT/1').rows().every(({ status }) => status !== 'HELD'));
  await follower.catchUp(server);
  assertFollowed(follower, dataDir);
  await server.stop();
  removeFolder(folder);
});
