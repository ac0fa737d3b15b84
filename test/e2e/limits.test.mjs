// The limits on arrival: places and requests per client address and per block of addresses. The test is
// a trusted proxy where it needs other addresses than loopback.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { redis } from './support/cluster.mjs';
import { WaitingRoom, assertAudit, bearer, eachOf, entriesOf, users } from './support/queue.mjs';
import { assertProblem, onlyOn, run, start, until } from './support/server.mjs';

// One place a minute and one request a second: none comes back while a test lasts.
const PLACES = ['--limits-places-per-address', '1'];
const NO_REQUESTS = ['--limits-requests-per-address', '0'];
const PROXY = ['--users-auth', 'trusted', '--net-trusted-proxies', '127.0.0.1'];
const BURST = 5;
const FACTOR = 3;
// Without any exempt network: the test's own address, loopback, is that of the trusted proxy.
const LIMITED = [...PROXY, '--limits-exempt', '', ...PLACES, '--limits-places-burst', String(BURST), '--limits-block-factor', String(FACTOR), ...NO_REQUESTS];

const from = (address) => ({ 'x-forwarded-for': address });
const isTaken = ({ status }) => status === 200 || status === 202;
const assertTaken = (answer, what = 'a place') => assert.ok(isTaken(answer), `${what}: ${answer.status} ${answer.text}`);

// All on one node: how much two let in together is a test of its own.
const first = (server) => server.nodes[0];
const enter = (room, user, headers, node = first(room.server)) =>
  node.call('POST', `/queue/${room.name}/enter`, { headers, body: { userId: user } });

function assertRefused(answer, code = 'too_many_places') {
  assertProblem(answer, 429, code);
  const seconds = Number(answer.headers['retry-after']);
  assert.ok(seconds >= 1 && Number.isInteger(seconds), answer.headers['retry-after']);
  return seconds;
}

describe('new places', () => {
  let server;
  let rooms = 0;
  const open = (queue = {}, more = {}) => WaitingRoom.open(server, `LIMIT/${++rooms}`, queue, more);
  // Each test has its own addresses, in 198.18.0.0/15: the n-th of a block.
  let blocks = 0;
  const block = () => `198.18.${blocks++}`;
  before(async () => (server = await start({ args: LIMITED })));
  after(() => server?.stop());

  test('one client with many users fills at most its bucket, and gets the exact time to wait', async () => {
    const room = await open();
    const address = `${block()}.1`;
    const answers = await eachOf(users(200), 16, (user) => enter(room, user, from(address)));
    assert.equal(answers.filter(isTaken).length, BURST);
    for (const answer of answers.filter((one) => !isTaken(one))) {
      const seconds = assertRefused(answer);
      assert.ok(seconds <= 60 && seconds > 1, `${seconds}: a place comes back each minute`);
    }
    assert.equal(entriesOf(room).length, BURST);
  });

  test('after Retry-After the client is let in, and not long before', async () => {
    const brief = await start({ args: [...PROXY, '--limits-places-per-address', '30', '--limits-places-burst', '1', ...NO_REQUESTS] });
    try {
      const room = await WaitingRoom.open(brief, 'LIMIT/1');
      assertTaken(await enter(room, 'ann', from('192.0.2.1')));
      const begun = performance.now();
      const seconds = assertRefused(await enter(room, 'bob', from('192.0.2.1')));
      assert.equal(seconds, 2);
      const asked = performance.now();
      const entered = await until('Retry-After is over', async () => {
        const isOver = performance.now() >= asked + seconds * 1000;
        const answer = await enter(room, 'bob', from('192.0.2.1'));
        if (isTaken(answer)) return performance.now();
        assert.ok(!isOver, `still refused after ${seconds} s: ${answer.text}`);
        assertRefused(answer);
        return false;
      });
      // The bucket began to fill when the first place was taken, a moment before `begun`.
      assert.ok(entered - begun > 1000, `${entered - begun} ms`);
    } finally {
      await brief.stop();
    }
  });

  test('addresses of one block have a multiple together; other blocks are not concerned', async () => {
    const room = await open();
    const own = block();
    const answers = [];
    for (let i = 0; i < 2 * FACTOR * BURST; i++) answers.push(await enter(room, `crowd${i}`, from(`${own}.${i}`)));
    assert.equal(answers.filter(isTaken).length, FACTOR * BURST);
    assertTaken(await enter(room, 'other', from(`${block()}.1`)));
  });

  test('a /64 of IPv6 is one client, a /56 a block, and every form of an address is the same one', async () => {
    const room = await open();
    const same = ['2001:db8::1', '[2001:db8::2]:4711', '2001:DB8:0:0:ffff::', '[2001:db8::3]', '2001:db8::4'];
    for (const [i, address] of same.entries()) assertTaken(await enter(room, `six${i}`, from(address)), address);
    assertRefused(await enter(room, 'six-more', from('2001:db8::9')));
    let taken = BURST;
    for (let i = 1; i < 60; i++) taken += isTaken(await enter(room, `block${i}`, from(`2001:db8:0:${i.toString(16)}::1`)));
    assert.equal(taken, FACTOR * BURST);
    assertTaken(await enter(room, 'next', from('2001:db8:0:100::1')), 'of the next /56');

    const four = `${block()}.7`;
    const forms = [four, `::ffff:${four}`, `${four}:4711`, `[::ffff:${four}]:80`, `64:ff9b::${four}`];
    for (const [i, address] of forms.entries()) assertTaken(await enter(room, `four${i}`, from(address)), address);
    for (const address of forms) assertRefused(await enter(room, 'four-more', from(address)));
  });

  test('what a client writes into X-Forwarded-For does not make it another one', async () => {
    const room = await open();
    const address = `${block()}.1`;
    const spoofed = [
      (i) => `203.0.113.${i}, ${address}`,
      (i) => [`203.0.113.${i}`, address], // two headers, as some proxies write them
      (i) => [`203.0.113.${i}, 203.0.113.1`, `203.0.113.2,${address}`],
      () => `127.0.0.1, ${address}`,
      () => `unknown, ${address}`,
    ];
    for (const [i, one] of spoofed.entries()) assertTaken(await enter(room, `spoof${i}`, from(one(i))));
    for (const [i, one] of spoofed.entries()) assertRefused(await enter(room, `spoof-more${i}`, from(one(i + 10))));
  });

  test('the address of a trusted proxy stands for all of its clients, and is not limited', async () => {
    const room = await open();
    for (const headers of [{}, from('unknown'), from('')])
      for (const user of users(BURST + 2, `proxy${JSON.stringify(headers)}`)) assertTaken(await enter(room, user, headers));
  });

  test('a place that is there is found, neither lost nor charged, however often', async () => {
    const room = await open({ maxActive: 1 });
    const address = `${block()}.1`;
    const ann = await enter(room, 'ann', from(address));
    for (let i = 0; i < 3 * BURST; i++) assert.equal((await enter(room, 'ann', from(address))).json.entryToken, ann.json.entryToken);
    const bob = await enter(room, 'bob', from(address));
    assert.equal(bob.json.position, 1);
    for (const user of users(BURST - 2)) assertTaken(await enter(room, user, from(address)));
    assertRefused(await enter(room, 'one too many', from(address)));
    for (const [user, place] of [['ann', ann], ['bob', bob]]) {
      const again = await enter(room, user, from(address));
      assert.equal(again.status, place.status);
      assert.equal(again.json.entryToken, place.json.entryToken);
    }
    assert.equal((await room.leave(bob.json.entryToken, from(address))).status, 204);
    assertRefused(await enter(room, 'bob', from(address)));
    assert.equal(entriesOf(room).length, BURST);
  });

  test('what takes no place costs none: a queue that is closed, full, not open yet or does not exist', async () => {
    const address = `${block()}.1`;
    const closed = await open();
    await closed.did('deactivate');
    const full = await open({ maxWaiting: 0, maxActive: 1 });
    assertTaken(await full.askAsAdmin('first'));
    const draft = await open({}, { state: 'DRAFT' });
    for (let i = 0; i < BURST; i++) {
      assert.equal((await enter(closed, `a${i}`, from(address))).json.code, 'closed');
      assert.equal((await enter(full, `a${i}`, from(address))).json.code, 'queue_full');
      assert.equal((await enter(draft, `a${i}`, from(address))).json.code, 'not_open');
    }
    const room = await open();
    for (const user of users(BURST)) assertTaken(await enter(room, user, from(address)));
    assertRefused(await enter(room, 'more', from(address)));
  });

  test('/queue/token and a reservation with autoEnter take places, too', async () => {
    const room = await open({}, { autoEnter: true });
    const address = `${block()}.1`;
    const hold = (user) =>
      first(server).call('POST', '/reservations', {
        headers: from(address),
        body: { eventType: room.type, eventId: room.id, section: 'A', quantity: 1, userId: user },
      });
    const token = (user) =>
      first(server).call('POST', '/queue/token', { headers: from(address), body: { userId: user, eventType: room.type, eventId: room.id } });
    for (const user of users(BURST - 1)) assert.equal((await hold(user)).status, 201);
    assert.equal((await token('last')).status, 200);
    assertRefused(await hold('more'));
    assertRefused(await token('more'));
    assert.equal((await hold('user1')).status, 201, 'with the place that is there');
    assert.equal((await token('last')).status, 200);
    assert.equal(entriesOf(room).length, BURST);
  });

  test('requests with a key are not limited', async () => {
    const room = await open();
    const address = `${block()}.1`;
    const headers = { ...from(address), ...bearer(server.adminKey) };
    for (const user of users(3 * BURST)) assertTaken(await enter(room, user, headers));
    assertTaken(await enter(room, 'without', from(address)), 'and cost the address nothing');
  });

  test('under a flood from one block the others are served', async () => {
    const room = await open();
    const hostile = block();
    const flood = eachOf(users(1500, 'hostile'), 24, (user, i) => enter(room, user, from(`${hostile}.${i % 256}`)));
    const honest = await eachOf(users(60, 'honest'), 4, (user) => enter(room, user, from(`${block()}.9`)));
    assert.ok(honest.every(isTaken), honest.find((one) => !isTaken(one))?.text);
    assert.equal((await flood).filter(isTaken).length, FACTOR * BURST);
    assertAudit(server.dataDir);
  });

  test('refusals are counted by kind, and reported once for a block, with its address', async () => {
    const metric = (by) => first(server).metric(`admitone_limited_total{what="place",by="${by}"}`);
    const room = await open();
    const own = block();
    const [address, ofBlock] = [await metric('address'), await metric('block')];
    for (const user of users(BURST + 4)) await enter(room, user, from(`${own}.1`));
    assert.equal(await metric('address'), address + 4);
    for (let i = 2; i < 2 + 4 * BURST; i++) await enter(room, `crowd${i}`, from(`${own}.${i}`));
    assert.equal(await metric('block'), ofBlock + 4 * BURST - (FACTOR - 1) * BURST);
    // Of all blocks one line a second: this may not be the first block in its second.
    let line;
    await until('a block is reported', async () => {
      const other = block();
      for (const user of users(BURST + 2, other)) await enter(room, user, from(`${other}.1`));
      line = first(server).stderr.split('\n').find((one) => one.includes(`client=${other}.1/32`));
      return line;
    });
    assert.match(line, /level=warn msg="requests are refused by the limits on arrival" client=\S+\/32 block=\S+\.0\/24 what=place limit_of=client/);
    const lines = first(server).stderr.split('\n').filter((one) => one.includes('limits on arrival'));
    const reported = lines.map((one) => /block=(\S+)/.exec(one)[1]);
    assert.equal(new Set(reported).size, reported.length, 'each block once');
  });
});

describe('requests', () => {
  const REQUESTS = 8;
  let server;
  let room;
  before(async () => {
    server = await start({ args: [...PROXY, '--limits-requests-per-address', '1', '--limits-requests-burst', String(REQUESTS), '--limits-places-per-address', '0'] });
    room = await WaitingRoom.open(server, 'LIMIT/1');
  });
  after(() => server?.stop());

  // How many of `most` requests pass before the first is refused.
  async function passed(most, ask) {
    for (let i = 0; i < most; i++) {
      const answer = await ask(i);
      if (answer.status !== 429) continue;
      assert.equal(assertRefused(answer, 'too_many_requests'), 1);
      return i;
    }
    return most;
  }
  // One more comes back each second, and the machine may be slow.
  const about = (count, wanted) => assert.ok(count >= wanted && count < 3 * wanted, `${count} of ${wanted}`);

  test('one address may send its burst, whatever the paths that change something', async () => {
    const headers = from('192.0.2.1');
    const { entryToken } = (await enter(room, 'ann', from('192.0.2.9'))).json;
    const asks = [
      () => enter(room, 'ann', headers),
      () => first(server).call('POST', '/api/v1/optimistic', { headers, body: { userId: 'ann', seatId: 1 } }),
      () => first(server).call('POST', '/api/v4/queue', { headers, body: {} }),
      () => first(server).call('POST', '/reservations', { headers: { ...headers, ...bearer(entryToken) }, body: {} }),
      () => first(server).call('DELETE', `/queue/${room.name}/leave`, { headers }),
    ];
    about(await passed(100, (i) => asks[i % asks.length]()), REQUESTS);
    assertTaken(await enter(room, 'bob', from('198.51.100.1')));
    assert.ok((await first(server).metric('admitone_limited_total{what="request",by="address"}')) >= 1);
  });

  test('a read, such as a poll of the position, is a tenth of a request', async () => {
    const headers = from('203.0.113.1');
    const { entryToken } = (await enter(room, 'ben', from('203.0.113.99'))).json;
    const count = await passed(1000, () => first(server).call('GET', `/queue/${room.name}/status`, { headers: { ...headers, ...bearer(entryToken) } }));
    about(count, 10 * REQUESTS);
  });

  test('/metrics is a request, because it costs much, and /openapi.json a read', async () => {
    about(await passed(100, () => first(server).call('GET', '/metrics', { headers: from('203.0.114.1') })), REQUESTS);
    about(await passed(1000, () => first(server).call('GET', '/openapi.json', { headers: from('203.0.115.1') })), 10 * REQUESTS);
  });

  test('a map of a million seats is ten reads, in either form, and a part of it as many as it has seats', async () => {
    assert.equal((await server.admin('PUT', '/admin/events/LIMIT/MAP', { title: 'Large', sections: [{ id: 'A', capacity: 1000000 }] })).status, 201);
    const map = (query, headers) => () => first(server).call('GET', `/events/LIMIT/MAP/sections/A/seats?${query}`, { headers });
    about(await passed(100, map('form=runs', from('203.0.116.1'))), REQUESTS);
    about(await passed(100, map('from=1', from('203.0.117.1'))), REQUESTS);
    about(await passed(1000, map('form=runs&limit=100000', from('203.0.118.1'))), 10 * REQUESTS);
  });

  test('the gate, /health, /ready and requests with a key have no limit', async () => {
    const headers = from('198.18.0.1');
    await passed(100, () => enter(room, 'cat', headers));
    const token = (await enter(room, 'dan', from('198.18.1.1'))).json.entryToken;
    for (let i = 0; i < 2 * REQUESTS; i++) {
      const gate = await first(server).call('GET', `/gate/${room.name}`, { headers: { ...headers, ...bearer(token) } });
      assert.equal(gate.status, 204);
      for (const path of ['/health', '/ready']) assert.equal((await first(server).call('GET', path, { headers })).status, 200);
      const key = { ...headers, ...bearer(server.adminKey) };
      assertTaken(await enter(room, 'cat', key));
      // A path that ignores keys looks for one before it refuses.
      const status = await first(server).call('GET', `/queue/${room.name}/status`, { headers: { ...key, 'x-queue-token': token } });
      assert.equal(status.status, 200);
      assert.equal((await first(server).admin('GET', '/admin/audit?limit=1', undefined, { headers })).status, 200);
    }
    assertRefused(await enter(room, 'cat', headers), 'too_many_requests');
  });

  test('a page of an allowed origin can read the refusal', async () => {
    const own = await start({ args: ['--limits-exempt', '', '--limits-requests-burst', '1', '--limits-requests-per-address', '1', '--cors-origins', 'https://shop.example'] });
    try {
      const ask = () => first(own).call('GET', '/events', { headers: { origin: 'https://shop.example' } });
      const answer = await until('refused', async () => {
        const one = await ask();
        return one.status === 429 && one;
      });
      assert.equal(answer.headers['access-control-allow-origin'], 'https://shop.example');
      assert.match(answer.headers['access-control-expose-headers'], /Retry-After/);
    } finally {
      await own.stop();
    }
  });

  test('attempts at keys are requests: also those from many addresses of one block', async () => {
    const answers = [];
    for (let i = 0; i < 12 * REQUESTS; i++)
      answers.push(await first(server).call('GET', '/admin/audit', { headers: { ...from(`2001:db8:0:${(i % 256).toString(16)}::1`), ...bearer('admitone_wrong') } }));
    const codes = answers.map(({ json }) => json.code);
    assert.ok(codes.slice(0, 8 * REQUESTS).every((code) => code === 'admin_key_required'), codes.join());
    assert.ok(codes.includes('too_many_requests'), codes.join());
  });
});

describe('by default', () => {
  test('loopback has no limit, and a header that no trusted proxy sent changes nothing', async () => {
    const server = await start();
    try {
      const room = await WaitingRoom.open(server, 'LIMIT/1');
      const answers = await eachOf(users(400), 16, (user) => enter(room, user, from('192.0.2.1')));
      assert.ok(answers.every(isTaken));
    } finally {
      await server.stop();
    }
  });

  test('behind a trusted proxy each client may take 300 places at once', async () => {
    const server = await start({ args: PROXY });
    try {
      const room = await WaitingRoom.open(server, 'LIMIT/1');
      const answers = await eachOf(users(400), 16, (user) => enter(room, user, from('192.0.2.1')));
      const taken = answers.filter(isTaken).length;
      assert.ok(taken >= 300 && taken < 400, `${taken} of 400`);
    } finally {
      await server.stop();
    }
  });

  test('with --limits-exempt "" loopback is limited like any other, and no header helps', async () => {
    const server = await start({ args: ['--limits-exempt', '', ...PLACES, '--limits-places-burst', '4', ...NO_REQUESTS] });
    try {
      const room = await WaitingRoom.open(server, 'LIMIT/1');
      const answers = await eachOf(users(20), 4, (user, i) => enter(room, user, from(`192.0.2.${i}`)));
      assert.equal(answers.filter(isTaken).length, 4);
    } finally {
      await server.stop();
    }
  });

  test('exempt networks are a setting, and one that is none stops the start', async () => {
    const refused = run(['serve', '--limits-exempt', '192.0.2.0/24, x']);
    assert.equal(refused.status, 2);
    assert.match(refused.stderr, /limits\.exempt: "192\.0\.2\.0\/24, x" is not a list of networks/);
    const server = await start({ args: [...PROXY, ...PLACES, '--limits-places-burst', String(BURST), ...NO_REQUESTS, '--limits-exempt', '192.0.2.0/24,2001:db8::/32'] });
    try {
      const room = await WaitingRoom.open(server, 'LIMIT/1');
      for (const address of ['192.0.2.1', '2001:db8::1'])
        for (const user of users(2 * BURST, address)) assertTaken(await enter(room, user, from(address)));
      for (const user of users(BURST)) await enter(room, user, from('198.51.100.1'));
      assertRefused(await enter(room, 'more', from('198.51.100.1')));
    } finally {
      await server.stop();
    }
  });
});

describe('two nodes', onlyOn('redis+postgres', 'the counts of several nodes'), () => {
  const MANY = 40;
  let server;
  before(async () => {
    server = await start({ args: [...PROXY, ...PLACES, '--limits-places-burst', String(MANY), ...NO_REQUESTS] });
  });
  after(() => server?.stop());
  // When the bucket is full again, by the clock of Redis.
  const debtMs = (address) => Number(redis(server.dataDir, 'GET', `admitone:{limits}:p:32:${address}`)) / 1000 - Date.now();

  // Takes places until it is refused; at most `most`.
  async function fill(room, node, headers, most, prefix) {
    for (let i = 0; i < most; i++) if (!isTaken(await enter(room, `${prefix}${i}`, headers, node))) return i;
    return most;
  }

  test('count together: what one let in, the other one does not let in again', async () => {
    const room = await WaitingRoom.open(server, 'LIMIT/1');
    const headers = from('192.0.2.1');
    const [one, two] = server.nodes;
    assert.equal(await fill(room, one, headers, MANY + 5, 'a'), MANY);
    // A part in eight may be too little to be told; all of the rest is.
    await until('node 1 has shared its counts', () => debtMs('c0000201') > (MANY * 7 * 60000) / 8);
    const share = MANY / 8;
    assert.equal(await fill(room, two, headers, share, 'b'), share, 'it has not been told yet');
    let more = share;
    await until('node 2 has learned of them', async () => {
      const answer = await enter(room, `c${more}`, headers, two);
      if (!isTaken(answer)) return true;
      more++;
      return false;
    });
    assert.ok(more < MANY, `${more}: as much as if it counted alone`);
    // The debt of both together is paid off before either lets one in.
    const wait = assertRefused(await enter(room, 'more', headers, two));
    assert.ok(wait > 60, `${wait} s: node 2 alone would let one in within a minute`);
    assertTaken(await enter(room, 'other', from('198.51.100.1'), two));
  });

  test('what Redis loses, a node still knows of the places that it gave itself', async () => {
    const room = await WaitingRoom.open(server, 'LIMIT/2');
    const headers = from('203.0.113.1');
    const [one] = server.nodes;
    assert.equal(await fill(room, one, headers, MANY + 5, 'a'), MANY);
    redis(server.dataDir, 'FLUSHDB');
    await until('Redis is rebuilt', async () => (await enter(room, 'a0', headers, one)).status === 200);
    assertRefused(await enter(room, 'more', headers, one));
  });
});
