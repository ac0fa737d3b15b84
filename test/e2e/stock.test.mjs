// Seats and queue together: what those who wait are told while seats run out, are returned, and are all
// sold; and who is admitted then.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { forgetHot } from './support/cluster.mjs';
import { bearer, eachOf, keepAlive, users } from './support/queue.mjs';
import { MODE_OF, Sale, audit } from './support/reservations.mjs';
import { assertProblem, isCluster, removeFolder, start, tempFolder, test, times, until } from './support/server.mjs';
import { Stream } from './support/sse.mjs';

const MODES = [...new Set(Object.values(MODE_OF))];
const QUICK = ['--queue-tick-ms', '10', '--push-interval-ms', '100'];

const stockOf = ({ admitting, remainingSeats, heldSeats, soldOut }) => ({ admitting, remainingSeats, heldSeats, soldOut });
const SOLD_OUT = { admitting: false, remainingSeats: 0, heldSeats: 0, soldOut: true };

async function hearsStock(stream, wanted, timeoutMs) {
  const isHeard = () => stream.last && Object.entries(wanted).every(([field, value]) => stream.last.data[field] === value);
  await until(`the stream hears ${JSON.stringify(wanted)}; the last is ${JSON.stringify(stream.last)}`, () => isHeard() || stream.closed, timeoutMs);
  assert.ok(isHeard(), JSON.stringify(stream.last));
}

describe('stock and queue', () => {
  let server;
  before(async () => (server = await start({ args: QUICK })));
  after(async () => {
    audit(server);
    await server.stop();
  });

  // `seats` seats, all of them held by buyers with one each.
  async function heldSale(name, seats, { mode = 'slot', ...more } = {}) {
    const sale = await Sale.open(server, name, {}, { sections: [{ id: 'A', capacity: seats, mode }], ...more });
    const buyers = await sale.buyers(seats);
    for (const buyer of buyers) buyer.hold = await sale.held(buyer, { seats: [buyers.indexOf(buyer) + 1] });
    return { sale, buyers };
  }

  for (const mode of MODES)
    test(`no user is admitted while no seat is available; returned ones admit in order, as far as they reach (${mode})`, async () => {
      const { sale, buyers } = await heldSale(`RETURN/${mode}`, 3, { mode });
      const waiting = await sale.enterAll(['w1', 'w2', 'w3', 'w4']);
      for (const place of waiting) {
        assert.equal(place.status, 'WAITING');
        assert.deepEqual(stockOf(place), { admitting: false, remainingSeats: 0, heldSeats: 3, soldOut: false });
        assert.equal(place.estimatedWaitSeconds, null);
      }
      // Two seats: one by a cancelled hold, one by a user who leaves.
      await sale.cancelled(buyers[0], buyers[0].hold.id);
      assert.equal((await sale.leave(buyers[1].token)).status, 204);
      await sale.becomes(waiting[0].entryToken, 'ACTIVE');
      await sale.becomes(waiting[1].entryToken, 'ACTIVE');
      assert.equal((await sale.numbers()).waiting, 2);
      // The first takes one and the second goes: the third gets the offer of the other seat.
      const first = { userId: 'w1', token: waiting[0].entryToken };
      await sale.held(first, { quantity: 1 });
      assert.equal((await sale.leave(waiting[1].entryToken)).status, 204);
      await sale.becomes(waiting[2].entryToken, 'ACTIVE');
      const last = await sale.status(waiting[3].entryToken);
      assert.deepEqual([last.status, last.position, last.remainingSeats, last.heldSeats], ['WAITING', 1, 1, 2]);
      // That seat is offered to the third, whose stay may last long.
      assert.deepEqual([last.admitting, last.estimatedWaitSeconds, (await sale.enter('w4')).admitting, (await sale.numbers()).admitting], [false, null, false, false]);
    });

  for (const mode of MODES)
    test(`when all is sold, all who wait are told by poll and by stream; a cancelled seat goes to the first (${mode})`, async () => {
      const { sale, buyers } = await heldSale(`SOLD/${mode}`, 2, { mode });
      const [first, second] = await sale.enterAll(['w1', 'w2']);
      const streams = await Promise.all([first, second].map((place) => Stream.open(sale, place.entryToken)));
      for (const stream of streams) await hearsStock(stream, { soldOut: false, heldSeats: 2 });
      await sale.confirmed(buyers[0], buyers[0].hold.id);
      for (const stream of streams) await hearsStock(stream, { soldOut: false, heldSeats: 1 });
      await sale.confirmed(buyers[1], buyers[1].hold.id);
      for (const stream of streams) await hearsStock(stream, SOLD_OUT);
      for (const place of [first, second]) {
        const seen = await sale.status(place.entryToken);
        assert.deepEqual([seen.status, stockOf(seen)], ['WAITING', SOLD_OUT]);
      }
      const late = await sale.enter('late');
      assert.deepEqual([late.status, late.position, stockOf(late)], ['WAITING', 3, SOLD_OUT], 'a seat may still come back');
      await sale.cancelled(buyers[0], buyers[0].hold.id);
      await streams[0].hears('ACTIVE');
      await hearsStock(streams[1], { soldOut: false, position: 1, admitting: false, estimatedWaitSeconds: null, remainingSeats: 1 });
      assert.equal((await sale.status(second.entryToken)).status, 'WAITING');
      for (const stream of streams) stream.destroy();
    });

  test('closesAt ends the waiting, not the holds', async () => {
    const { sale, buyers } = await heldSale('CLOSES/1', 1);
    const place = await sale.enter('waits');
    const stream = await Stream.open(sale, place.entryToken);
    const closesAt = new Date(Date.now() + 1500).toISOString();
    const { status, json } = await server.admin('PATCH', `/admin/events/${sale.name}`, { closesAt });
    assert.deepEqual([status, json.closesAt], [200, closesAt]);
    assert.equal((await server.call('GET', `/events/${sale.name}`)).json.closesAt, closesAt);
    await stream.hears('EXPIRED');
    await stream.toEnd();
    assert.ok(Date.now() >= Date.parse(closesAt));
    const ended = await sale.status(place.entryToken);
    assert.deepEqual([ended.status, ended.eventState, ended.admitting], ['EXPIRED', 'CLOSED', false]);
    assertProblem(await sale.ask('late'), 403, 'closed');
    assertProblem(await sale.hold(buyers[0], { quantity: 1 }), 403, 'closed');
    await sale.confirmed(buyers[0], buyers[0].hold.id);
    // It is open again when the time is removed.
    await server.admin('PATCH', `/admin/events/${sale.name}`, { closesAt: null });
    assert.equal((await sale.enter('late')).eventState, 'OPEN');
  });

  test('closesAt must be after opensAt', async () => {
    const times = (opensAt, closesAt) => ({ title: 'T', sections: [], opensAt, closesAt });
    const put = (body) => server.admin('PUT', '/admin/events/CLOSES/2', body);
    const [early, late] = ['2031-01-01T10:00:00.000Z', '2031-01-01T11:00:00.000Z'];
    assertProblem(await put(times(late, early)), 422, 'invalid_field', /closesAt must be later than opensAt/);
    assertProblem(await put(times(early, early)), 422, 'invalid_field', /closesAt/);
    assertProblem(await put(times(early, 'soon')), 422, 'invalid_field', /closesAt/);
    assert.equal((await put(times(early, late))).status, 201);
    assertProblem(await server.admin('PATCH', '/admin/events/CLOSES/2', { opensAt: late }), 422, 'invalid_field', /closesAt/);
  });

  test('a user with maxPerUser seats takes no place, and may again when one is given back', async () => {
    const { sale, buyers } = await heldSale('LIMIT/1', 2, { maxPerUser: 1 });
    const [ann] = buyers;
    assert.equal((await sale.enter(ann.userId)).entryToken, ann.token, 'the place that is there');
    await sale.confirmed(ann, ann.hold.id);
    await sale.becomes(ann.token, 'COMPLETED');
    assertProblem(await sale.ask(ann.userId), 403, 'limit_exceeded', /maxPerUser/);
    await sale.cancelled(ann, ann.hold.id);
    assert.equal((await sale.enter(ann.userId)).status, 'ACTIVE');
  });

  test('with autoEnter a user with maxPerUser seats is refused without a place', async () => {
    const sale = await Sale.open(server, 'LIMIT/2', {}, { autoEnter: true, maxPerUser: 1 });
    const ask = () => server.call('POST', '/reservations', { body: { userId: 'ann', eventType: 'LIMIT', eventId: '2', section: 'A', quantity: 1 } });
    const { json } = await ask();
    await sale.confirmed(bearerless('ann', await sale.enter('ann')), json.id);
    await until('the place has ended', async () => (await sale.numbers()).active === 0);
    const refused = await ask();
    assertProblem(refused, 409, 'limit_exceeded');
    assert.equal(refused.headers['x-queue-token'], undefined);
    assert.equal((await sale.numbers()).entered, 1);
  });

  test('seatsAhead is what those ahead take if they take as many as others did, from 20 stays on', async () => {
    const sale = await Sale.open(server, 'AHEAD/1', { maxActive: 1, entryIntervalSeconds: 1 }, { sections: [{ id: 'A', capacity: 100 }] });
    const stay = async (user, seats) => {
      const buyer = await sale.buyer(user);
      if (seats > 0) await sale.confirmed(buyer, (await sale.held(buyer, { quantity: seats })).id);
      else assert.equal((await sale.leave(buyer.token)).status, 204);
      await until('the stay has ended', async () => (await sale.numbers()).active === 0);
    };
    for (let i = 0; i < 19; i++) await stay(`u${i}`, i % 2); // nine seats
    await sale.enter('active');
    const [one, two, three] = await sale.enterAll(['w1', 'w2', 'w3']);
    assert.deepEqual([one, two, three].map(({ seatsAhead }) => seatsAhead), [null, null, null]);
    assert.equal((await sale.leave((await sale.enter('active')).entryToken)).status, 204);
    const active = await sale.becomes(one.entryToken, 'ACTIVE');
    assert.equal(active.seatsAhead, 0);
    // Nine seats in 20 stays: nobody is ahead of the next, 0.45 seats ahead of the one behind.
    assert.equal((await sale.status(two.entryToken)).seatsAhead, 0);
    assert.equal((await sale.status(three.entryToken)).seatsAhead, 1);
    const more = await sale.enterAll(['w4', 'w5', 'w6']);
    assert.deepEqual(more.map(({ seatsAhead }) => seatsAhead), [1, 2, 2], 'ceil(0.9), ceil(1.35), ceil(1.8)');
    const stream = await Stream.open(sale, more[2].entryToken);
    await hearsStock(stream, { seatsAhead: 2 });
    stream.destroy();
  });

  test('an event without sections is a waiting room without stock', async () => {
    const sale = await Sale.open(server, 'ROOM/1', { maxActive: 1 }, { sections: [] });
    const first = await sale.enter('first');
    const second = await sale.enter('second');
    assert.deepEqual([first.status, second.status], ['ACTIVE', 'WAITING']);
    assert.deepEqual(stockOf(second), { admitting: true, remainingSeats: null, heldSeats: null, soldOut: false });
    assert.equal((await sale.gate(first.entryToken)).status, 204);
    assert.equal((await sale.leave(first.entryToken)).status, 204);
    await sale.becomes(second.entryToken, 'ACTIVE');
    assertProblem(await sale.hold({ token: second.entryToken }, { quantity: 1 }), 404, 'section_not_found');
    assert.deepEqual((await server.call('GET', `/events/${sale.name}`)).json.sections, []);
    assert.equal((await server.admin('DELETE', `/admin/events/${sale.name}`)).status, 204);
  });

  test('what the queue knows of seats is right after a restart', async () => {
    const dataDir = tempFolder();
    const own = await start({ dataDir, args: QUICK });
    const sale = await Sale.open(own, 'AGAIN/1', {}, { sections: [{ id: 'A', capacity: 1 }] });
    const ann = await sale.buyer('ann');
    const { id } = await sale.held(ann);
    const place = await sale.enter('waits');
    await own.stop();
    const again = await start({ dataDir, args: QUICK });
    const after = new Sale(again, sale.name);
    const seen = await after.status(place.entryToken);
    assert.deepEqual([seen.status, stockOf(seen)], ['WAITING', { admitting: false, remainingSeats: 0, heldSeats: 1, soldOut: false }]);
    await after.confirmed(ann, id);
    assert.deepEqual(stockOf(await after.status(place.entryToken)), SOLD_OUT);
    await after.cancelled(ann, id);
    await after.becomes(place.entryToken, 'ACTIVE');
    await again.stop();
    removeFolder(dataDir);
  });

  // The seat that came back was offered to the first. The server no longer knows that, and offers it
  // once more: to one user, not to all.
  test('a seat that came back admits one user after a restart, also when Redis has to be rebuilt', async () => {
    const dataDir = tempFolder();
    const own = await start({ dataDir, args: QUICK });
    const sale = await Sale.open(own, 'AGAIN/2', { maxActive: 10 }, { sections: [{ id: 'A', capacity: 2 }] });
    const [ann, ben] = await sale.buyers(2);
    const [anns, bens] = [await sale.held(ann), await sale.held(ben)];
    const waiting = await sale.enterAll(users(6, 'waits'));
    await sale.confirmed(ann, anns.id);
    await sale.cancelled(ben, bens.id);
    await sale.becomes(waiting[0].entryToken, 'ACTIVE');
    assert.equal((await sale.numbers()).waiting, 5);
    await own.stop();
    if (isCluster) forgetHot(dataDir);
    const again = await start({ dataDir, args: QUICK });
    const after = new Sale(again, sale.name);
    await after.becomes(waiting[1].entryToken, 'ACTIVE');
    assert.equal((await after.numbers()).waiting, 4);
    assert.equal((await after.status(waiting[2].entryToken)).position, 1);
    await again.stop();
    removeFolder(dataDir);
  });
});

test('the news that all is sold, and that a seat is back, does not wait for the next look', async () => {
  // Each stream is looked at every 40 s.
  const server = await start({ args: ['--push-interval-ms', '40000', '--queue-tick-ms', '20'] });
  const sale = await Sale.open(server, 'NEWS/1', {}, { sections: [{ id: 'A', capacity: 1 }] });
  const ann = await sale.buyer('ann');
  const { id } = await sale.held(ann);
  const places = await sale.enterAll(['w1', 'w2']);
  const streams = [];
  // One on each node, where there are two.
  for (const [i, place] of places.entries())
    streams.push(await Stream.open(new Sale(server.nodes[i % server.nodes.length], sale.name), place.entryToken));
  for (const stream of streams) await hearsStock(stream, { soldOut: false });
  await sale.confirmed(ann, id);
  for (const stream of streams) await hearsStock(stream, SOLD_OUT, 25000);
  await sale.cancelled(ann, id);
  await hearsStock(streams[1], { soldOut: false }, 25000);
  for (const stream of streams) stream.destroy();
  await server.stop();
});

const bearerless = (userId, { entryToken }) => ({ userId, token: entryToken });

const WAITING = times(5000);
test(`${WAITING} wait on streams while all is sold: how soon the last is told; returned seats reach the first in order`, async (t) => {
  const server = await start({ args: ['--queue-tick-ms', '20'] });
  const SEATS = 100;
  const sale = await Sale.open(server, 'RUSH/1', { maxActive: SEATS }, { sections: [{ id: 'A', capacity: SEATS }] });
  const agent = keepAlive(64);
  const streams = [];
  try {
    const buyers = await eachOf(users(SEATS, 'buyer'), 16, async (userId) => ({ userId, token: (await sale.enter(userId, { agent })).entryToken }));
    const waiting = await eachOf(users(WAITING, 'waits'), 32, (userId) => sale.enter(userId, { agent }));
    waiting.sort((a, b) => a.position - b.position);
    await eachOf(waiting, 64, async ({ entryToken }) => streams.push(Object.assign(await Stream.open(sale, entryToken), { entryToken })));
    const isTold = ({ events }) => events.some(({ data }) => data.soldOut);
    await eachOf(buyers, 16, async (buyer) => (buyer.id = (await sale.held(buyer, { quantity: 1 }, { agent })).id));
    let soldMs;
    await eachOf(buyers, 16, async (buyer) => {
      await sale.confirmed(buyer, buyer.id, { agent });
      soldMs = performance.now();
    });
    await until('all are told', () => streams.every(isTold));
    const toldMs = streams.map(({ events }) => events.find(({ data }) => data.soldOut).atMs - soldMs).sort((a, b) => a - b);
    t.diagnostic(`${WAITING} waiting: told that all is sold after ${toldMs[WAITING >> 1].toFixed(0)} ms (median), the last after ${toldMs.at(-1).toFixed(0)} ms`);
    assert.ok(streams.every(({ closed }) => !closed), 'they go on waiting');
    for (const buyer of buyers.slice(0, 10)) await sale.cancelled(buyer, buyer.id, { agent });
    const byToken = new Map(streams.map((stream) => [stream.entryToken, stream]));
    const first = waiting.slice(0, 10).map(({ entryToken }) => byToken.get(entryToken));
    for (const stream of first) await stream.hears('ACTIVE');
    await until('those behind have moved up', () => byToken.get(waiting[10].entryToken).last.data.position === 1);
    assert.equal((await sale.numbers()).waiting, WAITING - 10, 'ten seats admit ten users');
    assert.equal((await sale.status(waiting[10].entryToken, { headers: bearer(waiting[10].entryToken) })).status, 'WAITING');
  } finally {
    agent.release();
    for (const stream of streams) stream.destroy();
    audit(server);
    await server.stop();
  }
});
