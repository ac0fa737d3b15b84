// One node's connections to Redis pass no data for longer than the ledger's deadline, and its calls
// arrive after other nodes have finished or undone the operations.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1000'];

chaos('what one node sent to Redis long ago arrives late, and does no harm', { proxies: true, args }, async (cluster) => {
  for (let round = 0; round < 4; round++) {
    const { redis } = cluster.nodes[round % 2];
    redis.hold();
    await pause(2500);
    redis.release();
    await pause(700);
  }
});
