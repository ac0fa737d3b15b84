// The connections to Redis break repeatedly while calls are under way.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1000'];

chaos('the outcome of calls under way when the connection to Redis broke is looked up, not guessed', { proxies: true, args }, async (cluster) => {
  for (let round = 0; round < 20; round++) {
    cluster.nodes[round % 2].redis.cut();
    await pause(100 + Math.random() * 300);
  }
});
