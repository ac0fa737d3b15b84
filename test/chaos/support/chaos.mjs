// One chaos test: a cluster, load on it, a fault under load; then every answer that users got is
// checked, the nodes end in order, and the audit is clean. `act(cluster, load)` begins while users
// buy, and must restore everything, so that they can buy again.
import { test } from '../../e2e/support/server.mjs';
import { check } from './check.mjs';
import { Cluster } from './cluster.mjs';
import { Load } from './load.mjs';

const WARM = 15;
const RESUMED = 8;

export function chaos(name, { load: traits, ...options }, act) {
  test(name, async (t) => {
    const cluster = await Cluster.start(options);
    let load;
    try {
      load = await Load.start(cluster, traits);
      load.begin();
      await load.succeeds(WARM);
      await act(cluster, load);
      load.mark();
      await load.succeeds(RESUMED);
      await load.end();
      await check(load);
      await cluster.stop();
      t.diagnostic(JSON.stringify(load.summary()));
    } catch (error) {
      if (load !== undefined) t.diagnostic(JSON.stringify(load.summary()));
      for (const node of cluster.nodes) t.diagnostic(`node ${node.number}: ${node.stderr.slice(-3000)}`);
      throw error;
    } finally {
      load?.abandon();
      await cluster.abandon();
    }
  });
}
