// The metrics of reservations, over all nodes.
import assert from 'node:assert/strict';
import { query } from './support/queue.mjs';
import { Sale, MODE_OF, STRATEGIES, metric } from './support/reservations.mjs';
import { start, test } from './support/server.mjs';

// By each strategy: two seats held by ann, one of them wanted by ben, too many by both, one bought, one
// given back, the last one sold, and then nothing left.
test('/metrics: reservations are counted by strategy and outcome, and seats by state, by exactly as much', async () => {
  const own = await start();
  const sections = STRATEGIES.map((id) => ({ id, capacity: 3, mode: MODE_OF[id] }));
  const sale = await Sale.open(own, 'COUNTED/1', {}, { sections, maxPerUser: 2 * STRATEGIES.length });
  const [ann, ben] = await sale.buyers(2);
  for (const strategy of STRATEGIES) {
    const wish = { section: strategy, strategy };
    const first = await sale.held(ann, { ...wish, seats: [1] });
    const second = await sale.held(ann, { ...wish, seats: [2] });
    assert.equal((await sale.hold(ben, { ...wish, seats: [2] })).json.code, 'seat_taken');
    assert.equal((await sale.hold(ben, { ...wish, quantity: 20 })).json.code, 'limit_exceeded');
    await sale.held(ben, { ...wish, quantity: 1 });
    assert.equal((await sale.hold(ben, { ...wish, quantity: 1 })).json.code, 'sold_out');
    await sale.cancelled(ann, first.id);
    if (strategy !== STRATEGIES.at(-1)) continue;
    await sale.confirmed(ann, second.id); // only the last: it ends no stay before
  }
  const read = (name, labels) => metric(own, `admitone_${name}`, labels);
  for (const strategy of STRATEGIES) {
    const isLast = strategy === STRATEGIES.at(-1);
    assert.equal(await read('reservation_attempts_total', { strategy }), 6);
    for (const [outcome, times] of [['held', 3], ['seat_taken', 1], ['limit_exceeded', 1], ['sold_out', 1], ['replayed', 0], ['not_active', 0], ['failed', 0]])
      assert.equal(await read('reservation_outcomes_total', { strategy, outcome }), times, `${strategy} ${outcome}`);
    assert.equal(await read('reservation_conflicts_total', { strategy }), 1, strategy);
    assert.equal(await read('reservation_retries_total', { strategy }), 0);
    const seats = await Promise.all(['available', 'held', 'confirmed'].map((state) => read('seats', { event: 'COUNTED/1', section: strategy, state })));
    assert.deepEqual(seats, isLast ? [1, 1, 1] : [1, 2, 0], strategy);
    assert.equal(await read('seat_use_ratio', { event: 'COUNTED/1', section: strategy }), 0.6667);
  }
  // One lock for the section, whatever the result; one for each seat that was not refused before.
  for (const [strategy, locks] of [['lock', 6], ['adaptive', 6], ['distributed-lock', 4]])
    for (const what of ['wait', 'hold']) assert.equal(await read(`lock_${what}_seconds_count`, { strategy }), locks, `${strategy} ${what}`);
  assert.equal(await read('slot_claim_seconds_count'), 3 * 6, 'slot, lock and adaptive claim in the hot store');
  assert.equal(await read('reservation_sold_out_answers_total'), STRATEGIES.length);
  assert.equal(await read('reservation_confirms_total'), 1);
  assert.equal(await read('reservation_cancels_total'), STRATEGIES.length);
  assert.equal(await read('reservation_guard_refusals_total'), 0);
  assert.equal(query(own.dataDir, 'SELECT count(*) AS n FROM idempotency')[0].n, 0, 'no key was sent, no row was written');
  await own.stop();
});
