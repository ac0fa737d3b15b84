// `admitone feed`: what an operator sees of the feed, and does with dead letters. The tests with Kafka
// share one broker.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { SERVICES } from './support/cluster.mjs';
import { TIME } from './support/queue.mjs';
import { RequestSale } from './support/requests.mjs';
import { onlyOn, removeFolder, run, runBeside, start, storeFlags, tempFolder, test, until } from './support/server.mjs';

const PREFIX = 'cli.';
const TOPIC = `${PREFIX}ticket-reservation-events`;
const UNREACHABLE = 'kafka://127.0.0.1:1';
// A time long ago, so that no node waits for news of an event that does not exist.
const CREATED = '2026-01-01T00:00:00.000Z';

function output(file, args, input) {
  const done = spawnSync(file, args, { encoding: 'utf8', input, timeout: 180000 });
  assert.ifError(done.error);
  assert.equal(done.status, 0, `${file} ${args.join(' ')}: ${done.stderr}`);
  return done.stdout.trim();
}

// A broker that ends with this process, and the commands for its operator.
class Kafka {
  static start() {
    const lines = output(SERVICES, ['start', 'kafka', '--with-parent', String(process.pid)]).split('\n');
    const { KAFKA_URL, SERVICES_DIR } = Object.fromEntries(lines.map((line) => line.split('=')));
    return Object.assign(new this(), { url: KAFKA_URL, address: KAFKA_URL.slice('kafka://'.length), folder: SERVICES_DIR });
  }

  stop = () => output(SERVICES, ['stop', this.folder, 'kafka']);
  flags = () => ['--feed', this.url, '--feed-topic-prefix', PREFIX];

  // Everything into one partition, so that what cannot be decided is in front of the rest.
  produce(value, key = 'key') {
    output('kcat', ['-P', '-b', this.address, '-t', TOPIC, '-p', '0', '-k', key], value);
  }

  // The first offset of the topic of dead letters, and the next one.
  deadOffsets() {
    const ask = (at) => Number(/offset (\d+)/.exec(output('kcat', ['-Q', '-b', this.address, '-t', `${TOPIC}.dlq:0:${at}`]))[1]);
    return [ask(-2), ask(-1)];
  }

  feed = (...words) => runBeside(['feed', ...words, ...this.flags()]);

  // It must end with this exit code. Returns what it prints.
  async fed(status, ...words) {
    const done = await this.feed(...words);
    assert.equal(done.status, status, `feed ${words.join(' ')}: ${done.stdout}${done.stderr}`);
    if (status !== 2) assert.doesNotMatch(done.stdout, /[\x00-\x09\x0b-\x1f\x7f]/);
    return done.stdout + done.stderr;
  }

  async status(code) {
    const json = JSON.parse(await this.fed(code, 'status', '--json'));
    assert.equal(json.ok, code === 0);
    assert.equal(json.undecided, json.partitions.reduce((sum, { lag }) => sum + lag, 0));
    return json;
  }

  async letters() {
    const json = JSON.parse(await this.fed(0, 'dlq', 'list', '--json'));
    assert.equal(json.leftOut, 0);
    for (const one of json.deadLetters) {
      assert.match(one.at, TIME);
      assert.ok(one.from.startsWith(`${TOPIC}/`), one.from);
    }
    return json.deadLetters;
  }

  // Waits for an open dead letter.
  letter = (what, matches) => until(what, async () => (await this.letters()).find(matches));

  // Waits until everything that was produced is decided or set aside. The status then.
  settled = () => until('nothing is undecided', async () => {
    const { status, stdout } = await this.feed('status', '--json');
    const json = status === 2 ? undefined : JSON.parse(stdout);
    return json?.undecided === 0 && json;
  });
}

let requests = 0;
const idOf = (number) => `01a1e23f-0000-7000-8000-${String(number).padStart(12, '0')}`;

// A request as another program would write it.
function request(eventId, userId, more = {}) {
  const requestId = idOf(++requests);
  const value = { version: 1, requestId, userId, eventType: 'CONCERT', eventId, section: 'A', quantity: 1, createdAt: CREATED, ...more };
  return { requestId, value: JSON.stringify(value) };
}

test('wrong usage ends with 2 and shows how it is used', () => {
  const cases = [
    [[], /status or dlq/],
    [['--json'], /status or dlq/],
    [['stats'], /unknown word: "stats"/],
    [['dlq'], /list, retry or drop/],
    [['dlq', 'remove', '1'], /unknown word: "remove"/],
    [['dlq', 'retry'], /ID of a dead letter is missing/],
    [['dlq', 'retry', '--feed', UNREACHABLE], /ID of a dead letter is missing/],
    [['dlq', 'drop', '1x'], /a number, not: "1x"/],
  ];
  for (const [args, message] of cases) {
    const { status, stdout, stderr } = run(['feed', ...args]);
    assert.deepEqual([status, stdout], [2, ''], stderr);
    assert.match(stderr, message);
    assert.match(stderr, /admitone feed dlq retry ID/);
  }
  const extra = run(['feed', 'status', 'now', '--feed', UNREACHABLE]);
  assert.deepEqual([extra.status, extra.stdout], [2, '']);
  assert.match(extra.stderr, /now/);
  const setting = run(['feed', 'status', '--feed', UNREACHABLE, '--kafka-no-such-thing', '1']);
  assert.deepEqual([setting.status, setting.stdout], [2, '']);
  assert.match(setting.stderr, /kafka\.no\.such\.thing/);
  const { status, stdout } = run(['feed', '--help']);
  assert.equal(status, 0);
  assert.match(stdout, /dlq drop ID/);
});

test('the local feed: undecided requests per partition, and no dead letters', async () => {
  const folder = tempFolder();
  const dataDir = path.join(folder, 'data');
  const server = await start({ dataDir, args: ['--feed-consume=false'] });
  const sale = await RequestSale.open(server, 'CONCERT/1');
  const buyers = await sale.buyers(3);
  for (const buyer of buyers) await sale.accepted(buyer);
  const flags = storeFlags(dataDir);

  const { status, stdout } = run(['feed', 'status', '--json', ...flags]);
  const json = JSON.parse(stdout);
  assert.deepEqual([status, json.feed, json.ok, json.undecided], [0, 'local', true, 3]);
  assert.equal(json.partitions.length, 16);
  const [{ partition }] = sale.requestRows();
  for (const one of json.partitions) assert.equal(one.lag, one.partition === partition ? 3 : 0);
  const table = run(['feed', 'status', ...flags]);
  assert.equal(table.status, 0);
  assert.match(table.stdout, new RegExp(`^ +${partition} +3$`, 'm'));
  assert.match(table.stdout, /\n3 undecided requests\n$/);

  const list = run(['feed', 'dlq', 'list', ...flags]);
  assert.deepEqual([list.status, list.stdout], [2, '']);
  assert.match(list.stderr, /only a feed in Kafka has dead letters/);
  await server.stop();

  const absent = run(['feed', 'status', '--data', path.join(folder, 'none')]);
  assert.deepEqual([absent.status, absent.stdout], [2, '']);
  removeFolder(folder);
});

test('Kafka: status and dead letters, from the first message to a broker that is away', onlyOn('redis+postgres', 'the feed in Kafka needs shared stores'), async () => {
  const kafka = Kafka.start();
  assert.match(await kafka.fed(2, 'status'), new RegExp(`has no topic ${TOPIC}:.*feed\\.topic_prefix`));
  assert.match(await kafka.fed(2, 'dlq', 'list'), /has no topic/);

  const server = await start({ nodes: 1, args: [...kafka.flags(), '--feed-partitions', '2'] });
  const sale = await RequestSale.open(server, 'CONCERT/1');
  const ann = await sale.buyer('ann');
  await until('the node has its partitions', async () => {
    const { status, stdout } = await kafka.feed('status', '--json');
    return status === 0 && JSON.parse(stdout).partitions.every(({ node }) => node !== null);
  });
  assert.equal(await kafka.fed(0, 'dlq', 'list'), 'no open dead letters\n');

  // Four messages that cannot be decided, and behind them one that can.
  const { requestId, value: good } = request('1', 'ann');
  const late = request('late', 'ben');
  kafka.produce('no JSON\t\x1b[31m');
  kafka.produce('{"version": 2, "requestId": "x"}');
  kafka.produce('x'.repeat(100 << 10));
  kafka.produce(late.value, 'CONCERT/late/A');
  kafka.produce(good, 'CONCERT/1/A');
  assert.equal((await until('the good one is decided', async () => {
    const answer = await sale.look(ann, requestId);
    return answer.json?.status === 'SUCCESS' && answer.json;
  })).userId, 'ann');
  const settled = await kafka.settled();
  const letters = await kafka.letters();
  assert.deepEqual(
    letters.map(({ id, reason, requestId: of, from, valueBytes }) => [id, reason, of, from, valueBytes]),
    [
      [0, 'not a JSON object', null, `${TOPIC}/0/0`, 13],
      [1, 'version is not 1', null, `${TOPIC}/0/1`, 32],
      [2, 'longer than 65536 bytes', null, `${TOPIC}/0/2`, 100 << 10],
      [3, 'event_not_found', late.requestId, `${TOPIC}/0/3`, late.value.length],
    ],
  );
  assert.equal(letters[0].value, 'no JSON\t\x1b[31m');
  assert.equal(letters[3].value, late.value);
  assert.ok(letters[2].value.length <= 1024);

  const list = await kafka.fed(0, 'dlq', 'list');
  const rows = list.split('\n');
  assert.match(rows[0], /^ +ID  time +reason +request +from  value$/);
  assert.match(rows[1], /^ +0  \S+Z  not a JSON object +-  +0\/0 +no JSON\\t\\x1b\[31m$/);
  assert.match(rows[3], /^ +2 .* x{79}…$/);
  assert.match(rows[4], new RegExp(`event_not_found +${late.requestId} +0/3 +\\{"version":1,.*…$`));

  assert.deepEqual(settled.brokers, [{ address: kafka.address, answers: true }]);
  assert.deepEqual([settled.topic, settled.group, settled.deadLetters], [TOPIC, `${PREFIX}ticket-group`, 4]);
  const { id: node } = settled.nodes[0];
  assert.deepEqual(settled.nodes, [{ id: node, host: '127.0.0.1', partitions: 2 }]);
  assert.deepEqual(settled.partitions, [
    { partition: 0, end: 5, committed: 5, lag: 0, node },
    { partition: 1, end: 0, committed: null, lag: 0, node },
  ]);
  const table = await kafka.fed(1, 'status');
  assert.match(table, /^ +partition +end +committed +lag +node$/m);
  assert.match(table, /^ +0 +5 +5 +0 +1$/m);
  assert.match(table, /^ +1 +0 +- +0 +1$/m);
  assert.match(table, /^PROBLEM: 4 messages could not be decided: 'admitone feed dlq list'/m);

  // A retry of what cannot be decided is a new dead letter.
  await kafka.fed(0, 'dlq', 'retry', '0');
  assert.match(await kafka.fed(1, 'dlq', 'retry', '0'), /dead letter 0 was handled already/);
  assert.match(await kafka.fed(1, 'dlq', 'drop', '0'), /dead letter 0 was handled already/);
  assert.match(await kafka.fed(1, 'dlq', 'retry', '9999'), /there is no dead letter 9999/);
  const again = await kafka.letter('it is a dead letter again', ({ id, reason }) => id > 3 && reason === 'not a JSON object');
  assert.equal(again.value, letters[0].value);
  assert.equal((await kafka.status(1)).deadLetters, 4);
  assert.equal(kafka.deadOffsets()[0], 1, 'the handled one is deleted');

  // The event exists now, and the request that was dropped fails.
  const lateSale = await RequestSale.open(server, 'CONCERT/late');
  const ben = await lateSale.buyer('ben');
  await kafka.fed(0, 'dlq', 'drop', String(letters[3].id));
  const dropped = await until('it is decided', async () => {
    const answer = await lateSale.look(ben, late.requestId);
    return answer.status === 200 && answer.json.status === 'FAIL' && answer.json;
  });
  assert.equal(dropped.reason, 'request_dropped');
  assert.equal(kafka.deadOffsets()[0], 1, 'an older one is open');

  // A retry after the reason is gone succeeds.
  const early = request('early', 'cara');
  kafka.produce(early.value);
  const { id: earlyId } = await kafka.letter('the event is missing', (one) => one.requestId === early.requestId);
  const earlySale = await RequestSale.open(server, 'CONCERT/early');
  const cara = await earlySale.buyer('cara');
  await kafka.fed(0, 'dlq', 'retry', String(earlyId));
  await until('it is decided', async () => (await earlySale.look(cara, early.requestId)).json?.status === 'SUCCESS');

  // Dropped without an event: nothing is left of it.
  const lost = request('none', 'dan');
  const noSection = request('1', 'ann', { section: 'Z' });
  kafka.produce(lost.value);
  kafka.produce(noSection.value);
  const { id: lostId } = await kafka.letter('the event is missing', (one) => one.requestId === lost.requestId);
  assert.equal((await kafka.letter('the section is missing', (one) => one.requestId === noSection.requestId)).reason, 'section_not_found');
  await kafka.fed(0, 'dlq', 'drop', String(lostId));
  await kafka.settled();
  assert.ok(!(await kafka.letters()).some((one) => one.requestId === lost.requestId));

  // All of them. The topic is empty then.
  assert.match(await kafka.fed(2, 'dlq', 'drop', 'all'), /--yes/);
  const open = (await kafka.letters()).map(({ id }) => id);
  assert.deepEqual(open, [1, 2, again.id, open[3]]);
  const all = await kafka.fed(0, 'dlq', 'drop', 'all', '--yes');
  assert.equal(all.match(/^dead letter \d+: dropped; it is not a request/gm).length, 3);
  assert.equal(all.match(/^dead letter \d+: dropped; its request fails/gm).length, 1);
  await kafka.settled();
  assert.deepEqual(await kafka.letters(), []);
  assert.equal(await kafka.fed(0, 'dlq', 'retry', 'all'), 'no open dead letters\n');
  await kafka.status(0);
  const [begin, end] = kafka.deadOffsets();
  assert.equal(begin, end);
  assert.match(await kafka.fed(1, 'dlq', 'retry', '1'), /dead letter 1 was handled already/);

  // Requests without a node.
  await server.stop();
  kafka.produce(request('1', 'ann').value);
  const idle = await kafka.status(1);
  assert.deepEqual([idle.nodes, idle.undecided, idle.partitions[0].node], [[], 1, null]);
  assert.match(await kafka.fed(1, 'status'), /^PROBLEM: 1 request waits in 1 partition on which no node works: start a node/m);

  kafka.stop();
  for (const words of [['status'], ['status', '--json'], ['dlq', 'list'], ['dlq', 'retry', '1']]) {
    const { status, stdout, stderr } = await kafka.feed(...words);
    assert.deepEqual([status, stdout], [2, ''], stderr);
    assert.match(stderr, new RegExp(`Kafka at ${kafka.address}: .*Connection refused.*Check that the broker runs`));
  }
  output(SERVICES, ['stop', kafka.folder]);
});
