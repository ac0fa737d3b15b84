// A node is stopped (SIGSTOP) for longer than its locks' lease, and then continues.
import assert from 'node:assert/strict';

import { pause, until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const LEASE_MS = 500;
const args = ['--lock-lease-ms', String(LEASE_MS)];
const SEAT = { section: 'E', strategy: 'distributed-lock', seats: [200] };

const seatLocks = (cluster) => cluster.redisCli('--raw', 'KEYS', 'lock:*').then((text) => text.split('\n').filter(Boolean));

// A single request to that node; undefined until it is answered.
function holdOn(node, person) {
  const asked = { answer: undefined };
  asked.done = node
    .call('POST', '/reservations', {
      headers: person.headers,
      body: { eventType: 'CONCERT', eventId: '1', ...SEAT },
      timeoutMs: 30000,
    })
    .then((answer) => (asked.answer = answer));
  return asked;
}

chaos('pitfall 20: a write under a lock that another node has by now is refused', { proxies: true, args, load: { activeTtlSeconds: 30 } }, async (cluster, load) => {
  const [stopped, other] = cluster.nodes;
  const [slow, fast] = await Promise.all([load.guest(), load.guest()]);
  stopped.postgres.hold();
  const before = new Set(await seatLocks(cluster));
  const late = holdOn(stopped, slow);
  await until('the lock is taken', async () => (await seatLocks(cluster)).some((key) => !before.has(key) && /200/.test(key)));
  await pause(100); // the write is under way
  stopped.signal('SIGSTOP');
  const won = await until('the other node has the lock', async () => {
    const hold = await load.hold(fast, `fast-${performance.now()}`, SEAT, other);
    return hold;
  }, 15000);
  await load.finish(fast, won, 'cancel', 'CANCELLED', other); // the seat is free, and was in other hands
  stopped.postgres.release();
  await pause(200);
  stopped.signal('SIGCONT');
  await late.done;
  // Its own way to PostgreSQL stood still, too: it may know no more than that.
  assert.ok(['lock_lost', 'ledger_failed', 'ledger_unknown', 'lock_timeout'].includes(late.answer.json?.code), late.answer.text);
  load.done[`late ${late.answer.json.code}`] = 1;
  const [{ n }] = await cluster.ask(`SELECT count(*) AS n FROM reservations WHERE user_id = '${slow.userId}' AND status <> 'VOID'`);
  assert.equal(n, 0);
});
