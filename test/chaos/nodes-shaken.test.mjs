// Everything at once, by chance: nodes stand still past every deadline, connections break, Redis is
// flushed, and a node dies while another life of Redis begins.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1000', '--lock-lease-ms', '500'];

chaos('nodes that stand still past the ledger\'s deadline in the middle of it all tell the truth', { args }, async (cluster, crowd) => {
  for (let round = 0; round < 5; round++) {
    const node = cluster.nodes[round % 2];
    node.signal('SIGSTOP');
    await pause(2200);
    node.signal('SIGCONT');
    await pause(200 + Math.random() * 800);
  }
});

chaos('trap 31: a node that dies or stalls while it fills Redis leaves no half of it behind', { args, nodes: 3 }, async (cluster, crowd) => {
  for (let round = 0; round < 3; round++) {
    const [first, second] = cluster.nodes;
    await cluster.redisCli('FLUSHALL');
    await pause(Math.random() * 60);
    first.signal('SIGSTOP');
    if (round === 1) second.postgres.cut();
    if (round === 2) await cluster.redisCli('FLUSHALL');
    await pause(1500);
    first.signal('SIGCONT');
    crowd.mark();
    await crowd.succeeds(3);
  }
  await cluster.redisCli('FLUSHALL');
  await cluster.kill9(cluster.nodes[0]);
});
