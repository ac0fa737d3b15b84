// A node is stopped for longer than the ledger's deadline while its enters and claims are pending.
// Another node finishes or undoes them, and the late writes of the first one are refused.
import { pause, until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const DEADLINE_MS = 2500;
const args = ['--ledger-deadline-ms', String(DEADLINE_MS)];
const FINISHED = (what) => `admitone_hot_finished_total{what="${what}"}`;

// Counts operations that are pending for 0.7 s or more: only the stalled node has such ones.
async function pendingOf(cluster) {
  const [enters, claims] = await Promise.all(
    ['queue:{CONCERT:1}:pending', 'claim:{CONCERT:1}:pending'].map((key) => cluster.redisCli('ZCOUNT', key, '-inf', String(Date.now() - 700))),
  );
  return { enters: Number(enters), claims: Number(claims) };
}

chaos('pitfall 13: pending operations of a stalled node are finished by another, and its late writes are refused', { proxies: true, args, load: { activeTtlSeconds: 25 } }, async (cluster, load) => {
  const [stalled, other] = cluster.nodes;
  for (let round = 0; round < 2; round++) {
    const buyers = await Promise.all([load.guest(), load.guest(), load.guest()]);
    const takenUp = async (what) => {
      const { text } = await other.call('GET', '/metrics');
      return Number(text.split('\n').find((line) => line.startsWith(FINISHED(what))).split(' ')[1]);
    };
    const before = { enters: await takenUp('enter'), claims: await takenUp('claim') };
    stalled.postgres.hold();
    // Keys would be looked up in the ledger first. They wait for this node, and ask the others only when it has answered with 503.
    const asked = [
      ...Array.from({ length: 4 }, () => load.newPerson()).map((person) => load.enter(person, stalled)),
      ...buyers.map((person, i) => load.hold(person, undefined, { section: 'A', strategy: 'slot', quantity: 1 + (i % 2) }, stalled)),
    ];
    await until('enters and claims are pending', async () => {
      const { enters, claims } = await pendingOf(cluster);
      return enters >= 3 && claims >= 2;
    });
    stalled.signal('SIGSTOP');
    await until(
      'the other node has taken them up',
      async () => (await takenUp('enter')) > before.enters && (await takenUp('claim')) > before.claims,
      15000,
    );
    if (round === 0) stalled.postgres.release();
    await pause(200);
    stalled.signal('SIGCONT');
    await pause(200);
    if (round === 1) stalled.postgres.drop();
    await Promise.all(asked);
    await Promise.all(buyers.map((person) => load.leave(person)));
  }
});
