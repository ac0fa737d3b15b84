// One chaos test: a cluster, a crowd on it, a fault under load; then everything that was told is
// checked, the nodes end in order, and the audit is clean. `act(cluster, crowd)` begins while the
// crowd buys, and must leave everything so that it can buy again; the crowd shows it.
import { test } from '../../e2e/support/server.mjs';
import { check } from './check.mjs';
import { Cluster } from './cluster.mjs';
import { Crowd } from './crowd.mjs';

const WARM = 15;
const RESUMED = 8;

export function chaos(name, { crowd: traits, ...options }, act) {
  test(name, async (t) => {
    const cluster = await Cluster.start(options);
    let crowd;
    try {
      crowd = await Crowd.gather(cluster, traits);
      crowd.begin();
      await crowd.succeeds(WARM);
      await act(cluster, crowd);
      crowd.mark();
      await crowd.succeeds(RESUMED);
      await crowd.end();
      await check(crowd);
      await cluster.stop();
      t.diagnostic(JSON.stringify(crowd.summary()));
    } catch (error) {
      if (crowd !== undefined) t.diagnostic(JSON.stringify(crowd.summary()));
      for (const node of cluster.nodes) t.diagnostic(`node ${node.number}: ${node.stderr.slice(-3000)}`);
      throw error;
    } finally {
      crowd?.abandon();
      await cluster.abandon();
    }
  });
}
