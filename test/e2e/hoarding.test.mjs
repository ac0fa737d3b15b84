// A user who gives seats up cannot name them again for a while, and a stay has a limited number of holds.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { bearer } from './support/queue.mjs';
import { RequestSale } from './support/requests.mjs';
import { Sale, MODE_OF, assertHotIsLedger, audit } from './support/reservations.mjs';
import { assertProblem, start, test, until } from './support/server.mjs';

const MODES = [...new Set(Object.values(MODE_OF))];
const MODE_SECTIONS = MODES.map((mode) => ({ id: mode, capacity: 6, mode }));

// The seats, and when they may be named again.
function givenUp(answer, seats) {
  assert.equal(answer.status, 409, answer.text);
  assert.equal(answer.json.code, 'seat_given_up', answer.text);
  assert.deepEqual(answer.json.seats, seats);
  return Date.parse(answer.json.availableAt);
}

describe('hoarding', () => {
  let server;
  before(async () => (server = await start({ args: ['--queue-tick-ms', '10'] })));
  after(async () => {
    audit(server);
    await server.stop();
  });
  const open = (name, more, of = Sale) => of.open(server, name, {}, { sections: MODE_SECTIONS, maxPerUser: 100, reholdSeconds: 60, ...more });

  test('by default a user cannot take the seats again that he gave back in the last minute; others can', async () => {
    const sale = await open('AGAIN/1', { reholdSeconds: undefined });
    const [ann, ben] = await sale.buyers(2);
    for (const section of MODES) {
      const { id } = await sale.held(ann, { section, seats: [1, 2] });
      const { endedAt } = await sale.cancelled(ann, id);
      assert.equal(givenUp(await sale.hold(ann, { section, seats: [2, 3] }), [2]), Date.parse(endedAt) + 60000);
      assert.deepEqual(await sale.counts(section), { available: 6, held: 0, confirmed: 0 }, 'the claim is given back');
      const { firstSeatId } = await sale.map(section);
      givenUp(await server.call('POST', '/reservations', { headers: bearer(ann.token), body: { seatId: firstSeatId } }), [1]);
      await sale.held(ann, { section, seats: [3] });
      const any = await sale.held(ann, { section, quantity: 3 });
      assert.equal(any.seats.length, 3, 'seats that the server chooses may be any');
      await sale.cancelled(ann, any.id);
      const between = await sale.held(ben, { section, seats: [1] });
      await sale.cancelled(ben, between.id);
      givenUp(await sale.hold(ben, { section, seats: [1] }), [1]);
      await sale.held(ann, { section, seats: [1] });
    }
    await assertHotIsLedger(sale);
  });

  test('a hold that expires counts, until reholdSeconds are over', async () => {
    const sale = await open('AGAIN/2', { holdSeconds: 2, reholdSeconds: 3 });
    const ann = await sale.buyer('ann');
    for (const section of ['slot', 'seat']) {
      const { id } = await sale.held(ann, { section, seats: [4] });
      await until('it has expired', async () => (await sale.counts(section)).held === 0);
      const { endedAt } = await sale.got(ann, id, 'EXPIRED');
      // From when the server has ended it, which may be a moment after its time.
      let availableMs = Date.parse(endedAt) + 3000;
      const tries = await until('it may be held again', async () => {
        const answer = await sale.hold(ann, { section, seats: [4] });
        if (answer.status === 201) return answer;
        const told = givenUp(answer, [4]);
        assert.ok(told >= availableMs, `${told} ${availableMs}`);
        availableMs = told;
      });
      assert.ok(Date.parse(tries.json.createdAt) >= availableMs, tries.text);
    }
  });

  test('leaving gives seats up, too; buying and giving back does not', async () => {
    const sale = await open('AGAIN/3', { cancelConfirmed: true });
    let ann = await sale.buyer('ann');
    for (const section of ['slot', 'seat']) {
      await sale.held(ann, { section, seats: [1] });
      const { id } = await sale.held(ann, { section, seats: [2] });
      await sale.confirmed(ann, id);
      await sale.cancelled(ann, id);
      assert.equal((await sale.leave(ann.token)).status, 204);
      ann = await sale.buyer('ann');
      givenUp(await sale.hold(ann, { section, seats: [1, 2] }), [1]);
      await sale.held(ann, { section, seats: [2] });
    }
  });

  test('an asynchronous request for such a seat fails', async () => {
    const sale = await open('AGAIN/4', {}, RequestSale);
    const ann = await sale.buyer('ann');
    for (const section of ['slot', 'seat']) {
      const { id } = await sale.held(ann, { section, seats: [1] });
      await sale.cancelled(ann, id);
      const { requestId } = await sale.accepted(ann, { section, seats: [1] });
      const decided = await sale.decided(ann, requestId);
      assert.deepEqual([decided.status, decided.reason], ['FAIL', 'seat_given_up']);
    }
  });

  test('a stay has maxHoldsPerStay holds, and repeated or refused requests are none', async () => {
    const sale = await open('STAY/1', { maxHoldsPerStay: 2, reholdSeconds: 0 });
    const ben = await sale.buyer('ben');
    await sale.held(ben, { section: 'slot', seats: [6] });
    for (const section of MODES) {
      const ann = await sale.buyer(`ann-${section}`);
      const headers = { 'idempotency-key': 'k' };
      const first = await sale.held(ann, { section, quantity: 1 }, { headers });
      assert.equal((await sale.hold(ann, { section, quantity: 1 }, { headers })).json.id, first.id);
      await sale.cancelled(ann, first.id);
      assertProblem(await sale.hold(ann, { section, quantity: 100 }), 409, 'sold_out');
      const answers = await Promise.all([1, 2, 3].map(() => sale.hold(ann, { section, quantity: 1 })));
      assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 403, 403]);
      for (const answer of answers) if (answer.status === 403) assertProblem(answer, 403, 'hold_limit');
      assert.equal((await sale.leave(ann.token)).status, 204);
      const again = await sale.buyer(`ann-${section}`);
      await sale.held(again, { section, quantity: 1 });
      assert.equal((await sale.leave(again.token)).status, 204);
    }
    assert.equal((await server.admin('PATCH', '/admin/events/STAY/1', { maxHoldsPerStay: 1 })).status, 200);
    assertProblem(await sale.hold(ben, { section: 'slot', quantity: 1 }), 403, 'hold_limit');
    assert.equal((await server.admin('PATCH', '/admin/events/STAY/1', { maxHoldsPerStay: 0 })).status, 200);
    await sale.held(ben, { section: 'slot', quantity: 1 });
    await assertHotIsLedger(sale);
  });

  test('both are settings of the event with ranges', async () => {
    await open('RANGE/1');
    const patch = (body) => server.admin('PATCH', '/admin/events/RANGE/1', body);
    for (const [name, max] of [['reholdSeconds', 3600], ['maxHoldsPerStay', 1000]]) {
      for (const good of [0, 1, max]) {
        assert.equal((await patch({ [name]: good })).json[name], good);
        assert.equal((await server.call('GET', '/events/RANGE/1')).json[name], good);
      }
      for (const wrong of [-1, max + 1, 1.5, '1', null]) assertProblem(await patch({ [name]: wrong }), 422, 'invalid_field');
    }
  });
});
