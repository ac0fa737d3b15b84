// Nodes are stopped (SIGSTOP) past every deadline, one after the other, at random moments.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1000', '--lock-lease-ms', '500'];

chaos('nodes that stand still past the ledger\'s deadline in the middle of it all tell the truth', { args }, async (cluster) => {
  for (let round = 0; round < 5; round++) {
    const node = cluster.nodes[round % 2];
    node.signal('SIGSTOP');
    await pause(2200);
    node.signal('SIGCONT');
    await pause(200 + Math.random() * 800);
  }
});
