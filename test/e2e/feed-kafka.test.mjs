// The feed on Kafka, where it differs from the feed in the ledger: messages of other programs, messages
// that are delivered twice or cannot be decided, the lookup of undecided requests, and the time without
// a broker.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { holdCommits, kafkaOf, releaseCommits, restartKafkaFor, setReadOnly, startKafka, stopKafka } from './support/cluster.mjs';
import { deadLettersOf, messagesOf, partitionsOf, produceTo } from './support/feed.mjs';
import { query } from './support/queue.mjs';
import { RequestSale, assertAllDecided, isDecided } from './support/requests.mjs';
import { audit, metric } from './support/reservations.mjs';
import { assertProblem, feedWorks, hasKafka, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

assert.ok(hasKafka, 'these tests need ADMITONE_STACK=kafka');

const ACCEPT_ONLY = ['--feed-consume=false'];
const ONE_PARTITION = ['--feed-partitions', '1'];
const UNKNOWN = '01890000-0000-7000-8000-000000000001';

function uuid7() {
  const hex = Date.now().toString(16).padStart(12, '0') + randomBytes(10).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

// As another program writes it, by the documented schema: without our keys.
const message = (sale, userId, wish) => ({
  version: 1, requestId: uuid7(), userId, eventType: sale.type, eventId: sale.id, section: 'A', ...wish,
});

async function withFolder(act) {
  const folder = tempFolder();
  await act((options) => start({ dataDir: `${folder}/data`, ...options }));
  removeFolder(folder);
}

// A request behind all that is in the partition has its result: so has everything before it.
async function partitionGoesOn(sale, who, section = 'A') {
  const { requestId } = await sale.accepted(who, { section, quantity: 1 });
  return sale.decided(who, requestId);
}

test('a message of another program is decided as a request of ours; the user must have a place', async () => {
  const server = await start();
  const sale = await RequestSale.open(server, 'CONCERT/1', { maxActive: 2 });
  const ann = await sale.buyer('ann');
  const ben = await sale.buyer('ben');
  const wes = { token: (await sale.enter('wes')).entryToken };
  const sent = {
    two: message(sale, 'ann', { quantity: 2 }),
    seats: message(sale, 'ben', { seats: [7, 9] }),
    waiting: message(sale, 'wes', { quantity: 1 }),
    stranger: message(sale, 'eve', { quantity: 1 }),
  };
  produceTo(server.dataDir, Object.values(sent));
  const two = await sale.decided(ann, sent.two.requestId);
  assert.deepEqual([two.status, two.quantity, two.seats, two.userId], ['SUCCESS', 2, null, 'ann']);
  assert.equal((await sale.got(ann, two.reservationId, 'HELD')).seats.length, 2);
  const seats = await sale.decided(ben, sent.seats.requestId);
  assert.deepEqual([seats.status, seats.seats], ['SUCCESS', [7, 9]]);
  assert.deepEqual((await sale.got(ben, seats.reservationId, 'HELD')).seats, [7, 9]);
  const waiting = await sale.decided(wes, sent.waiting.requestId);
  assert.deepEqual([waiting.status, waiting.reason], ['FAIL_NOT_ACTIVE', 'not_active']);
  const stranger = await sale.decided({ token: server.adminKey }, sent.stranger.requestId);
  assert.deepEqual([stranger.status, stranger.reason], ['FAIL_NOT_ACTIVE', 'not_active']);
  assertProblem(await sale.look(ben, sent.two.requestId), 403, 'not_yours');
  const taken = message(sale, 'ann', { seats: [9] });
  produceTo(server.dataDir, [taken]);
  assert.equal((await sale.decided(ann, taken.requestId)).status, 'FAIL_ALREADY_RESERVED');
  await assertAllDecided(sale, 5);
  assert.deepEqual(deadLettersOf(server.dataDir), []);
  // The nodes have created the topics, and brokers need a moment until they know them.
  for (const node of server.nodes) assert.doesNotMatch(node.stderr, /dependency is unavailable/);
  await server.stop();
});

test('pitfall 34: a message that is delivered again changes no result and sells nothing', async () => {
  const server = await start({ args: ONE_PARTITION });
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 2 }, { id: 'B', capacity: 100 }] });
  const [ann, ben] = await sale.buyers(2);
  const own = await sale.accepted(ann, { seats: [1] });
  const foreign = message(sale, 'buyer1', { seats: [2] });
  produceTo(server.dataDir, [foreign]);
  const results = new Map();
  for (const id of [own.requestId, foreign.requestId]) results.set(id, await sale.decided(ann, id));
  assert.deepEqual([...results.values()].map(({ status }) => status), ['SUCCESS', 'SUCCESS']);
  const late = await sale.accepted(ben, { quantity: 1 });
  results.set(late.requestId, await sale.decided(ben, late.requestId));
  assert.equal(results.get(late.requestId).status, 'FAIL_SOLD_OUT');
  const again = () => {
    for (const { key, payload } of messagesOf(server.dataDir).filter(({ payload: text }) => results.has(JSON.parse(text).requestId)))
      produceTo(server.dataDir, [payload], { key });
  };
  const ours = messagesOf(server.dataDir).find(({ payload }) => JSON.parse(payload).requestId === own.requestId);
  assert.equal(ours.key, 'CONCERT/1/A/1', 'one named seat');
  again();
  await partitionGoesOn(sale, ann, 'B');
  // Now seats are free, of which a second hold could be made.
  for (const { id, section } of await sale.list(ann)) if (section === 'A') await sale.cancelled(ann, id);
  again();
  await partitionGoesOn(sale, ann, 'B');
  for (const [id, before] of results) {
    const after = await sale.looked({ token: server.adminKey }, id);
    assert.deepEqual({ ...after, expiresAt: 0 }, { ...before, expiresAt: 0 });
  }
  assert.deepEqual(await sale.counts('A'), { available: 2, held: 0, confirmed: 0 });
  assert.equal(sale.rows().length, 4, 'two holds of A, two of B');
  await assertAllDecided(sale, 5);
  await server.stop();
});

test('a message that cannot be decided becomes a dead letter with the reason, and the partition goes on', async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: [...ACCEPT_ONLY, ...ONE_PARTITION] });
    let sale = await RequestSale.open(server, 'CONCERT/1');
    const deleted = await RequestSale.open(server, 'CONCERT/2');
    const [ann] = await sale.buyers(1, 'ann');
    const [dan] = await deleted.buyers(1, 'dan');
    const { requestId: gone } = await deleted.accepted(dan);
    assert.equal((await server.admin('DELETE', '/admin/events/CONCERT/2')).status, 204);
    const huge = { ...message(sale, 'ann1', { quantity: 1 }), padding: 'x'.repeat(70 << 10) };
    const bad = [
      ['{"version":1,', 'not a JSON object'],
      [{ ...message(sale, 'ann1', { quantity: 1 }), version: 2 }, 'version is not 1'],
      [huge, 'longer than 65536 bytes'],
      [message(sale, 'ann1', { quantity: 0 }), 'seats or quantity is missing or not valid'],
      [message(deleted, 'dan1', { quantity: 1 }), 'event_not_found'],
      [{ ...message(sale, 'ann1', { quantity: 1 }), eventId: 'never' }, 'event_not_found'],
      [message(sale, 'ann1', { section: 'Z', quantity: 1 }), 'section_not_found'],
    ].map(([value, reason]) => ({ text: typeof value === 'string' ? value : JSON.stringify(value), reason }));
    produceTo(server.dataDir, bad.map(({ text }) => text), { key: 'some key' });
    const good = message(sale, 'ann1', { quantity: 1 });
    produceTo(server.dataDir, [good]);
    await server.stop();

    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    assert.equal((await sale.decided(ann, good.requestId)).status, 'SUCCESS');
    assert.equal((await partitionGoesOn(sale, ann)).status, 'SUCCESS');
    const found = await until('all are set aside', () => {
      const dead = deadLettersOf(server.dataDir);
      return dead.length >= bad.length + 1 && dead;
    });
    const sources = messagesOf(server.dataDir);
    for (const { text, reason } of bad) {
      const [letter, ...more] = found.filter(({ payload }) => payload === text);
      assert.ok(letter !== undefined && more.length === 0, `once: ${text.slice(0, 100)}`);
      assert.equal(letter.headers.reason, reason, text.slice(0, 100));
      assert.equal(letter.key, 'some key');
      const { partition, offset } = sources.find(({ payload }) => payload === text);
      assert.match(letter.headers.from, new RegExp(`ticket-reservation-events/${partition}/${offset}$`));
    }
    // One of ours has a result besides.
    const [ours] = found.filter(({ payload }) => payload.includes(gone));
    assert.equal(ours.headers.reason, 'event_not_found');
    const result = await sale.decided(dan, gone);
    assert.deepEqual([result.status, result.reason], ['FAIL_NOT_FOUND', 'event_not_found']);
    assert.equal(found.length, bad.length + 1);
    assert.equal(await metric(server, 'admitone_request_dead_letters_total'), bad.length + 1);
    await server.stop();

    // They are done: no node gets them again.
    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    await partitionGoesOn(sale, ann);
    assert.equal(deadLettersOf(server.dataDir).length, bad.length + 1);
    audit(server);
    await server.stop();
  });
});

// Two requests with one Idempotency-Key that come at the same time are both accepted, with one id.
test('of two different requests with one id the first is decided, and the partition goes on', async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: [...ACCEPT_ONLY, ...ONE_PARTITION] });
    let sale = await RequestSale.open(server, 'CONCERT/1');
    const ann = await sale.buyer('ann');
    const { requestId } = await sale.accepted(ann, { quantity: 1 }, { headers: { 'idempotency-key': 'one' } });
    const [{ payload, key }] = messagesOf(server.dataDir);
    assert.equal(key, 'CONCERT/1/A');
    produceTo(server.dataDir, [{ ...JSON.parse(payload), quantity: 3, bodyDigest: 'ab'.repeat(32) }], { key });
    await server.stop();
    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    await partitionGoesOn(sale, ann);
    const decided = await sale.looked(ann, requestId);
    assert.deepEqual([decided.status, decided.quantity], ['SUCCESS', 1]);
    assert.deepEqual(await sale.counts('A'), { available: 98, held: 2, confirmed: 0 });
    assert.deepEqual(deadLettersOf(server.dataDir), []);
    await server.stop();
  });
});

// For a while this may be an event that the node has not heard of yet. No other message is tried again.
test('a message for an unknown event does not wait for its createdAt, which may lie in the future', async () => {
  const server = await start({ args: ONE_PARTITION });
  const sale = await RequestSale.open(server, 'CONCERT/1');
  const ann = await sale.buyer('ann');
  const createdAt = new Date(Date.now() + 3600000).toISOString();
  produceTo(server.dataDir, [{ ...message(sale, 'ann', { quantity: 1 }), eventId: 'never', createdAt }]);
  const [letter] = await until('it is set aside', () => {
    const letters = deadLettersOf(server.dataDir);
    return letters.length > 0 && letters;
  });
  assert.equal(letter.headers.reason, 'event_not_found');
  const tries = await metric(server, 'admitone_request_retries_total');
  assert.ok(tries > 0 && tries < 20, `as long as the event may come, not until all tries are used up: ${tries}`);
  await partitionGoesOn(sale, ann);
  await server.stop();
});

// Another program has chosen the id badly, or on purpose.
test('a message with the id of another user\'s request is set aside, and holds nothing', async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: [...ACCEPT_ONLY, ...ONE_PARTITION] });
    let sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 9 }, { id: 'B', capacity: 9 }] });
    const ann = await sale.buyer('ann');
    const ben = await sale.buyer('ben');
    const { requestId } = await sale.accepted(ann);
    const [{ payload }] = messagesOf(server.dataDir);
    // They wait beside the first one; those for another section are not in its order.
    const { requestId: own } = await sale.accepted(ben, { section: 'B', quantity: 1 });
    const { entrySeq } = JSON.parse(messagesOf(server.dataDir).at(-1).payload);
    const forged = [
      { ...message(sale, 'ben', { quantity: 1 }), requestId },
      { ...JSON.parse(payload), userId: 'ben', entrySeq },
      { ...message(sale, 'ben', { section: 'B', quantity: 1 }), requestId },
      { ...message(sale, 'eve', { quantity: 1 }), requestId },
    ];
    produceTo(server.dataDir, forged);
    await server.stop();

    server = await restart({ args: ONE_PARTITION });
    sale = new RequestSale(server, 'CONCERT/1');
    assert.equal((await sale.decided(ben, own)).status, 'SUCCESS');
    const result = await sale.decided(ann, requestId);
    assert.deepEqual([result.status, result.userId], ['SUCCESS', 'ann']);
    // When it is decided, too.
    produceTo(server.dataDir, forged.slice(0, 1));
    const letters = await until('all are set aside', () => {
      const found = deadLettersOf(server.dataDir);
      return found.length > forged.length && found;
    });
    assert.deepEqual(letters.map(({ headers }) => headers.reason), letters.map(() => 'idempotency_mismatch'));
    assert.deepEqual(new Set(letters.map((letter) => letter.payload)), new Set(forged.map((one) => JSON.stringify(one))));
    await partitionGoesOn(sale, ann);
    assert.deepEqual(await sale.looked(ann, requestId), result);
    assert.deepEqual((await sale.list(ben)).map(({ section }) => section), ['B'], 'only what ben asked for');
    assert.deepEqual([(await sale.counts('A')).held, (await sale.counts('B')).held], [2, 1]);
    audit(server);
    await server.stop();
  });
});

// Both are under way at the same time, on two workers: both pass the question whose request it is.
test('of two users\' requests with one id that are decided at once, one holds seats, and the other is set aside', async () => {
  const server = await start({ args: ['--feed-partitions', '2'], nodes: 1 });
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 9 }, { id: 'B', capacity: 9 }] });
  const [ann, ben] = await sale.buyers(2);
  for (const section of ['A', 'B']) await partitionGoesOn(sale, ann, section);
  const one = message(sale, 'buyer1', { seats: [5] });
  const other = { ...message(sale, 'buyer2', { section: 'B', seats: [5] }), requestId: one.requestId };
  holdCommits();
  try {
    produceTo(server.dataDir, [one], { partition: 0 });
    produceTo(server.dataDir, [other], { partition: 1 });
    await until('both are in work', async () => (await metric(server, 'admitone_requests_in_flight')) === 2);
  } finally {
    releaseCommits();
  }
  const letters = await until('one is set aside', () => {
    const found = deadLettersOf(server.dataDir);
    return found.length > 0 && found;
  });
  assert.deepEqual(letters.map(({ headers }) => headers.reason), ['idempotency_mismatch']);
  const loser = JSON.parse(letters[0].payload).userId;
  const result = await sale.looked({ token: server.adminKey }, one.requestId);
  assert.deepEqual([result.status, result.userId], ['SUCCESS', loser === 'buyer1' ? 'buyer2' : 'buyer1']);
  const mine = (await sale.list(ann)).length + (await sale.list(ben)).length;
  assert.equal(mine, 3, 'those of ann, and the one of the winner');
  await assertAllDecided(sale, 3);
  await server.stop();
});

const FAILS_FOR_ANN = `
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a test'; END $$;
  CREATE TRIGGER refuse BEFORE INSERT ON reservations FOR EACH ROW WHEN (NEW.user_id = 'ann') EXECUTE FUNCTION refuse()`;

test('a request that fails 20 times although the stores work becomes a dead letter, and can be retried', async () => {
  const server = await start({ args: ONE_PARTITION });
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 9 }, { id: 'B', capacity: 9 }] });
  const ann = await sale.buyer('ann');
  const ben = await sale.buyer('ben');
  query(server.dataDir, FAILS_FOR_ANN);
  const { requestId } = await sale.accepted(ann, { section: 'B', quantity: 1 });
  const [letter] = await until('it is a dead letter', () => {
    const letters = deadLettersOf(server.dataDir);
    return letters.length > 0 && letters;
  }, 120000);
  assert.equal(JSON.parse(letter.payload).requestId, requestId);
  assert.match(letter.headers.reason, /^(internal|ledger_\w+)$/);
  assert.equal((await sale.looked(ann, requestId)).status, 'PROCESSING', 'an operator has to decide');
  assert.equal((await partitionGoesOn(sale, ben)).status, 'SUCCESS');
  query(server.dataDir, 'DROP TRIGGER refuse ON reservations');
  produceTo(server.dataDir, [letter.payload], { key: letter.key });
  assert.equal((await sale.decided(ann, requestId)).status, 'SUCCESS');
  await assertAllDecided(sale, 2);
  await server.stop();
});

// The end of a transaction is a record of the topic that no consumer gets.
test('the topic may end with a record that is no message', async () => {
  const server = await start({ args: ONE_PARTITION });
  const sale = await RequestSale.open(server, 'CONCERT/1');
  const [ann] = await sale.buyers(1, 'ann');
  const sent = message(sale, 'ann1', { quantity: 1 });
  produceTo(server.dataDir, [sent], { settings: { 'transactional.id': 'shop' } });
  // The broker acknowledges the end of a transaction before it has written it to the partitions.
  await until('the transaction is visible', async () => (await sale.look(ann, sent.requestId)).status === 200);
  assert.equal((await sale.decided(ann, sent.requestId)).status, 'SUCCESS');
  for (const node of server.nodes)
    assertProblem(await new RequestSale(node, 'CONCERT/1').look(ann, UNKNOWN), 404, 'request_not_found');
  await server.stop();
});

test('an undecided request is found on every node, with its position; then a node that decides joins', async () => {
  const server = await start({ args: [...ACCEPT_ONLY, ...ONE_PARTITION] });
  const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 3 }] });
  const buyers = await sale.buyers(5);
  const ids = [];
  for (const who of buyers) ids.push((await sale.accepted(who)).requestId);
  const foreign = message(sale, 'buyer1', { quantity: 1 });
  produceTo(server.dataDir, [foreign]);
  for (const node of server.nodes) {
    const here = new RequestSale(node, 'CONCERT/1');
    for (const [i, id] of [...ids, foreign.requestId].entries()) {
      const { status, position, userId, section, finishedAt } = await here.looked(buyers[i] ?? buyers[0], id);
      assert.deepEqual([status, position, userId], [i === 0 ? 'PROCESSING' : 'PENDING', i, `buyer${i < 5 ? i + 1 : 1}`]);
      assert.deepEqual([i === 5 ? null : section, finishedAt], [i === 5 ? null : 'A', null]);
    }
    assertProblem(await here.look(buyers[1], ids[0]), 403, 'not_yours');
    assertProblem(await here.look(buyers[1], UNKNOWN), 404, 'request_not_found');
  }
  assert.deepEqual(sale.requestRows(), []);
  await server.join(ONE_PARTITION);
  const results = await Promise.all(ids.map((id, i) => sale.decided(buyers[i], id)));
  assert.deepEqual(results.map(({ status }) => status), ['SUCCESS', 'SUCCESS', 'SUCCESS', 'FAIL_SOLD_OUT', 'FAIL_SOLD_OUT']);
  await assertAllDecided(sale, 6);
  await server.stop();
});

// Until the ledger can write, nothing is decided; what was read from Kafka meanwhile is not lost.
test('pitfall 35: a request that could not be decided is not passed over', async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: ONE_PARTITION });
    let sale = await RequestSale.open(server, 'CONCERT/1');
    const buyers = await sale.buyers(10);
    await partitionGoesOn(sale, buyers[0]);
    setReadOnly(true);
    const asked = [];
    try {
      for (const who of buyers) {
        const answer = await sale.request(who);
        if (answer.status === 202) asked.push({ who, id: answer.json.requestId });
        else assert.equal(answer.status, 503, answer.text);
      }
      assert.ok(asked.length > 0, 'Kafka accepts without the ledger');
      await until('nodes have tried', async () => (await metric(server, 'admitone_request_retries_total')) > 5);
      const owner = server.nodes.find((node) => partitionsOf(node) === 1);
      for (const [name, labels] of [['admitone_requests_in_flight'], ['admitone_requests_undecided'], ['admitone_request_lag', { partition: '0' }]])
        await until(`${name} counts all ${asked.length}`, async () => (await metric(owner, name, labels)) >= asked.length);
      await server.kill9();
    } finally {
      setReadOnly(false);
    }
    server = await restart();
    sale = new RequestSale(server, 'CONCERT/1');
    for (const { who, id } of asked) assert.equal((await sale.decided(who, id)).status, 'SUCCESS');
    await assertAllDecided(sale, asked.length + 1);
    await server.stop();
  });
});

async function assertFeedIsAway(node, who, knownId) {
  const sale = new RequestSale(node, 'CONCERT/1');
  // The first answers may be those of requests that were under way.
  await until('requests are refused', async () => {
    const answer = await sale.request(who, { section: 'B', quantity: 1 });
    if (answer.status === 202) return false;
    assert.match(`${answer.status} ${answer.json.code}`, /^503 feed_(unavailable|unknown)$/, answer.text);
    assert.ok(Number(answer.headers['retry-after']) > 0, JSON.stringify(answer.headers));
    return answer.json.code === 'feed_unavailable';
  });
  assert.equal(await metric(node, 'admitone_feed_available'), 0);
  // It could be in Kafka.
  for (const id of [UNKNOWN, knownId]) assertProblem(await sale.look(who, id), 503, 'feed_unavailable');
  // All else goes on.
  await sale.cancelled(who, (await sale.held(who, { section: 'B', quantity: 1 }, { headers: { 'idempotency-key': uuid7() } })).id);
  const entered = await node.call('POST', '/queue/CONCERT/1/enter', { body: { userId: `late-${node.port}` } });
  assert.equal(entered.status, 200, entered.text);
}

test('without a broker: requests and lookups are 503, all else goes on, and nodes start and stop', async () => {
  await withFolder(async (restart) => {
    let server = await restart({ args: [...ACCEPT_ONLY, ...ONE_PARTITION] });
    let sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 100 }, { id: 'B', capacity: 100 }] });
    const [ann] = await sale.buyers(1, 'ann');
    const { requestId } = await sale.accepted(ann);
    process.kill(Number(kafkaOf().KAFKA_PID), 'SIGKILL');
    for (const node of server.nodes) await assertFeedIsAway(node, ann, requestId);
    await server.stop(); // 0, although the broker does not answer

    server = await restart({ feed: false });
    for (const node of server.nodes) await assertFeedIsAway(node, ann, requestId);
    await server.stop();

    server = await restart({ feed: false });
    sale = new RequestSale(server, 'CONCERT/1');
    startKafka();
    await Promise.all(server.nodes.map(feedWorks));
    for (const node of server.nodes) assert.equal(await metric(node, 'admitone_feed_available'), 1);
    assert.equal((await sale.decided(ann, requestId)).status, 'SUCCESS');
    // It has returned for good: no node sees an outage that is over.
    for (let i = 0; i < 10; i++) {
      const { requestId: next } = await sale.accepted(ann, { section: 'B', quantity: 1 });
      assertProblem(await sale.look(ann, UNKNOWN), 404, 'request_not_found');
      const { reservationId } = await sale.decided(ann, next);
      await sale.cancelled(ann, reservationId);
    }
    stopKafka(); // in order, while nodes are connected
    for (const node of server.nodes) await assertFeedIsAway(node, ann, UNKNOWN);
    await server.stop(); // these are members of a group that they cannot leave
    server = await restart({ feed: false });
    sale = new RequestSale(server, 'CONCERT/1');
    startKafka();
    await Promise.all(server.nodes.map(feedWorks));
    await sale.accepted(ann, { section: 'B', quantity: 1 });
    await until('all are decided', () => sale.requestRows().every(isDecided) && sale.requestRows().length === sale.acceptedIds().length);
    await assertAllDecided(sale);
    await server.stop();
  });
});

// The last test of the file: the broker stays like this.
test('a broker that asks for a name and a password gets them from kafka.*, and the log shows no password', async () => {
  await withFolder(async (restart) => {
    const password = randomBytes(12).toString('hex');
    const login = (secret) => ['--kafka-security-protocol', 'SASL_PLAINTEXT', '--kafka-sasl-mechanisms', 'PLAIN', '--kafka-sasl-username', 'shop', '--kafka-sasl-password', secret];
    restartKafkaFor('shop', password);
    let server = await restart({ args: [...ONE_PARTITION, ...login(password)] });
    const sale = await RequestSale.open(server, 'CONCERT/1', {}, { sections: [{ id: 'A', capacity: 9 }, { id: 'B', capacity: 9 }] });
    const ann = await sale.buyer('ann');
    const { requestId } = await sale.accepted(ann);
    assert.equal((await sale.decided(ann, requestId)).status, 'SUCCESS');
    assert.ok(!server.nodes.some((node) => node.stderr.includes(password)));
    await server.stop();
    server = await restart({ args: [...ONE_PARTITION, ...login('wrong-password')], feed: false, nodes: 1 });
    await assertFeedIsAway(server.nodes[0], ann, UNKNOWN);
    assert.ok(!server.nodes[0].stderr.includes('wrong-password'));
    await server.stop();
  });
});
