// The connections to Redis break again and again with calls under way.
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1000'];

chaos('calls that were under way when the connection to Redis broke are asked after, not guessed', { args }, async (cluster) => {
  for (let round = 0; round < 20; round++) {
    cluster.nodes[round % 2].redis.cut();
    await pause(100 + Math.random() * 300);
  }
});
