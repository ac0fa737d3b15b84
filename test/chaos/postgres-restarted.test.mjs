// PostgreSQL is restarted under load.
import { chaos } from './support/chaos.mjs';

chaos('PostgreSQL restarted: nothing that was told is lost, and all resumes', {}, async (cluster, crowd) => {
  for (let round = 0; round < 2; round++) {
    await cluster.stopService('postgres');
    await cluster.startService('postgres');
    crowd.mark();
    await crowd.succeeds(6);
  }
});
