// Locks while the disk is slow: a holder keeps the lock until its write is on disk, and a request
// that waits too long is refused.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { describe } from 'node:test';
import { Sale, MODE_OF, assertHotIsLedger, audit, metric } from './support/reservations.mjs';
import { onlyOn, test, until, within } from './support/server.mjs';
import { withShim } from './support/shim.mjs';

const LOCKING = ['lock', 'adaptive', 'distributed-lock'];

const saleOf = (server, strategy) =>
  Sale.open(server, `LOCK/${strategy}`, {}, { sections: [{ id: 'A', capacity: 10, mode: MODE_OF[strategy] }] });

const attempts = (server, strategy) => metric(server, 'admitone_reservation_attempts_total', { strategy });
const locked = (server, strategy) => metric(server, 'admitone_lock_wait_seconds_count', { strategy });

// No other request on this server used this strategy.
async function asked(server, strategy, times) {
  await until(`${times} have asked`, async () => (await attempts(server, strategy)) === times);
  await until('the first has the lock', async () => (await locked(server, strategy)) > 0);
}

// The writer waits for the disk: whatever is asked of it now comes in a later batch. Returns the
// answer that it keeps from coming.
async function stopWriter(server, sale) {
  const wal = () => fs.readFileSync(path.join(server.dataDir, 'admitone.db-wal'));
  const before = wal();
  server.hold();
  const answer = sale.ask('somebody else');
  await until('the batch is written', () => !wal().equals(before));
  return { answer };
}

async function each(strategies, args, act) {
  await withShim(async (server) => {
    for (const strategy of strategies) await act(server, strategy, await saleOf(server, strategy));
    audit(server);
  }, args);
}

describe('a lock is given back after the commit, not before (pitfall 19)', () => {
  test('while the first one\'s write is not on disk, the second has no answer', () =>
    each(LOCKING, [], async (server, strategy, sale) => {
      const [ann, ben] = await sale.buyers(2);
      const wish = { seats: [1], strategy };
      server.hold();
      const first = sale.hold(ann, wish);
      await asked(server, strategy, 1);
      const second = sale.hold(ben, wish);
      await asked(server, strategy, 2);
      assert.equal(await within(300, Promise.race([first, second])), 'pending', strategy);
      server.release();
      assert.equal((await first).status, 201);
      assert.equal((await second).json.code, 'seat_taken');
      const heldSeconds = await metric(server, 'admitone_lock_hold_seconds_sum', { strategy });
      assert.ok(heldSeconds >= 0.3, `${strategy}: the lock was held for ${heldSeconds} s, the commit took longer`);
      await assertHotIsLedger(sale);
    }));

  test('so if it never gets there, no request was answered that the seat is taken', onlyOn('memory+sqlite', 'the shim fails the writes of SQLite\'s files'), () =>
    each(LOCKING, [], async (server, strategy, sale) => {
      const buyers = await sale.buyers(20);
      const stopped = await stopWriter(server, sale);
      const answers = buyers.map((who) => sale.hold(who, { seats: [1], strategy }));
      await asked(server, strategy, 20);
      server.fail();
      server.release();
      for (const { status, text } of await Promise.all(answers)) assert.equal(status, 503, `${strategy}: ${text}`);
      server.recover();
      await stopped.answer;
      await until(`${strategy}: the seat is free, for it always was`, async () => {
        const answer = await sale.hold(buyers[0], { seats: [1], strategy });
        assert.ok(answer.status === 201 || answer.status === 503, answer.text);
        return answer.status === 201;
      });
      assert.equal(sale.rows().length, 1);
      await assertHotIsLedger(sale);
    }));
});

test('a request that waits for a lock in vain gets 409 lock_timeout, in time, and leaves nothing behind (pitfall 21)', () =>
  each(LOCKING, ['--lock-wait-ms', '100'], async (server, strategy, sale) => {
    const [ann, ...others] = await sale.buyers(10);
    const wish = { seats: [1], strategy };
    server.hold();
    const first = sale.hold(ann, wish);
    await asked(server, strategy, 1);
    for (const answer of await Promise.all(others.map((who) => sale.hold(who, wish))))
      assert.deepEqual([answer.status, answer.json.code], [409, 'lock_timeout'], `${strategy}: ${answer.text}`);
    assert.equal(await within(0, first), 'pending', 'the first still has it');
    server.release();
    const answer = await first;
    assert.equal(answer.status, 201, answer.text);
    assert.equal(await metric(server, 'admitone_reservation_outcomes_total', { strategy, outcome: 'lock_timeout' }), 9);
    await sale.cancelled(ann, answer.json.id);
    await sale.held(others[0], wish);
    assert.equal(sale.rows().length, 2);
    await assertHotIsLedger(sale);
  }));
