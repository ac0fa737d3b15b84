// The Kafka topic reservation-facts: other systems follow the sale there. Every fact of the ledger is
// in it at least once, those of an event in their order, also when nodes and the broker are killed.
// Always two nodes on Redis, PostgreSQL and Kafka.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { before } from 'node:test';
import { SERVICES } from './support/cluster.mjs';
import { eachOf } from './support/queue.mjs';
import { Sale, audit } from './support/reservations.mjs';
import { isCluster, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';

assert.ok(isCluster, 'run it with ADMITONE_STACK=cluster');

const MODES = ['slot', 'lock', 'seat'];
const PARTITIONS = 3;

function output(file, args) {
  const done = spawnSync(file, args, { encoding: 'utf8', timeout: 180000, maxBuffer: 256 << 20 });
  assert.ifError(done.error);
  assert.equal(done.status, 0, `${file} ${args.join(' ')}: ${done.stderr}`);
  return done.stdout.trim();
}

// The private broker of this file. It ends with this process.
const broker = {
  start() {
    const again = this.dir === undefined ? ['--with-parent', String(process.pid)] : ['--dir', this.dir];
    const lines = output(SERVICES, ['start', 'kafka', ...again]).split('\n');
    const env = Object.fromEntries(lines.map((line) => line.split(/=(.*)/s)));
    Object.assign(this, { dir: env.SERVICES_DIR, url: env.KAFKA_URL, pid: Number(env.KAFKA_PID) });
  },
  kill9() {
    process.kill(this.pid, 'SIGKILL');
  },
};
before(() => broker.start());

// Each test has its own topics, by the prefix of their names. Every node gets a partition of requests
// before the test goes on: librdkafka before version 2.3.0 may abort when a node stops while it joins
// its consumer group.
async function startWithKafka(prefix, options = {}) {
  const args = ['--queue-tick-ms', '20', '--feed', broker.url, '--feed-topic-prefix', prefix, '--feed-partitions', String(PARTITIONS)];
  const server = await start({ ...options, args });
  const hasPartitions = ({ stderr }) => stderr.includes('kafka assigned partitions of requests to this node');
  await until('every node has partitions', () => server.nodes.every(hasPartitions));
  return server;
}

// All messages of the topic: { partition, key, fact }, those of a partition in their order.
function published(prefix) {
  const where = ['-b', broker.url.replace('kafka://', ''), '-t', `${prefix}reservation-facts`];
  const text = output('kcat', ['-q', '-C', ...where, '-o', 'beginning', '-e', '-J']);
  return text.split('\n').filter(Boolean).map((line) => {
    const { partition, key, payload } = JSON.parse(line);
    return { partition, key, fact: JSON.parse(payload) };
  });
}

// What GET /admin/facts gives, from the beginning.
async function factsOf(node) {
  const facts = [];
  for (let after = ''; ; ) {
    const { json, text, status } = await node.admin('GET', `/admin/facts?limit=1000${after}`);
    assert.equal(status, 200, text);
    if (json.facts.length === 0) return facts;
    facts.push(...json.facts);
    after = `&after=${json.next}`;
  }
}

// The first message of each fact. Returns also how many others there were.
function withoutRepeats(messages) {
  const first = new Map();
  for (const message of messages) if (!first.has(message.fact.id)) first.set(message.fact.id, message);
  return { first: [...first.values()], repeats: messages.length - first.size };
}

function byEvent(facts) {
  const all = {};
  for (const fact of facts) (all[`${fact.eventType}/${fact.eventId}`] ??= []).push(fact);
  return all;
}

// The topic has every fact of the ledger, as GET /admin/facts gives it and in the same order for each
// event. Returns { facts, repeats }.
async function assertFollowed(node, prefix) {
  const facts = await factsOf(node);
  const has = () => new Set(published(prefix).map(({ fact }) => fact.id));
  await until('every fact is in the topic', () => {
    const ids = has();
    return facts.every(({ id }) => ids.has(id));
  });
  const { first, repeats } = withoutRepeats(published(prefix));
  assert.equal(first.length, facts.length, 'the topic has no fact that the ledger does not have');
  const expected = byEvent(facts);
  for (const [event, own] of Object.entries(byEvent(first.map(({ fact }) => fact)))) assert.deepEqual(own, expected[event], event);
  const partitionOf = new Map();
  for (const { key, partition, fact } of first) {
    assert.equal(key, `${fact.eventType}/${fact.eventId}`);
    assert.equal(partitionOf.get(key) ?? partition, partition, `${key} is in one partition`);
    partitionOf.set(key, partition);
  }
  const kinds = {};
  for (const { fact } of first) if (fact.reservationId !== null) (kinds[fact.reservationId] ??= []).push(fact.kind);
  for (const [id, list] of Object.entries(kinds))
    assert.match(list.join(' '), /^HELD( EXPIRED| CANCELLED| CONFIRMED( CANCELLED)?)?$/, id);
  return { facts, repeats };
}

const publishes = (node) => {
  const lines = node.stderr.match(/msg="(this|another) node publishes the facts"/g);
  return node.exit === null && lines !== null && lines.at(-1).includes('this');
};
const publisherOf = (nodes) => until('a node publishes', () => nodes.find(publishes));

test('every kind of fact comes to the topic: as in GET /admin/facts, with the event as its key', async () => {
  const server = await startWithKafka('kinds.');
  const sale = await Sale.open(server, 'CONCERT/1', {}, { holdSeconds: 600, sections: [{ id: 'A', capacity: 3, price: 2500 }] });
  const other = await Sale.open(server, 'CONCERT/2', {}, { holdSeconds: 1, sections: [{ id: 'A', capacity: 3 }] });
  const [ann, ben] = await sale.buyers(2);
  const bought = await sale.held(ann, { seats: [1, 3] });
  await sale.confirmed(ann, bought.id);
  const last = await sale.held(ben, { seats: [2] });
  await sale.cancelled(ann, bought.id);
  const short = await other.held(await other.buyer('cid'), { quantity: 1 });
  await until('the hold has expired', async () => (await factsOf(server)).some(({ kind }) => kind === 'EXPIRED'));
  const { facts, repeats } = await assertFollowed(server, 'kinds.');
  const own = (id) => facts.filter(({ reservationId }) => reservationId === id).map(({ kind }) => kind);
  assert.deepEqual(own(bought.id), ['HELD', 'CONFIRMED', 'CANCELLED']);
  assert.deepEqual(own(last.id), ['HELD']);
  assert.deepEqual(own(short.id), ['HELD', 'EXPIRED']);
  assert.equal(facts.filter(({ kind }) => kind === 'SOLD_OUT').length, 1);
  assert.equal(repeats, 0, 'without a failure each fact comes once');
  assert.equal(await server.metric('admitone_facts_published_total'), facts.length);
  assert.equal(await server.metric('admitone_facts_unpublished_seconds'), 0);
  assert.equal(server.nodes.filter(publishes).length, 1, 'one node publishes');
  await server.stop();
});

test('facts from before Kafka was configured are published, and a restart repeats none', async () => {
  const folder = tempFolder();
  const dataDir = path.join(folder, 'data');
  const wish = { section: 'A', quantity: 1 };
  const local = await start({ dataDir });
  const sale = await Sale.open(local, 'CONCERT/1', {}, { holdSeconds: 600, sections: [{ id: 'A', capacity: 30 }] });
  for (const who of await sale.buyers(5)) await sale.held(who, wish);
  await local.stop();
  for (const user of ['x', 'y']) {
    const server = await startWithKafka('before.', { dataDir });
    const again = new Sale(server, 'CONCERT/1');
    await again.held(await again.buyer(user), wish);
    const { facts, repeats } = await assertFollowed(server, 'before.');
    assert.ok(facts.length >= 6);
    assert.equal(repeats, 0);
    await server.stop();
  }
  removeFolder(folder);
});

// Users who hold, confirm, cancel, or let their hold expire, each at one of the nodes. A node may be
// killed meanwhile.
async function buy(nodes, names, users) {
  const act = async (userId, i) => {
    const sale = new Sale(nodes[i % nodes.length], names[i % names.length]);
    const who = await sale.buyer(userId);
    const answer = await sale.hold(who, { section: MODES[i % MODES.length], quantity: 1 + (i % 2) });
    if (answer.status !== 201) return;
    const { id } = answer.json;
    if (i % 4 === 0) return; // it expires
    await Promise.all([sale.confirm(who, id), ...(i % 4 === 1 ? [sale.cancel(who, id)] : [])]);
    if (i % 4 === 2) await sale.cancel(who, id);
  };
  const isCut = (error) => /ECONNRESET|ECONNREFUSED|EPIPE|HPE_/.test(error.code ?? '');
  await eachOf(users, 12, (userId, i) => act(userId, i).catch((error) => assert.ok(isCut(error), error)));
}

const crowd = (count, prefix) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

test('no fact is lost, and none is out of order, when publishers and the broker are killed or stalled', { timeout: 600000 }, async (t) => {
  const names = ['CONCERT/1', 'CONCERT/2', 'CONCERT/3'];
  const server = await startWithKafka('killed.');
  for (const name of names)
    await Sale.open(server, name, {}, { holdSeconds: 1, maxPerUser: 10, sections: MODES.map((id) => ({ id, capacity: 40, mode: id })) });
  const live = () => server.nodes.filter((node) => node.exit === null);
  const has = (count) => until('facts are in the topic', () => published('killed.').length > count);

  // The publisher is killed while users buy. The other node goes on after the end of the lease.
  let publisher = await publisherOf(live());
  let buying = buy(live(), names, crowd(times(300), 'a'));
  await has(10);
  await publisher.kill9();
  await buying;
  publisher = await publisherOf(live());
  await server.join();

  // The broker is killed while users buy, and the sale goes on. Then the publisher is killed, which has
  // a batch that the broker does not take, and has renewed its lease meanwhile.
  buying = buy(live(), names, crowd(times(300), 'b'));
  await has(published('killed.').length + 10);
  broker.kill9();
  await buying;
  await buy(live(), names, crowd(20, 'c'));
  await until('facts wait', async () => (await publisher.metric('admitone_facts_unpublished_seconds')) > 2);
  await publisher.kill9();
  broker.start();
  publisher = await publisherOf(live());
  await assertFollowed(publisher, 'killed.');

  // The publisher is stalled for longer than its lease, and then goes on.
  const second = await server.join();
  const stalled = publisher;
  buying = buy([second], names, crowd(times(200), 'd'));
  stalled.signal('SIGSTOP');
  await until('the other node publishes', () => publishes(second));
  stalled.signal('SIGCONT');
  await buying;
  await until('the first node has noticed', () => !publishes(stalled));

  // The publisher stops in good order: the other node publishes at once.
  await second.stop();
  await until('the other node publishes again', () => publishes(stalled));
  await until('no hold is left', () => new Sale(server, names[0]).rows().every(({ status }) => status !== 'HELD'));
  const { facts, repeats } = await assertFollowed(stalled, 'killed.');
  t.diagnostic(`${facts.length} facts, ${repeats} of them came again`);
  for (const kind of ['HELD', 'CONFIRMED', 'CANCELLED', 'EXPIRED']) assert.ok(facts.some((fact) => fact.kind === kind), kind);
  audit(server);

  // A stop does not wait for a broker that is away.
  broker.kill9();
  await buy([stalled], names, crowd(20, 'e'));
  await until('a fact waits', async () => (await stalled.metric('admitone_facts_unpublished_seconds')) > 0);
  await server.stop();
  assert.doesNotMatch(server.stderr, /could not stop in time/);
  broker.start();
});
