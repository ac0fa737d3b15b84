// Nodes that rebuild Redis stall or die during the rebuild, or another node takes over.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1000', '--lock-lease-ms', '500'];

chaos('pitfall 31: a node that dies or stalls while it rebuilds Redis leaves no half-built state', { proxies: true, args, nodes: 3 }, async (cluster, load) => {
  for (let round = 0; round < 3; round++) {
    const [first, second] = cluster.nodes;
    await cluster.redisCli('FLUSHALL');
    await pause(Math.random() * 60);
    first.signal('SIGSTOP');
    if (round === 1) second.postgres.cut();
    if (round === 2) await cluster.redisCli('FLUSHALL');
    await pause(1500);
    first.signal('SIGCONT');
    load.mark();
    await load.succeeds(3);
  }
  await cluster.redisCli('FLUSHALL');
  await cluster.kill9(cluster.nodes[0]);
});
