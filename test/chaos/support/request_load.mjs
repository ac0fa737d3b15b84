// Users who ask for seats asynchronously, on all nodes of a cluster on Kafka, while something fails;
// then every answer that they got is compared with the results.
import assert from 'node:assert/strict';
import { messagesOf, partitionsOf } from '../../e2e/support/feed.mjs';
import { eachOf, keepAlive, query } from '../../e2e/support/queue.mjs';
import { REQUEST_ID, RequestSale, isDecided } from '../../e2e/support/requests.mjs';
import { assertHotIsLedger } from '../../e2e/support/reservations.mjs';
import { hasKafka, pause, runBeside, start, storeFlags, test, until } from '../../e2e/support/server.mjs';

assert.ok(hasKafka, 'these tests need ADMITONE_STACK=kafka');

const NAME = 'CONCERT/1';
const MODES = ['slot', 'lock', 'adaptive', 'seat'];
const CAPACITY = 400;
const USERS = 6;
const PAUSE_MS = 120;
const DECIDED_MS = 120000;
// What a node answers while it or a store is not there; nothing was accepted.
const REFUSED = /^503 (feed_unavailable|stopping|node_behind|hot_\w+|ledger_\w+|recovering|overloaded)$/;

// A connection to a node that was killed or stands still.
const isLost = ({ code, message }) => /ECONN|EPIPE|HPE_/.test(code ?? '') || /no answer in|socket hang up/.test(message);

export class RequestLoad {
  static async start(options) {
    const load = new RequestLoad();
    load.server = await start(options);
    const sections = MODES.map((mode) => ({ id: mode, capacity: CAPACITY, mode }));
    load.sale = await RequestSale.open(load.server, NAME, {}, { maxPerUser: 1000, sections });
    load.buyers = await load.sale.buyers(USERS);
    load.agent = keepAlive(2 * USERS);
    load.asked = 0;
    load.accepted = []; // { who, id }
    load.unknown = []; // the same, of answers feed_unknown
    load.answers = {}; // how many of each
    await until('each node has partitions', () => load.server.nodes.every((node) => partitionsOf(node) > 0));
    return load;
  }

  begin() {
    this.running = Promise.all(this.buyers.map((who, i) => this.run(who, i % 3 === 0)));
    this.running.catch(() => {}); // end() throws it
  }

  async run(who, hasKeys) {
    while (!this.ending) {
      await this.ask(who, hasKeys);
      await pause(PAUSE_MS);
    }
  }

  // With a key, a request without a clear answer is sent again.
  async ask(who, hasKeys) {
    const number = this.asked++;
    const section = MODES[number % MODES.length];
    const wish = number % 3 === 0 ? { section, quantity: 1 } : { section, seats: [1 + ((number * 7) % CAPACITY)] };
    const headers = hasKeys ? { 'idempotency-key': `key-${number}` } : {};
    for (let isClear = false; !isClear; ) {
      isClear = (await this.askOnce(who, wish, headers)) || !hasKeys || this.ending;
      if (!isClear) await pause(10 * PAUSE_MS);
    }
  }

  async askOnce(who, wish, headers) {
    let answer;
    try {
      answer = await this.sale.request(who, wish, { agent: this.agent, headers, timeoutMs: 20000 });
    } catch (error) {
      if (!isLost(error)) throw error;
      this.count('lost');
      return false;
    }
    const { status, json, text } = answer;
    this.count(status === 202 ? '202' : `${status} ${json?.code}`);
    if (status === 202) {
      this.accepted.push({ who, id: json.requestId });
    } else if (json?.code === 'feed_unknown') {
      assert.match(json.requestId, REQUEST_ID, text);
      assert.ok(Number(answer.headers['retry-after']) > 0, `no Retry-After: ${text}`);
      this.unknown.push({ who, id: json.requestId });
    } else {
      assert.match(`${status} ${json?.code}`, REFUSED, text);
      assert.ok(Number(answer.headers['retry-after']) > 0, `no Retry-After: ${text}`);
    }
    return status === 202;
  }

  count(what) {
    this.answers[what] = (this.answers[what] ?? 0) + 1;
  }

  // Waits until so many more are accepted, and later decided.
  async goesOn(count = 40) {
    const target = this.accepted.length + count;
    await until(`${count} more are accepted`, () => this.accepted.length >= target, DECIDED_MS);
    const { who, id } = this.accepted.at(-1);
    await this.decided(who, id);
  }

  decided(who, id) {
    return until(`${id} is decided`, async () => {
      const { status, json } = await this.sale.look(who, id).catch((error) => (isLost(error) ? { status: 0 } : Promise.reject(error)));
      return status === 200 && isDecided(json) && json;
    }, DECIDED_MS);
  }

  // The node gets no more requests. The caller ends it.
  without(node) {
    this.server.nodes.splice(this.server.nodes.indexOf(node), 1);
    return node;
  }

  async end() {
    this.ending = true;
    await this.running;
    this.agent.release();
  }

  // Each accepted request has exactly one result, which every node shows; as many seats are sold as
  // requests succeeded; and the ledger is consistent.
  async check() {
    const { server, sale } = this;
    const inTopic = new Set(messagesOf(server.dataDir).map(({ payload }) => JSON.parse(payload).requestId));
    for (const { id } of this.accepted) assert.ok(inTopic.has(id), `accepted and not in Kafka: ${id}`);
    const rows = await until('all are decided', () => {
      const found = new Map(sale.requestRows().map((row) => [row.id, row]));
      return [...inTopic].every((id) => found.has(id) && isDecided(found.get(id))) && found;
    }, DECIDED_MS).catch((error) => {
      const found = new Map(sale.requestRows().map((row) => [row.id, row]));
      assert.fail(`${error.message}; undecided: ${[...inTopic].filter((id) => !isDecided(found.get(id) ?? { status: 'PENDING' }))}`);
    });
    assert.equal(rows.size, inTopic.size, 'only what was accepted is decided');
    const held = new Set();
    await eachOf(this.accepted, 8, async ({ who, id }) => {
      const shown = await Promise.all(server.nodes.map((node) => new RequestSale(node, NAME).looked(who, id)));
      for (const one of shown) assert.deepEqual(one, shown[0]);
      assert.equal(shown[0].status, rows.get(id).status);
      if (shown[0].status === 'SUCCESS') held.add(shown[0].reservationId);
    });
    for (const { who, id } of this.unknown) {
      const { status, json, text } = await sale.look(who, id);
      assert.ok(status === 404 || (status === 200 && isDecided(json)), text);
      assert.equal(status === 200, inTopic.has(id), id);
    }
    const succeeded = [...rows.values()].filter(({ status }) => status === 'SUCCESS').length;
    const [{ sold }] = query(server.dataDir, "SELECT count(*) AS sold FROM seats WHERE state <> 'AVAILABLE'");
    const live = sale.rows().filter(({ status }) => status === 'HELD');
    assert.deepEqual([sold, live.length], [succeeded, succeeded], 'seats that are sold, and reservations: one for each success');
    assert.ok(held.size <= succeeded && succeeded > 0);
    await assertHotIsLedger(sale);
  }

  // As an operator would; then the audit is clean.
  async stop() {
    const flags = storeFlags(this.server.dataDir);
    await until('the boards have counted all', async () => {
      const { status, stdout } = await runBeside(['audit', ...flags]);
      return status !== 2 && !stdout.includes('not counted yet');
    });
    await Promise.all(this.server.nodes.map((node) => node.stop()));
    const audit = await runBeside(['audit', ...flags]);
    assert.equal(audit.status, 0, audit.stdout + audit.stderr);
    assert.match(audit.stdout, /\d+ checks, 0 violations/);
  }

  summary() {
    return { asked: this.asked, accepted: this.accepted.length, unknown: this.unknown.length, ...this.answers };
  }
}

// Java and several sessions of the group take their time on a busy machine.
const TEST_MS = 400000;

// One test: load, `act(load)`, which must restore everything, and the checks.
export function requestChaos(name, options, act) {
  test(name, { timeout: TEST_MS }, async (t) => {
    const load = await RequestLoad.start(options);
    try {
      load.begin();
      await load.goesOn();
      await act(load);
      await load.goesOn();
      await load.end();
      await load.check();
      await load.stop();
      t.diagnostic(JSON.stringify(load.summary()));
    } catch (error) {
      t.diagnostic(JSON.stringify(load.summary()));
      const isNews = (line) => !line.includes('msg=request ');
      for (const node of load.server.nodes) t.diagnostic(node.stderr.split('\n').filter(isNews).join('\n').slice(-4000));
      throw error;
    } finally {
      load.ending = true;
    }
  });
}
