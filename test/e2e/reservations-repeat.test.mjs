// Idempotency-Key: a repeated request gets the first answer again, and is executed once.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { Raw, request } from './support/raw.mjs';
import { bearer, query } from './support/queue.mjs';
import { Sale, MODE_OF, STRATEGIES, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
import { assertProblem, concert, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

const QUICK = ['--queue-tick-ms', '10'];
const PARALLEL = 20;

let server;
before(async () => (server = await start({ args: QUICK })));
after(async () => {
  audit(server);
  await server.stop();
});

const open = (name, strategy = 'slot', capacity = 20, more = {}, queue = {}) =>
  Sale.open(server, name, queue, { maxPerUser: 100, sections: [{ id: 'A', capacity, mode: MODE_OF[strategy] }], ...more });
// A key is its user's in all events, so each event has its own here.
const keyed = (sale, key) => ({ headers: { 'idempotency-key': `${sale.name} ${key}` } });

// The first answer to the key, and the function that asks again and wants the same.
async function asked(sale, who, key, wish = { quantity: 2 }) {
  const first = await sale.hold(who, wish, keyed(sale, key));
  assert.equal(first.status, 201, first.text);
  assert.equal(first.headers['idempotency-replayed'], undefined);
  const again = async (at = sale) => assertSame(await at.hold(who, wish, keyed(sale, key)), first);
  return { first, again, id: first.json.id };
}

function assertSame(answer, first) {
  assert.deepEqual([answer.status, answer.text], [201, first.text]);
  assert.equal(answer.headers['idempotency-replayed'], 'true');
  assert.equal(answer.headers['content-type'], first.headers['content-type']);
  assert.equal(answer.headers['cache-control'], 'no-store');
  assert.equal(answer.headers.location, first.headers.location);
}

describe('the same key and body', { concurrency: 4 }, () => {
  for (const strategy of STRATEGIES) {
    test(`${strategy}: the same answer, byte for byte, whatever has become of it`, async () => {
      const sale = await open(`SAME/${strategy}`, strategy);
      const ann = await sale.buyer('ann');
      const wish = { quantity: 2, strategy };
      const confirms = await asked(sale, ann, 'k1', wish);
      const cancels = await asked(sale, ann, 'k2', wish);
      assert.notEqual(confirms.id, cancels.id);
      await confirms.again();
      await sale.cancelled(ann, cancels.id);
      await cancels.again();
      await sale.confirmed(ann, confirms.id);
      assert.equal((await sale.status(ann.token)).status, 'COMPLETED');
      for (const one of [confirms, cancels, confirms]) await one.again();
      assertProblem(await sale.hold(ann, wish, keyed(sale, 'k3')), 403, 'not_active');
      assert.equal(sale.rows().length, 2);
      assert.deepEqual(await sale.counts(), { available: 18, held: 0, confirmed: 2 });
      await assertHotIsLedger(sale);
    });

    test(`${strategy}: ${PARALLEL} at once are one reservation and ${PARALLEL} equal answers`, async () => {
      const sale = await open(`CROWD/${strategy}`, strategy);
      const ann = await sale.buyer('ann');
      for (const wish of [{ quantity: 2, strategy }, { seats: [20], strategy }]) {
        const before = sale.rows().length;
        const answers = await Promise.all(Array.from({ length: PARALLEL }, () => sale.hold(ann, wish, keyed(sale, `crowd ${wish.seats}`))));
        const [{ text }] = answers;
        for (const answer of answers) assert.deepEqual([answer.status, answer.text], [201, text]);
        assert.equal(answers.filter(({ headers }) => headers['idempotency-replayed'] === undefined).length, 1, 'one of them did it');
        assert.equal(sale.rows().length, before + 1);
      }
      assert.deepEqual(await sale.counts(), { available: 17, held: 3, confirmed: 0 });
      await assertHotIsLedger(sale);
    });
  }

  test('the last seat and the limit are no reason to refuse a repeat, at once or later', async () => {
    for (const strategy of ['slot', 'optimistic']) {
      const sale = await open(`LAST/${strategy}`, strategy, 1, { maxPerUser: 1 });
      const ann = await sale.buyer('ann');
      const answers = await Promise.all(Array.from({ length: PARALLEL }, () => sale.hold(ann, { quantity: 1 }, keyed(sale, 'last'))));
      for (const answer of answers) assert.deepEqual([answer.status, answer.text], [201, answers[0].text]);
      assertSame(await sale.hold(ann, { quantity: 1 }, keyed(sale, 'last')), answers.find(({ headers }) => headers.location));
      assertProblem(await sale.hold(ann, { quantity: 1 }), 409, 'limit_exceeded');
      assert.equal(sale.rows().length, 1);
    }
  });

  test('also after the hold has expired, the event was changed, and its section was made again', async () => {
    const sections = [{ id: 'A', capacity: 5, price: 700 }, { id: 'B', capacity: 5, mode: 'seat', price: 800 }];
    const sale = await Sale.open(server, 'CHANGED/1', {}, { sections, holdSeconds: 1 });
    const ann = await sale.buyer('ann');
    const held = [await asked(sale, ann, 'k', { quantity: 1 }), await asked(sale, ann, 'm', { seats: [3], section: 'B' })];
    await until('the holds have expired', () => sale.rows().every(({ status }) => status === 'EXPIRED'));
    for (const { again } of held) await again();
    const change = async (more) => {
      const { status, text } = await server.admin('PUT', '/admin/events/CHANGED/1', concert({ ...more, title: 'Renamed', currency: 'USD', holdSeconds: 300 }));
      assert.equal(status, 200, text);
    };
    await change({ sections: sections.map((one) => ({ ...one, name: 'Renamed', price: 1, capacity: 9 })) });
    for (const { again } of held) await again();
    await change({ sections: [{ id: 'C', capacity: 5 }] });
    assertProblem(await sale.hold(ann, { quantity: 1 }, keyed(sale, 'k')), 404, 'section_not_found');
    await change({ sections: sections.map((one) => ({ ...one, price: 2 })) });
    for (const { again } of held) await again();
    assert.equal(sale.rows().length, 2);
  });

  test('also after a restart, and after a crash, for an ACTIVE and a COMPLETED user', async () => {
    const folder = tempFolder();
    const dataDir = path.join(folder, 'data');
    let own = await start({ dataDir, args: QUICK });
    const sections = [{ id: 'A', capacity: 5 }, { id: 'B', capacity: 5, mode: 'seat' }];
    const sale = await Sale.open(own, 'AGAIN/1', {}, { sections });
    const [ann, ben] = [await sale.buyer('ann'), await sale.buyer('ben')];
    const kept = [await asked(sale, ann, 'k', { quantity: 1 }), await asked(sale, ann, 'm', { quantity: 1, section: 'B' })];
    const done = await asked(sale, ben, 'k', { quantity: 1 });
    const { text } = await sale.confirm(ben, done.id);
    for (const end of ['stop', 'kill9']) {
      await own[end]();
      own = await start({ dataDir, args: QUICK });
      const now = new Sale(own, 'AGAIN/1');
      for (const one of [...kept, done]) await one.again(now);
      assert.equal((await now.status(ben.token)).status, 'COMPLETED');
      assert.equal((await now.confirm(ben, done.id)).text, text);
      assertProblem(await now.hold(ann, { quantity: 2 }, keyed(sale, 'k')), 422, 'idempotency_mismatch');
      assert.equal(now.rows().length, 3);
    }
    audit(own);
    await own.stop();
    removeFolder(folder);
  });

  test('for an event with autoEnter: no second place is taken', async () => {
    const sale = await open('AUTO/1', 'slot', 5, { autoEnter: true }, { maxActive: 1 });
    const wish = { userId: 'auto', quantity: 1 };
    const first = await sale.hold(undefined, wish, keyed(sale, 'auto'));
    assert.equal(first.status, 201, first.text);
    const ann = { token: first.headers['x-queue-token'] };
    assertSame(await sale.hold(ann, wish, keyed(sale, 'auto')), first);
    assertSame(await sale.hold(undefined, wish, keyed(sale, 'auto')), first);
    await sale.confirmed(ann, first.json.id);
    assertSame(await sale.hold(undefined, wish, keyed(sale, 'auto')), first);
    assert.equal((await sale.numbers()).entered, 1);
    assert.equal(sale.rows().length, 1);
  });

  test('for an event with autoEnter, many at once: one place, one reservation', async () => {
    for (const strategy of STRATEGIES) {
      const sale = await open(`AUTO/${strategy}`, strategy, 5, { autoEnter: true });
      const wish = { userId: 'auto', quantity: 1, strategy };
      const answers = await Promise.all(Array.from({ length: PARALLEL }, () => sale.hold(undefined, wish, keyed(sale, 'auto'))));
      for (const answer of answers) assert.deepEqual([answer.status, answer.text], [201, answers[0].text]);
      assert.equal((await sale.numbers()).entered, 1);
      assert.equal(sale.rows().length, 1);
    }
  });

  test('a 202 is not what is kept: a waiting user repeats the same key until the seats are there', async () => {
    const sale = await open('AUTO/2', 'slot', 5, { autoEnter: true }, { maxActive: 1 });
    const first = await sale.buyer('first');
    const wish = { userId: 'waits', quantity: 1 };
    const waits = sale.place(await sale.hold(undefined, wish, keyed(sale, 'w')), 202);
    assert.equal(sale.place(await sale.hold(undefined, wish, keyed(sale, 'w')), 202).position, 1);
    await sale.leave(first.token);
    await sale.becomes(waits.entryToken, 'ACTIVE');
    const held = await sale.hold(undefined, wish, keyed(sale, 'w'));
    assert.deepEqual([held.status, held.headers['idempotency-replayed']], [201, undefined]);
    assertSame(await sale.hold(undefined, wish, keyed(sale, 'w')), held);
  });
});

describe('a key', { concurrency: 4 }, () => {
  test('with another body is 422, and changes nothing', async () => {
    const sale = await open('OTHER/1', 'slot', 20);
    const ann = await sale.buyer('ann');
    const { again, id } = await asked(sale, ann, 'k');
    const others = [{ quantity: 3 }, { seats: [1, 2] }, { quantity: 2, userId: 'ann' }, { quantity: 2, strategy: 'slot' }];
    for (const wish of others) assertProblem(await sale.hold(ann, wish, keyed(sale, 'k')), 422, 'idempotency_mismatch');
    await sale.cancelled(ann, id);
    for (const wish of others) assertProblem(await sale.hold(ann, wish, keyed(sale, 'k')), 422, 'idempotency_mismatch');
    await again();
    assert.equal(sale.rows().length, 1);
  });

  test('with two bodies at once: one is done, the other is 422', async () => {
    for (const strategy of ['slot', 'pessimistic']) {
      const sale = await open(`OTHER/${strategy}`, strategy, 100);
      const ann = await sale.buyer('ann');
      for (let round = 0; round < 10; round++) {
        const answers = await Promise.all([1, 2, 1, 2].map((quantity) => sale.hold(ann, { quantity }, keyed(sale, `round ${round}`))));
        const good = answers.filter(({ status }) => status === 201);
        for (const answer of answers) if (answer.status !== 201) assertProblem(answer, 422, 'idempotency_mismatch');
        assert.ok(good.length >= 1);
        assert.equal(new Set(good.map(({ text }) => text)).size, 1);
        assert.equal(sale.rows().length, round + 1);
      }
    }
  });

  test('is its user\'s own, and its path\'s', async () => {
    const sale = await open('SCOPE/1', 'optimistic');
    const [ann, ben] = await sale.buyers(2, 'scope');
    const mine = await asked(sale, ann, 'k');
    const theirs = await asked(sale, ben, 'k');
    assert.notEqual(mine.id, theirs.id);
    const body = { eventType: 'SCOPE', eventId: '1', section: 'A', quantity: 2 };
    const ids = new Set([mine.id, theirs.id]);
    for (const target of ['/api/v1/optimistic', '/api/v2/pessimistic', '/api/v3/distributed-lock']) {
      const post = () => server.call('POST', target, { body, headers: { ...bearer(ann.token), ...keyed(sale, 'k').headers } });
      const first = await post();
      assert.deepEqual([first.status, first.headers['idempotency-replayed']], [201, undefined]);
      assertSame(await post(), first);
      ids.add(first.json.id);
    }
    await mine.again();
    await theirs.again();
    assert.equal(ids.size, 5);
    assert.equal(sale.rows().length, 5);
  });

  test('is kept with the answer only when it was done: a refusal may become a success', async () => {
    for (const strategy of STRATEGIES) {
      const sale = await open(`LATER/${strategy}`, strategy, 2);
      const [ann, ben] = await sale.buyers(2, 'later');
      const { id } = await sale.held(ann, { quantity: 2, strategy });
      const count = () => query(server.dataDir, `SELECT count(*) AS n FROM idempotency WHERE key = '${sale.name} later'`)[0].n;
      for (let i = 0; i < 2; i++) assertProblem(await sale.hold(ben, { quantity: 1, strategy }, keyed(sale, 'later')), 409, 'sold_out');
      assert.equal(count(), 0);
      await sale.cancelled(ann, id);
      const { again } = await asked(sale, ben, 'later', { quantity: 1, strategy });
      await again();
      assert.equal(count(), 1);
    }
  });

  test('does not bypass the gate: without the token it opens nothing', async () => {
    const sale = await open('GATE/1');
    const [ann, ben] = await sale.buyers(2, 'gate');
    const { first } = await asked(sale, ann, 'k');
    assertProblem(await sale.hold(undefined, { quantity: 2 }, keyed(sale, 'k')), 401, 'token_required');
    assertProblem(await sale.hold(ben, { quantity: 2, userId: 'gate1' }, keyed(sale, 'k')), 403, 'user_mismatch');
    assert.notEqual((await sale.hold(ben, { quantity: 2 }, keyed(sale, 'k'))).text, first.text);
  });

  test('may be 1 to 255 bytes of text, once; anything else is 400, and nothing is done', async () => {
    const sale = await open('TEXT/1', 'slot', 20);
    const ann = await sale.buyer('ann');
    const body = JSON.stringify({ eventType: 'TEXT', eventId: '1', section: 'A', quantity: 1 });
    const post = async (...lines) => {
      const raw = await Raw.connect(server);
      const headers = [`Authorization: Bearer ${ann.token}`, 'Content-Type: application/json', ...lines];
      const answer = await raw.write(request('POST', '/reservations', { headers, body })).answer();
      raw.destroy();
      return answer;
    };
    const utf8 = (text) => Buffer.from(text).toString('latin1');
    for (const lines of [
      ['Idempotency-Key: '],
      [`Idempotency-Key: ${'x'.repeat(256)}`],
      ['Idempotency-Key: a\tb'],
      ['Idempotency-Key: \xff\xfe'],
      ['Idempotency-Key: \xc3'],
      ['Idempotency-Key: a', 'Idempotency-Key: a'],
      ['Idempotency-Key: a', 'idempotency-key: b'],
    ])
      assertProblem(await post(...lines), 400, 'bad_request');
    assert.equal(sale.rows().length, 0);
    const good = ['x', 'x'.repeat(255), 'é "ü" 漢字', '\'; DROP TABLE seats; --', '%00', '{"a": 1}'];
    for (const key of good) {
      const first = await post(`Idempotency-Key: ${utf8(key)}`);
      assert.equal(first.status, 201, key);
      assert.equal((await post(`idempotency-key:   ${utf8(key)}  `)).text, first.text, key);
    }
    assert.equal(sale.rows().length, good.length);
  });

  test('that is replayed is counted as such, and takes no seat', async () => {
    const sale = await open('COUNT/1', 'lock');
    const ann = await sale.buyer('ann');
    // The server is shared with other tests, whose keys may be counted too.
    const replays = () => metric(server, 'admitone_reservation_outcomes_total', { strategy: 'lock', outcome: 'replayed' });
    const { again } = await asked(sale, ann, 'counted');
    const before = await replays();
    for (let i = 0; i < 5; i++) await again();
    assert.ok((await replays()) >= before + 5);
    assert.equal(sale.rows().length, 1);
    assert.deepEqual(await sale.counts(), { available: 18, held: 2, confirmed: 0 });
  });
});
