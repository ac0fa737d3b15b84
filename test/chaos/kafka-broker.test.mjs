// The broker of asynchronous requests is killed, or stands still, under load.
import assert from 'node:assert/strict';

import { kafkaOf, startKafka } from '../e2e/support/cluster.mjs';
import { RequestSale } from '../e2e/support/requests.mjs';
import { assertProblem, feedWorks, pause, until } from '../e2e/support/server.mjs';
import { requestChaos } from './support/request_load.mjs';

// Requests are refused, and all else goes on: users enter, hold seats and buy them.
async function assertOnlyRequestsWait({ server, buyers: [ann] }) {
  for (const node of server.nodes) {
    const sale = new RequestSale(node, 'CONCERT/1');
    await until('requests are refused', async () => {
      const answer = await sale.request(ann, { section: 'slot', quantity: 1 });
      if (answer.status === 202 || answer.json.code === 'feed_unknown') return false;
      assertProblem(answer, 503, 'feed_unavailable');
      return true;
    });
    await sale.enter(`visitor-${node.port}`);
    const { id } = await sale.held(ann, { section: 'lock', quantity: 1 });
    await sale.cancelled(ann, id);
    assertProblem(await sale.look(ann, '01890000-0000-7000-8000-000000000001'), 503, 'feed_unavailable');
  }
}

requestChaos('kill -9 of the broker: requests are refused until it is back, and each accepted one gets its result', {}, async (load) => {
  for (let round = 0; round < (process.env.TEST_FULL ? 4 : 1); round++) {
    process.kill(Number(kafkaOf().KAFKA_PID), 'SIGKILL');
    await assertOnlyRequestsWait(load);
    startKafka();
    await Promise.all(load.server.nodes.map(feedWorks));
    await load.goesOn();
  }
  assert.ok(load.answers['503 feed_unavailable'] > 0, JSON.stringify(load.answers));
});

// For longer than a request waits for the broker, and than the group waits for a node.
requestChaos('a broker that does not answer: what may have been accepted is decided, or was not accepted', {}, async (load) => {
  const pid = Number(kafkaOf().KAFKA_PID);
  process.kill(pid, 'SIGSTOP');
  try {
    await until('an answer is not known', () => load.unknown.length > 0);
    await assertOnlyRequestsWait(load);
    await pause(3000);
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await Promise.all(load.server.nodes.map(feedWorks));
});
