// Reservations and kill -9: every acknowledged hold, confirmation and cancellation is there after the
// restart, and no seat is lost to a request that was cut off.
import assert from 'node:assert/strict';
import path from 'node:path';
import { assertAudit, bearer, eachOf, keepAlive } from './support/queue.mjs';
import { assertHotIsLedger, Sale, metric, MODE_OF, STRATEGIES } from './support/reservations.mjs';
import { assertProblem, isCluster, pause, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';

const ROUNDS = times(20);
const CLIENTS = 24;
const CAPACITY = 200;
// So that adaptive sections change their strategy, too.
const ARGS = ['--queue-tick-ms', '10', '--adaptive-hot-above', '4', '--adaptive-calm-below', '2', '--adaptive-rest-ms', '50', '--ledger-deadline-ms', '2000'];
const SECTIONS = ['slot', 'lock', 'adaptive', 'seat'];
// In the last section nobody buys: users are admitted as long as the event has seats.
const EVENT = { maxPerUser: 1000, sections: [...SECTIONS.map((mode) => ({ id: mode, capacity: CAPACITY, mode })), { id: 'other', capacity: 1 }] };
// By how long seats are held: some holds end by themselves while all this goes on.
const SALES = { 'LONG/1': 86400, 'SHORT/1': 1 };

const ENDED = new Set(['CANCELLED', 'EXPIRED']);
const pick = (list) => list[Math.floor(Math.random() * list.length)];
const chance = (part) => Math.random() < part;
const isKeyed = ({ headers }) => 'idempotency-key' in headers;
const isOver = ({ expiresAt }) => Date.now() >= Date.parse(expiresAt);

// The requests and answers of all users. A hold is { sale, who, wish, headers, text, json, asked,
// isLeft }: `text` is the first answer, and `json` the last one about it; `asked` is a request under
// way, which may have been executed; isLeft: the user was told that the place has ended.
class Journal {
  constructor() {
    this.holds = [];
    this.flying = new Set(); // asked for and not answered; `id`: it is in the ledger
    this.number = 0;
    this.told = { held: 0, refused: 0, confirmed: 0, cancelled: 0, expired: 0, left: 0 };
  }

  // Until the server has ended.
  async storm(server) {
    const agent = keepAlive(CLIENTS);
    const gone = (error) => assert.match(error.code ?? '', /ECONNRESET|ECONNREFUSED|EPIPE|HPE_/, String(error.stack));
    const sales = Object.keys(SALES).map((name) => new Sale(server, name));
    try {
      await Promise.all(Array.from({ length: CLIENTS }, (_, i) => this.#client(sales[i % sales.length], agent).catch(gone)));
    } finally {
      agent.release();
    }
  }

  // One user after the other: enters, holds seats, confirms, cancels, leaves, or does nothing more.
  async #client(sale, agent) {
    for (;;) {
      const userId = `u${++this.number}`;
      const { entryToken } = await sale.enter(userId, { agent });
      const who = { userId, token: entryToken };
      const own = [];
      for (let i = 0; i < 3; i++) {
        const hold = await this.#hold(sale, who, agent);
        if (hold === null) continue;
        own.push(hold);
        if (chance(0.3)) await this.#cancel(sale, hold, agent);
      }
      for (const hold of own) if (hold.json.status === 'HELD' && chance(0.4)) await this.#confirm(sale, hold, agent);
      for (const hold of own) if (hold.json.status === 'CONFIRMED' && chance(0.9)) await this.#cancel(sale, hold, agent);
      // The others' holds stay, or end by their time.
      if (chance(sale.name === 'LONG/1' ? 0.9 : 0.3)) await this.#leave(sale, who, own, agent);
    }
  }

  async #hold(sale, who, agent) {
    const strategy = pick(STRATEGIES);
    const from = 1 + Math.floor(Math.random() * (CAPACITY - 3));
    const count = 1 + Math.floor(Math.random() * 3);
    const seats = [from, from + 1, from + 2].slice(0, count);
    const wish = { section: MODE_OF[strategy], strategy, ...(chance(0.5) ? { quantity: count } : { seats }) };
    const headers = chance(0.3) ? { 'idempotency-key': `${who.userId}-${this.number}-${Math.random()}` } : {};
    const hold = { sale: sale.name, who, wish, headers, json: null, asked: 'hold' };
    this.flying.add(hold);
    const answer = await sale.hold(who, wish, { headers, agent });
    this.flying.delete(hold);
    if (answer.status !== 201) {
      assert.equal(answer.status, 409, answer.text);
      assert.match(answer.json.code, /^(seat_taken|sold_out|conflict|lock_timeout|lock_lost)$/);
      this.told.refused++;
      return null;
    }
    this.#tell(hold, sale.reservation(answer, 'HELD'), 'held');
    hold.text = answer.text;
    this.holds.push(hold);
    return hold;
  }

  #tell(hold, json, what) {
    if (hold.json !== null) for (const field of ['id', 'seats', 'expiresAt']) assert.deepEqual(json[field], hold.json[field]);
    hold.json = json;
    hold.asked = null;
    this.told[what]++;
  }

  // Confirms or cancels; where its time is over, that is the answer.
  async #finish(sale, hold, verb, what, agent) {
    hold.asked = verb;
    const answer = await sale.finish(hold.who, verb, hold.json.id, { agent });
    if (answer.status !== 410) {
      this.#tell(hold, sale.found(answer, what), what.toLowerCase());
      return;
    }
    assertProblem(answer, 410, 'hold_expired');
    assert.ok(hold.json.status === 'HELD' && isOver(hold.json), 'before its time');
    this.#tell(hold, { ...hold.json, status: 'EXPIRED' }, 'expired');
  }

  #confirm(sale, hold, agent) {
    return this.#finish(sale, hold, 'confirm', 'CONFIRMED', agent);
  }

  #cancel(sale, hold, agent) {
    return this.#finish(sale, hold, 'cancel', 'CANCELLED', agent);
  }

  // Leaving cancels holds; confirmed reservations stay.
  async #leave(sale, who, own, agent) {
    const held = own.filter(({ json }) => json.status === 'HELD');
    for (const hold of held) hold.asked = 'leave';
    const answer = await sale.server.call('DELETE', `/queue/${sale.name}/leave`, { headers: bearer(who.token), agent });
    assert.equal(answer.status, 204, answer.text);
    this.told.left++;
    for (const hold of held) {
      hold.asked = null;
      hold.isLeft = true;
    }
  }

  // The ledger agrees with every answer, and contains nothing that was not requested.
  check(sale) {
    const rows = new Map(sale.rows().map((row) => [row.id, row]));
    for (const hold of this.holds) {
      if (hold.sale !== sale.name) continue;
      const row = rows.get(hold.json.id);
      rows.delete(hold.json.id);
      assertKept(hold, row);
    }
    const asked = [...this.flying].filter((hold) => hold.sale === sale.name);
    for (const row of rows.values()) {
      const at = asked.findIndex(({ who, wish }) => who.userId === row.user_id && wish.strategy === row.strategy);
      assert.ok(at >= 0, `${row.user_id} never asked for ${row.id}`);
      const [hold] = asked.splice(at, 1);
      hold.id = row.id;
    }
  }

  // The API gives the same answers as before, and the result of requests that were under way is known.
  async checkAnswers(sale, agent) {
    const mine = ({ sale: name }) => name === sale.name;
    const live = this.holds.filter((hold) => mine(hold) && !ENDED.has(hold.json.status));
    await eachOf(live, CLIENTS, async (hold) => {
      const now = sale.found(await sale.get(hold.who, hold.json.id, { agent }));
      if (hold.asked === null && !hold.isLeft && now.status !== 'EXPIRED') assert.deepEqual(now, hold.json);
      assertMay(hold, now.status);
      hold.json = now;
      hold.asked = null;
    });
    await eachOf([...this.flying].filter(mine), CLIENTS, (hold) => this.#learn(sale, hold, agent));
    const keyed = this.holds.filter((hold) => mine(hold) && hold.text !== undefined && isKeyed(hold));
    await eachOf(keyed.slice(-40), CLIENTS, async ({ who, wish, headers, text }) => {
      const answer = await sale.hold(who, wish, { headers, agent });
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.headers['idempotency-replayed'], 'true');
      assert.equal(answer.text, text);
    });
  }

  // The result of a hold that was not answered. A request with a key is repeated: either the key was
  // used and the hold is the same, or it was not.
  async #learn(sale, hold, agent) {
    const { id, who, wish, headers } = hold;
    this.flying.delete(hold);
    if (isKeyed(hold)) {
      const answer = await sale.hold(who, wish, { headers, agent });
      assert.equal(answer.headers['idempotency-replayed'], id === undefined ? undefined : 'true');
      assert.ok(answer.status === 201 || (answer.status === 409 && id === undefined), answer.text);
      if (answer.status === 201) hold.text = answer.text;
      if (answer.status === 201 && id !== undefined) assert.equal(answer.json.id, id);
      hold.id = answer.json.id;
    }
    if (hold.id === undefined) return;
    const json = sale.found(await sale.get(who, hold.id, { agent }));
    assert.match(json.status, /^(HELD|EXPIRED)$/);
    this.holds.push({ ...hold, json, asked: null });
  }

  // Gives back whatever is still had.
  async cancelAll(sale) {
    const agent = keepAlive(CLIENTS);
    const live = this.holds.filter((hold) => hold.sale === sale.name && !ENDED.has(hold.json.status));
    await eachOf(live, CLIENTS, (hold) => this.#cancel(sale, hold, agent));
    agent.release();
  }
}

// The possible states of a hold, by the last answer about it and the request under way. Holds also
// expire.
function assertMay(hold, status) {
  const { json, asked } = hold;
  const may = new Set([hold.isLeft && json.status === 'HELD' ? 'CANCELLED' : json.status]);
  if (asked === 'confirm') may.add('CONFIRMED');
  if (asked === 'cancel' || asked === 'leave') may.add('CANCELLED');
  if (json.status === 'HELD' && isOver(json)) may.add('EXPIRED');
  if (json.status === 'EXPIRED') may.add('HELD'); // its row says so a moment later
  assert.ok(may.has(status), `${json.id} was ${json.status}, ${asked ?? 'nothing'} was asked, and it is ${status}`);
}

function assertKept(hold, row) {
  const { json } = hold;
  assert.ok(row, `${json.id} was acknowledged and is lost`);
  assertMay(hold, row.status);
  assert.equal(row.seats, json.seats.join(','));
  assert.equal(row.expires_at, Date.parse(json.expiresAt));
  assert.equal(row.user_id, json.userId);
  if (json.confirmationCode !== null) assert.equal(row.confirmation_code, json.confirmationCode);
  if (json.endedAt !== null && json.status === 'CANCELLED') assert.equal(row.ended_at, Date.parse(json.endedAt));
  if (row.status === 'EXPIRED') assert.ok(row.ended_at >= row.expires_at, 'before its time');
}

// Hot store and ledger agree at once where nothing expires; elsewhere after a moment.
async function assertRecovered(sale) {
  // A hot store that has outlived its nodes has what they left undone, until others have done it.
  if (sale.name === 'LONG/1' && !isCluster) {
    await assertHotIsLedger(sale);
    return;
  }
  let why;
  const agree = () => assertHotIsLedger(sale).then(() => true, (error) => ((why = error), false));
  await until('hot and ledger agree', agree).catch(() => {
    throw why;
  });
}

async function open(server) {
  for (const [name, holdSeconds] of Object.entries(SALES)) await Sale.open(server, name, {}, { ...EVENT, holdSeconds });
}

test(`kill -9 in the middle of holding, confirming and cancelling, ${ROUNDS} times: all that was said is so, no seat is lost (pitfalls 26 and 31)`, async (t) => {
  const folder = tempFolder();
  const dataDir = path.join(folder, 'data');
  const journal = new Journal();
  let switches = 0;
  let server = await start({ dataDir, args: ARGS });
  await open(server);
  for (let round = 0; round < ROUNDS; round++) {
    const before = { ...journal.told };
    const storm = journal.storm(server);
    storm.catch(() => {}); // it is waited for below
    const said = (what, count) => journal.told[what] >= before[what] + count;
    await until('something of each was said', () => said('held', 150) && said('confirmed', 30) && said('cancelled', 60) && said('left', 10));
    switches += await metric(server, 'admitone_adaptive_switches_total', { to: 'slot' });
    await pause(Math.random() * 100); // kills it at a random moment
    await server.kill9();
    await storm;
    assertAudit(dataDir);
    for (const name of Object.keys(SALES)) journal.check(new Sale({ dataDir }, name));

    server = await start({ dataDir, args: ARGS });
    const agent = keepAlive(CLIENTS);
    for (const name of Object.keys(SALES)) {
      const sale = new Sale(server, name);
      await assertRecovered(sale);
      await journal.checkAnswers(sale, agent);
      journal.check(sale);
    }
    agent.release();
  }
  t.diagnostic(`${JSON.stringify(journal.told)}, ${switches} times over to slot`);

  for (const name of Object.keys(SALES)) {
    const sale = new Sale(server, name);
    await journal.cancelAll(sale);
    await until('everything has ended', () => sale.rows().every(({ status }) => ENDED.has(status)));
    journal.check(sale);
    await assertRecovered(sale);
    for (const section of SECTIONS) assert.deepEqual(await sale.counts(section), { available: CAPACITY, held: 0, confirmed: 0 }, section);
  }
  const strategies = new Set(journal.holds.map(({ json }) => json.strategy));
  assert.deepEqual([...strategies].sort(), [...STRATEGIES].sort(), 'each was used');
  assert.ok(journal.holds.some(({ json }) => json.status === 'EXPIRED'), 'some holds ended by their time');
  await server.stop();
  assertAudit(dataDir);
  removeFolder(folder);
});
