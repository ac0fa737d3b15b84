// PostgreSQL is restarted under load.
import { chaos } from './support/chaos.mjs';

chaos('PostgreSQL restarted: nothing that was acknowledged is lost, and all resumes', {}, async (cluster, load) => {
  for (let round = 0; round < 2; round++) {
    await cluster.stopService('postgres');
    await cluster.startService('postgres');
    load.mark();
    await load.succeeds(6);
  }
});
