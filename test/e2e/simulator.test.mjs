// The crowd simulator of demo servers: virtual users come over HTTP, wait, are admitted in order, buy or
// go; the server's own numbers say the same, and nothing is left when it ends. In a cluster each node
// has a simulator of its own: the tests ask the first one.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { WaitingRoom, assertAudit, bearer, entriesOf } from './support/queue.mjs';
import { STRATEGIES } from './support/reservations.mjs';
import { assertProblem, removeFolder, run, start, tempFolder, test, until } from './support/server.mjs';

const PATH = '/admin/simulator';
const STATES = ['arriving', 'waiting', 'active', 'holding', 'bought', 'gaveUp', 'refused', 'errors'];
const FIELDS = [
  'arrivalsPerSecond', 'buyPercent', 'connections', 'event', 'latency', 'limited', 'patienceSeconds', 'requests', 'requestsPerSecond', 'running',
  'seatsBought', 'startedAt', 'stopping', 'strategy', 'streams', 'thinkSeconds', 'unanswered', 'users',
];
const SECTIONS = ['slot', 'lock', 'adaptive', 'seat'].map((mode, i) => ({ id: 'ABCD'[i], capacity: 300, mode }));

class Simulator {
  constructor(server) {
    this.node = server.nodes[0];
  }

  ask(method, body) {
    return this.node.admin(method, PATH, body);
  }

  async did(method, body, status = 200) {
    const answer = await this.ask(method, body);
    assert.equal(answer.status, status, answer.text);
    const { json, text } = answer;
    assert.deepEqual(Object.keys(json).sort(), FIELDS, text);
    assert.deepEqual(Object.keys(json.users), ['total', ...STATES], text);
    assert.deepEqual(Object.keys(json.latency), ['p50Ms', 'p99Ms'], text);
    assert.equal(STATES.reduce((sum, state) => sum + json.users[state], 0), json.users.total, text);
    assert.ok(json.latency.p50Ms <= json.latency.p99Ms, text);
    return json;
  }

  look() {
    return this.did('GET');
  }

  begin(event, more = {}) {
    return this.did('POST', { event, arrivalsPerSecond: 2000, thinkSeconds: 0, ...more }, 201);
  }

  becomes(what, is) {
    return until(what, async () => {
      const numbers = await this.look();
      return is(numbers) && numbers;
    });
  }

  async ended() {
    const numbers = await this.becomes('the simulation has ended', ({ running }) => !running);
    assert.deepEqual([numbers.connections, numbers.streams, numbers.stopping], [0, 0, false]);
    for (const state of ['waiting', 'active', 'holding']) assert.equal(numbers.users[state], 0);
    return numbers;
  }
}

const confirmedSeats = async (room) =>
  (await room.server.call('GET', `/events/${room.name}`)).json.sections.reduce((sum, { confirmed }) => sum + confirmed, 0);

describe('a demo server', () => {
  let server;
  let simulator;
  before(async () => {
    server = await start({ args: ['--demo', '--queue-tick-ms', '50'] });
    simulator = new Simulator(server);
  });
  after(async () => {
    if ((await simulator.look()).running) {
      await simulator.did('DELETE');
      await simulator.ended();
    }
    assertAudit(server.dataDir);
    await server.stop();
  });
  const open = (name, queue, more = {}) => WaitingRoom.open(server, name, queue, { sections: SECTIONS, confirmBy: 'user', ...more });

  test('before the first simulation it shows what a POST would take', async () => {
    const { users, startedAt, ...shown } = await simulator.look();
    assert.deepEqual([users.total, startedAt], [0, null]);
    assert.deepEqual(
      [shown.running, shown.event, shown.arrivalsPerSecond, shown.patienceSeconds, shown.buyPercent, shown.thinkSeconds, shown.strategy, shown.limited],
      [false, null, 50, 120, 70, 5, null, false],
    );
  });

  test('300 virtual users come, wait, are admitted in order, and buy or go; the numbers are those of the server', async (t) => {
    const room = await open('SIM/1', { maxActive: 20, entryBatchSize: 10 });
    const confirmsBefore = await server.metric('admitone_reservation_confirms_total');
    const streamsBefore = await server.metric('admitone_sse_opened_total');
    const began = await simulator.begin(room.name, { users: 300, buyPercent: 70 });
    assert.deepEqual([began.running, began.event, began.users.total], [true, room.name, 300]);
    await simulator.becomes('many wait, each on a stream', ({ users, streams }) => users.waiting >= 100 && streams >= 100);
    assert.ok((await room.numbers()).waiting >= 50);
    const { users, seatsBought, unanswered, latency } = await simulator.ended();
    t.diagnostic(JSON.stringify({ users, latency }));
    assert.deepEqual([users.total, users.errors, unanswered], [300, 0, 0]);
    assert.ok(users.bought > 120 && users.gaveUp > 30 && users.refused < 30, JSON.stringify(users));

    assert.equal((await server.metric('admitone_reservation_confirms_total')) - confirmsBefore, users.bought);
    assert.ok((await server.metric('admitone_sse_opened_total')) - streamsBefore >= 100);
    assert.equal(await confirmedSeats(room), seatsBought);
    assert.ok(seatsBought > users.bought && seatsBought < 2 * users.bought);
    const numbers = await until('all places have ended', async () => {
      const now = await room.numbers();
      return now.waiting === 0 && now.active === 0 && now;
    });
    assert.deepEqual([numbers.entered, numbers.admitted, numbers.completed, numbers.left], [300, 300, users.bought, 300 - users.bought]);

    const rows = entriesOf(room);
    assert.equal(new Set(rows.map((row) => row.user_id)).size, 300, 'each is another user');
    assert.ok(rows.every((row) => row.user_id.startsWith('anon-')));
    const inversions = rows.filter((row, i) => i > 0 && row.admitted_at < rows[i - 1].admitted_at);
    assert.equal(inversions.length, 0, 'admitted in the order of their numbers');
  });

  test('users buy with each strategy', { timeout: 400000 }, async () => {
    const room = await open('SIM/2', { maxActive: 1000, entryBatchSize: 1000 });
    for (const strategy of [null, 'queue', ...STRATEGIES]) {
      const before = await confirmedSeats(room);
      await simulator.begin(room.name, { users: 15, buyPercent: 100, strategy });
      const { users, seatsBought, ...ended } = await simulator.ended();
      assert.equal(ended.strategy, strategy);
      assert.deepEqual([users.bought, users.total], [15, 15], `${strategy}: ${JSON.stringify(users)}`);
      assert.equal((await confirmedSeats(room)) - before, seatsBought);
    }
  });

  test('when all is sold, the others are refused, and leave', async () => {
    const room = await open('SIM/3', { maxActive: 10, entryBatchSize: 10 }, { sections: [{ id: 'A', capacity: 12, mode: 'slot' }] });
    await simulator.begin(room.name, { users: 80, buyPercent: 100 });
    const { users, seatsBought } = await simulator.ended();
    assert.equal(seatsBought, 12);
    assert.equal(await confirmedSeats(room), 12);
    assert.deepEqual([users.bought + users.refused, users.errors], [80, 0], JSON.stringify(users));
    const { waiting, active } = await room.numbers();
    assert.deepEqual([waiting, active], [0, 0]);
  });

  test('users who lose patience give their places back', async () => {
    const room = await open('SIM/4', { maxActive: 1, entryBatchSize: 1 });
    const other = await room.enter('other');
    await simulator.begin(room.name, { users: 40, patienceSeconds: 1 });
    const { users } = await simulator.ended();
    assert.deepEqual([users.gaveUp, users.total], [40, 40], JSON.stringify(users));
    const { waiting, left } = await room.numbers();
    assert.deepEqual([waiting, left], [0, 40]);
    await room.leave(other.entryToken);
  });

  test('a running simulation is changed and ended; all leave; each act is in the audit trail', async () => {
    const room = await open('SIM/5', { maxActive: 1, entryBatchSize: 1 });
    const other = await room.enter('other');
    const newest = await server.newestAudit();
    await simulator.begin(room.name, { users: 2000, arrivalsPerSecond: 1, patienceSeconds: 3000 });
    await simulator.becomes('the first waits', ({ users }) => users.waiting > 0);
    assertProblem(await simulator.ask('POST', { event: room.name }), 409, 'simulator_running');
    const changed = await simulator.did('PATCH', { arrivalsPerSecond: 500, buyPercent: 0 });
    assert.deepEqual([changed.arrivalsPerSecond, changed.patienceSeconds, changed.buyPercent], [500, 3000, 0]);
    await simulator.becomes('more arrive', ({ users }) => users.waiting > 100);
    const ending = await simulator.did('DELETE');
    assert.ok(!ending.running || ending.stopping);
    const { users, connections } = await simulator.ended();
    assert.equal(users.total, 2000);
    assert.ok(users.gaveUp > 100 && users.arriving > 0, JSON.stringify(users));
    assert.equal(users.gaveUp + users.arriving, 2000, JSON.stringify(users));
    assert.equal(connections, 0);
    const numbers = await room.numbers();
    assert.deepEqual([numbers.waiting, numbers.active], [0, 1], 'only the other user is left');
    await simulator.did('DELETE'); // nothing to end: no act
    assertProblem(await simulator.ask('PATCH', { buyPercent: 1 }), 409, 'simulator_idle');
    const { audit } = (await server.admin('GET', '/admin/audit?limit=10')).json;
    const acts = audit.filter(({ id }) => id > newest).map(({ actor, act, subject, detail }) => [actor, act, subject, detail]);
    assert.deepEqual(acts, [
      ['admin', 'simulator.end', room.name, {}],
      ['admin', 'simulator.change', room.name, { arrivalsPerSecond: 500, buyPercent: 0 }],
      ['admin', 'simulator.start', room.name, { event: room.name, arrivalsPerSecond: 1, thinkSeconds: 0, users: 2000, patienceSeconds: 3000 }],
    ]);
    await room.leave(other.entryToken);
  });

  test('connections and files are closed when it has ended, also in the middle', async () => {
    const files = () => fs.readdirSync(`/proc/${simulator.node.pid}/fd`).length;
    const room = await open('SIM/6', { maxActive: 1, entryBatchSize: 1 });
    const other = await room.enter('other');
    const before = files();
    for (let round = 0; round < 2; round++) {
      await simulator.begin(room.name, { users: 150 });
      await simulator.becomes('all wait', ({ users }) => users.waiting === 150);
      assert.ok(files() > before + 200, 'both ends of each stream');
      await simulator.did('DELETE');
      await simulator.ended();
    }
    // One crowd that has ended is kept, for its numbers: an epoll, two events and two timers.
    await until('the files are closed', () => files() <= before + 8);
    await room.leave(other.entryToken);
  });

  test('what is not valid is refused, precisely, and starts nothing', async () => {
    await open('SIM/7', {});
    await open('SIM/seat', {}, { sections: [{ id: 'A', capacity: 10, mode: 'seat' }] });
    await open('SIM/shop', {}, { confirmBy: 'shop' });
    await open('SIM/room', {}, { sections: [] });
    const event = 'SIM/7';
    const bad = [
      [{}, 422, 'invalid_field', /event is required/],
      [{ event: 'SIM' }, 422, 'invalid_field', /event is required/],
      [{ event: 'SIM/7/8' }, 422, 'invalid_field', /event/],
      [{ event: 7 }, 422, 'invalid_field', /event must be a string/],
      [{ event: 'SIM/none' }, 404, 'event_not_found', /GET \/events/],
      [{ event: 'SIM/room' }, 422, 'invalid_field', /no sections/],
      [{ event: 'SIM/shop' }, 403, 'confirm_by_shop', /confirmBy/],
      [{ event, users: 0 }, 422, 'invalid_field', /users must be a whole number from 1 to 20000/],
      [{ event, users: 20001 }, 422, 'invalid_field', /users/],
      [{ event, users: 1.5 }, 422, 'invalid_field', /users/],
      [{ event, arrivalsPerSecond: 0 }, 422, 'invalid_field', /arrivalsPerSecond must be a whole number from 1 to 2000/],
      [{ event, arrivalsPerSecond: 2001 }, 422, 'invalid_field', /arrivalsPerSecond/],
      [{ event, patienceSeconds: 0 }, 422, 'invalid_field', /patienceSeconds must be a whole number from 1 to 3600/],
      [{ event, patienceSeconds: 3601 }, 422, 'invalid_field', /patienceSeconds/],
      [{ event, buyPercent: -1 }, 422, 'invalid_field', /buyPercent must be a whole number from 0 to 100/],
      [{ event, buyPercent: 101 }, 422, 'invalid_field', /buyPercent/],
      [{ event, thinkSeconds: -1 }, 422, 'invalid_field', /thinkSeconds must be a whole number from 0 to 600/],
      [{ event, thinkSeconds: 601 }, 422, 'invalid_field', /thinkSeconds/],
      [{ event, strategy: 'fast' }, 422, 'invalid_field', /strategy must be one of null, "slot"/],
      [{ event: 'SIM/seat', strategy: 'slot' }, 409, 'strategy_not_allowed', /slot/],
      [{ event, speed: 1 }, 422, 'unknown_field', /speed/],
      ['{', 400, 'bad_json', /./],
      ['[]', 400, 'bad_json', /./],
    ];
    for (const [body, status, code, detail] of bad) {
      const problem = assertProblem(await simulator.ask('POST', body), status, code);
      assert.match(problem.detail, detail, JSON.stringify(body));
    }
    for (const body of [{ users: 5 }, { event }, { buyPercent: 101 }, { arrivalsPerSecond: '5' }])
      assert.equal((await simulator.ask('PATCH', body)).status, 422, JSON.stringify(body));
    assertProblem(await simulator.ask('PATCH', {}), 409, 'simulator_idle');
    assert.equal((await simulator.look()).running, false);
    assert.equal((await simulator.node.call('GET', PATH)).status, 401);
  });
});

test('without --demo there is no simulator', async () => {
  const server = await start();
  for (const method of ['GET', 'POST', 'PATCH', 'DELETE'])
    assertProblem(await server.admin(method, PATH, method === 'GET' || method === 'DELETE' ? undefined : {}), 404, 'simulator_off');
  await server.stop();
});

test('to look needs the role read, to act the role operate', async () => {
  const folder = tempFolder();
  const file = path.join(folder, 'keys');
  const keys = Object.fromEntries(['read', 'operate', 'shop'].map((role) => [role, run(['keys', 'add', `the-${role}`, role, '--keys-file', file]).stdout.trim()]));
  const server = await start({ args: ['--demo', '--keys-file', file] });
  const [node] = server.nodes;
  const status = async (role, method, body) => (await node.call(method, PATH, { body, headers: bearer(keys[role]) })).status;
  assert.deepEqual(await Promise.all(['read', 'operate', 'shop'].map((role) => status(role, 'GET'))), [200, 200, 403]);
  for (const role of ['read', 'shop'])
    assert.deepEqual(await Promise.all(['POST', 'PATCH', 'DELETE'].map((method) => status(role, method, {}))), [403, 403, 403]);
  assert.deepEqual(await Promise.all(['POST', 'PATCH', 'DELETE'].map((method) => status('operate', method, method === 'DELETE' ? undefined : {}))), [422, 409, 200]);
  await server.stop();
  removeFolder(folder);
});

test('virtual users can not sign in: users.auth = signed is a conflict', async () => {
  const folder = tempFolder();
  fs.writeFileSync(path.join(folder, 'users.key'), 'the shop signs its users with this key\n', { mode: 0o600 });
  const server = await start({ args: ['--demo', '--users-auth', 'signed', '--users-key-file', path.join(folder, 'users.key')] });
  const simulator = new Simulator(server);
  await WaitingRoom.open(server, 'SIM/1', {}, { sections: SECTIONS, confirmBy: 'user' });
  assertProblem(await simulator.ask('POST', { event: 'SIM/1' }), 409, 'simulator_signed');
  await server.stop();
  removeFolder(folder);
});

test('with users.auth = anonymous they come, and where loopback is not exempt the limits on arrival hold for them', async () => {
  const limits = ['--limits-exempt', '192.0.2.0/24', '--limits-places-burst', '8', '--limits-places-per-address', '1'];
  const server = await start({ args: ['--demo', '--users-auth', 'anonymous', '--queue-tick-ms', '50', ...limits] });
  const simulator = new Simulator(server);
  const room = await WaitingRoom.open(server, 'SIM/1', {}, { sections: SECTIONS, confirmBy: 'user' });
  await simulator.begin(room.name, { users: 30, buyPercent: 100, patienceSeconds: 5 });
  const { users, limited } = await simulator.ended();
  assert.equal(limited, true);
  assert.equal(users.bought + users.gaveUp, 30, JSON.stringify(users));
  assert.ok(users.bought >= 8 && users.bought <= 10, JSON.stringify(users));
  assert.equal((await room.numbers()).entered, users.bought);
  assert.ok((await server.metric('admitone_limited_total{what="place",by="address"}')) > 0);
  await server.stop();
});

// A crowd that waits, holds and asks must not keep a server from stopping; ASan looks for leaks.
test('SIGTERM in the middle of a simulation: the server stops at once, and cleanly', async () => {
  const server = await start({ args: ['--demo', '--queue-tick-ms', '50'] });
  const simulator = new Simulator(server);
  const room = await WaitingRoom.open(server, 'SIM/1', { maxActive: 20, entryBatchSize: 20 }, { sections: SECTIONS, confirmBy: 'user' });
  await simulator.begin(room.name, { users: 500, arrivalsPerSecond: 200, thinkSeconds: 60 });
  await simulator.becomes('some hold, some wait, some still arrive', ({ users }) => users.holding > 5 && users.waiting > 50 && users.arriving > 0);
  await server.stop();
  assert.doesNotMatch(server.stderr, /connections that did not finish|could not stop in time/);
});
