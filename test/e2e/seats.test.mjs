// The public view of an event's seats: counts and strategies of its sections, seat maps, the counts in
// the queue's answers, and the gauges.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { WaitingRoom } from './support/queue.mjs';
import { Sale } from './support/reservations.mjs';
import { assertProblem, concert, isCluster, lasting, start, test } from './support/server.mjs';

const SEAT_BITS = 2 ** 20;

let server;
before(async () => (server = await start()));
after(() => server.stop());

const put = (name, sections) => server.admin('PUT', `/admin/events/${name}`, concert({ sections }));
const get = (name, section, query = '') => server.call('GET', `/events/${name}/sections/${section}/seats${query}`);

async function mapOf(name, section, query = '') {
  const answer = await get(name, section, query);
  assert.equal(answer.status, 200, answer.text.slice(0, 200));
  assert.equal(answer.headers['cache-control'], 'no-store');
  assert.deepEqual(Object.keys(answer.json), ['section', 'capacity', 'firstSeatId', 'from', 'count', 'next', 'available', 'held', 'confirmed', /form=runs/.test(query) ? 'runs' : 'seats']);
  assert.equal(answer.json.section, section);
  return answer.json;
}

describe('the map of a section', () => {
  test('a fresh one is free, whatever its size', async () => {
    const sizes = [1, 2, 100, 65535, 65536, 65537, 131072];
    await put('MAP/1', sizes.map((capacity) => ({ id: `S${capacity}`, capacity })));
    for (const capacity of sizes) {
      const map = await mapOf('MAP/1', `S${capacity}`);
      assert.equal(map.seats, 'A'.repeat(capacity));
      assert.deepEqual([map.capacity, map.available, map.held, map.confirmed], [capacity, capacity, 0, 0]);
      assert.deepEqual([map.from, map.count, map.next], [1, capacity, null]);
    }
  });

  test('each section has numbers of its own for its seats, and keeps them through changes', async () => {
    await put('MAP/2', [{ id: 'A', capacity: 10 }, { id: 'B', capacity: 10 }]);
    await put('MAP/3', [{ id: 'A', capacity: 10 }]);
    const firsts = [];
    for (const [name, section] of [['MAP/2', 'A'], ['MAP/2', 'B'], ['MAP/3', 'A']]) firsts.push((await mapOf(name, section)).firstSeatId);
    assert.equal(new Set(firsts).size, 3);
    for (const first of firsts) {
      assert.equal(first % SEAT_BITS, 1);
      assert.ok(first > SEAT_BITS);
    }
    await put('MAP/2', [{ id: 'B', capacity: 20 }, { id: 'A', capacity: 5 }]);
    const [a, b] = [await mapOf('MAP/2', 'A'), await mapOf('MAP/2', 'B')];
    assert.deepEqual([a.firstSeatId, b.firstSeatId], firsts.slice(0, 2));
    assert.deepEqual([a.seats.length, b.seats.length], [5, 20]);
  });

  test('a million seats come whole, while others are served', async () => {
    await put('MAP/big', [{ id: 'A', capacity: 1000000 }]);
    const map = await mapOf('MAP/big', 'A');
    assert.equal(map.seats.length, 1000000);
    assert.match(map.seats, /^A+$/);
    assert.equal(map.available, 1000000);
    const [many, health] = await Promise.all([
      Promise.all(Array.from({ length: 8 }, () => mapOf('MAP/big', 'A'))),
      server.call('GET', '/health'),
    ]);
    assert.equal(health.status, 200);
    for (const one of many) assert.deepEqual(one, map);
  });

  test('from and limit show a part of it, and the parts together are the whole', async () => {
    const sale = await Sale.open(server, 'PART/1', {}, { maxPerUser: 1000, sections: [{ id: 'A', capacity: 70000 }] });
    const ann = await sale.buyer('ann');
    const { id } = await sale.held(ann, { seats: [2, 3, 65536, 65537] });
    await sale.confirmed(ann, id);
    await sale.held(await sale.buyer('ben'), { seats: [1, 4, 70000] });
    const whole = await mapOf('PART/1', 'A');
    assert.deepEqual([whole.seats.slice(0, 6), whole.seats.slice(65534, 65538), whole.seats.at(-1)], ['HCCHAA', 'ACCA', 'H']);
    assert.deepEqual([whole.available, whole.held, whole.confirmed], [69993, 3, 4]);
    for (const [query, from, count] of [['?from=1&limit=3', 1, 3], ['?from=4', 4, 69997], ['?limit=1', 1, 1], ['?from=70000', 70000, 1], ['?from=65535&limit=1000000', 65535, 4466]]) {
      const part = await mapOf('PART/1', 'A', query);
      const letters = whole.seats.slice(from - 1, from - 1 + count);
      assert.equal(part.seats, letters, query);
      assert.deepEqual([part.capacity, part.from, part.count, part.next], [70000, from, count, from + count > 70000 ? null : from + count]);
      assert.deepEqual([part.available, part.held, part.confirmed], ['A', 'H', 'C'].map((one) => letters.split(one).length - 1));
      assert.equal(part.firstSeatId, whole.firstSeatId);
    }
    const parts = [];
    for (let from = 1; from !== null;) {
      const part = await mapOf('PART/1', 'A', `?from=${from}&limit=30000`);
      parts.push(part.seats);
      from = part.next;
    }
    assert.equal(parts.length, 3);
    assert.equal(parts.join(''), whole.seats);
    const { runs, count, available, held, confirmed } = await mapOf('PART/1', 'A', '?form=runs');
    assert.deepEqual([count, available, held, confirmed], [70000, 69993, 3, 4]);
    assert.deepEqual(runs, [
      { state: 'H', from: 1, count: 1 },
      { state: 'C', from: 2, count: 2 },
      { state: 'H', from: 4, count: 1 },
      { state: 'A', from: 5, count: 65531 },
      { state: 'C', from: 65536, count: 2 },
      { state: 'A', from: 65538, count: 4462 },
      { state: 'H', from: 70000, count: 1 },
    ]);
    assert.deepEqual((await mapOf('PART/1', 'A', '?form=runs&from=3&limit=3')).runs, [{ state: 'C', from: 3, count: 1 }, { state: 'H', from: 4, count: 1 }, { state: 'A', from: 5, count: 1 }]);
    assert.equal((await mapOf('PART/1', 'A', '?form=letters&limit=2')).seats, 'HC');
  });

  test('a page of runs is bounded, and the pages together are the whole', async () => {
    const capacity = 22000;
    const sale = await Sale.open(server, 'PART/2', {}, { maxPerUser: 1000, sections: [{ id: 'A', capacity }] });
    const every = async (who, from) => sale.held(who, { seats: Array.from({ length: 1000 }, (_, i) => from + 2 * i) });
    await Promise.all((await sale.buyers(capacity / 2000)).map((who, i) => every(who, 1 + 2000 * i)));
    const sizes = [];
    let letters = '';
    for (let from = 1; from !== null;) {
      const { runs, next, held } = await mapOf('PART/2', 'A', `?form=runs&from=${from}`);
      for (const run of runs) {
        assert.equal(run.from, letters.length + 1);
        letters += run.state.repeat(run.count);
      }
      assert.equal(held, runs.filter(({ state }) => state === 'H').length);
      sizes.push(runs.length);
      from = next;
    }
    assert.deepEqual(sizes, [10000, 10000, 2000]);
    assert.equal(letters, 'HA'.repeat(capacity / 2));
  });

  test('a part that can not be is refused with what is possible', async () => {
    await put('PART/3', [{ id: 'A', capacity: 50 }]);
    for (const [query, detail] of [
      ['?from=0', /^from must be a whole number from 1 to 50\.$/],
      ['?from=51', /^from must be a whole number from 1 to 50\.$/],
      ['?from=-1', /^from /], ['?from=', /^from /], ['?from=x', /^from /],
      ['?limit=0', /^limit must be a whole number from 1 to 1000000\.$/],
      ['?limit=1000001', /^limit /], ['?limit=1.5', /^limit /], ['?limit=', /^limit /],
      ['?form=json', /^form must be letters or runs\.$/], ['?form=', /^form /],
    ])
      assert.match(assertProblem(await get('PART/3', 'A', query), 400, 'invalid_parameter').detail, detail, query);
  });

  test('HEAD has its length and no body', async () => {
    await put('MAP/4', [{ id: 'A', capacity: 300 }]);
    const { text } = await get('MAP/4', 'A');
    const head = await server.call('HEAD', '/events/MAP/4/sections/A/seats');
    assert.deepEqual([head.status, head.text, Number(head.headers['content-length'])], [200, '', text.length]);
  });

  test('of an event or a section that is not there it is 404', async () => {
    await put('MAP/5', [{ id: 'A', capacity: 1 }]);
    assertProblem(await get('MAP/none', 'A'), 404, 'event_not_found');
    assertProblem(await get('MAP/5', 'a'), 404, 'section_not_found');
    assertProblem(await get('MAP/5', 'A%2f'), 404, 'section_not_found');
    assertProblem(await get('MAP/5', 'x'.repeat(500)), 404, 'section_not_found');
    assert.equal((await server.admin('DELETE', '/admin/events/MAP/5')).status, 204);
    assertProblem(await get('MAP/5', 'A'), 404, 'event_not_found');
  });
});

describe('sections', () => {
  test('each says the strategy of a reservation that names none, and it may be sent back', async () => {
    const modes = { slot: 'slot', lock: 'lock', adaptive: 'lock', seat: 'optimistic' };
    const created = await put('STRATEGY/1', Object.keys(modes).map((mode) => ({ id: mode, capacity: 5, mode })));
    const shown = (await server.call('GET', '/events/STRATEGY/1')).json;
    for (const { sections } of [created.json, shown])
      assert.deepEqual(Object.fromEntries(sections.map((s) => [s.mode, s.strategy])), modes);
    const sections = shown.sections.map((s) => ({ ...s, strategy: 'slot' }));
    assert.equal((await server.admin('PATCH', '/admin/events/STRATEGY/1', { sections })).status, 200);
    assert.deepEqual((await server.call('GET', '/events/STRATEGY/1')).json.sections, shown.sections);
    assert.equal((await server.admin('PATCH', '/admin/events/STRATEGY/1/sections/seat', { strategy: 'queue' })).status, 200);
  });

  test('one event, the list and the admin show the same counts', async () => {
    await put('COUNTS/1', [{ id: 'B', capacity: 7 }, { id: 'A', capacity: 9 }]);
    await put('COUNTS/1', [{ id: 'C', capacity: 3 }, { id: 'A', capacity: 8 }, { id: 'B', capacity: 7 }]);
    const one = lasting((await server.call('GET', '/events/COUNTS/1')).json);
    assert.deepEqual(one.sections.map((s) => [s.id, s.capacity, s.available, s.held, s.confirmed]), [['C', 3, 3, 0, 0], ['A', 8, 8, 0, 0], ['B', 7, 7, 0, 0]]);
    const [listed] = (await server.call('GET', '/events?type=COUNTS')).json.events;
    const { page, returnHosts, notice, ...inList } = one;
    assert.deepEqual(lasting(listed), inList);
    assert.deepEqual([page, returnHosts, notice], [null, [], null]);
    assert.deepEqual((await server.admin('GET', '/admin/events/COUNTS/1')).json.sections, one.sections);
  });

  test('events that are deleted while they are listed and counted are left out, and nothing breaks', async () => {
    let over = false;
    const churn = async (id) => {
      for (let i = 0; i < 30; i++) {
        assert.equal((await put(`CHURN/${id}`, [{ id: 'A', capacity: 50 }])).status, 201);
        assert.equal((await server.admin('DELETE', `/admin/events/CHURN/${id}`)).status, 204);
      }
    };
    const look = async () => {
      while (!over) {
        for (const event of (await server.call('GET', '/events?type=CHURN')).json.events) assert.equal(event.sections[0].available, 50);
        const one = await server.call('GET', '/events/CHURN/2');
        if (one.status !== 200) assertProblem(one, 404, 'event_not_found');
        const map = await get('CHURN/2', 'A');
        // A node that does not know the newest event of that name yet looks up the sections of the
        // last one.
        if (map.status !== 200) assertProblem(map, 404, isCluster && map.json.code === 'section_not_found' ? 'section_not_found' : 'event_not_found');
        assert.equal((await server.call('GET', '/metrics')).status, 200);
      }
    };
    const looking = [look(), look()];
    await Promise.all([1, 2, 3, 4].map(churn)).finally(() => (over = true));
    await Promise.all(looking);
  });
});

describe('what is left', () => {
  test('the queue\'s answers say how many seats, and follow the sections', async () => {
    const room = await WaitingRoom.open(server, 'LEFT/1', { maxActive: 1 }, { sections: [{ id: 'A', capacity: 10 }, { id: 'B', capacity: 5 }] });
    const ann = await room.enter('ann');
    const ben = await room.enter('ben');
    assert.deepEqual([ann.status, ben.status], ['ACTIVE', 'WAITING']);
    for (const place of [ann, ben]) assert.deepEqual([place.remainingSeats, place.reserving], [15, false]);
    assert.equal((await server.admin('PATCH', '/admin/events/LEFT/1/sections/B', { capacity: 25 })).status, 200);
    for (const { entryToken } of [ann, ben]) assert.equal((await room.status(entryToken)).remainingSeats, 35);
    assert.equal((await room.enter('ben')).remainingSeats, 35);
  });

  test('the gauges tell the seats of every section by state', async () => {
    await put('GAUGE/1', [{ id: 'A', capacity: 10 }, { id: 'b.2', capacity: 1000000 }]);
    const { text } = await server.call('GET', '/metrics');
    const lines = text.split('\n').filter((line) => /^admitone_seat\w*\{event="GAUGE/.test(line));
    assert.deepEqual(lines, [
      'admitone_seats{event="GAUGE/1",section="A",state="available"} 10',
      'admitone_seats{event="GAUGE/1",section="A",state="held"} 0',
      'admitone_seats{event="GAUGE/1",section="A",state="confirmed"} 0',
      'admitone_seats{event="GAUGE/1",section="b.2",state="available"} 1000000',
      'admitone_seats{event="GAUGE/1",section="b.2",state="held"} 0',
      'admitone_seats{event="GAUGE/1",section="b.2",state="confirmed"} 0',
      'admitone_seat_use_ratio{event="GAUGE/1",section="A"} 0.0000',
      'admitone_seat_use_ratio{event="GAUGE/1",section="b.2"} 0.0000',
    ]);
  });
});
