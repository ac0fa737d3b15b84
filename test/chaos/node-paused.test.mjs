// A node is stopped (SIGSTOP) and continued repeatedly, each time for longer than its locks' lease.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const LEASE_MS = 500;
const args = ['--lock-lease-ms', String(LEASE_MS)];

chaos('a node that stands still again and again past its leases tells the truth when it goes on', { args }, async (cluster) => {
  for (let round = 0; round < 6; round++) {
    const node = cluster.nodes[round % 2];
    node.signal('SIGSTOP');
    await pause(LEASE_MS * 3);
    node.signal('SIGCONT');
    await pause(300 + Math.random() * 700);
  }
});
