// Nodes that decide requests from Kafka are killed, stand still, join and stop under load.
import assert from 'node:assert/strict';

import { KAFKA_SESSION_MS, holdCommits, homeOf, releaseCommits } from '../e2e/support/cluster.mjs';
import { partitionsOf } from '../e2e/support/feed.mjs';
import { query } from '../e2e/support/queue.mjs';
import { launch, pause, until } from '../e2e/support/server.mjs';
import { requestChaos } from './support/request_load.mjs';

const count = (load, table) => query(load.server.dataDir, `SELECT count(*) AS n FROM ${table}`)[0].n;

// The first node is replaced by a new one, at a moment that `reach` waits for.
async function replace(load, reach) {
  const [node] = load.server.nodes;
  await reach(node);
  await load.without(node).kill9();
  releaseCommits();
  await load.server.join();
  await load.goesOn();
}

requestChaos('kill -9 of a node before, between and after the commits of a decision', {}, async (load) => {
  // Before the commit: transactions wait for rows that are locked, and are undone with the node.
  const locked = "SELECT count(*) FROM (SELECT FROM sections FOR UPDATE) t";
  const psql = launch(['psql', homeOf(load.server.dataDir).postgresUrl, '-qAtX', '-c', `BEGIN; ${locked}; SELECT pg_sleep(4); ROLLBACK`]);
  await replace(load, () =>
    until('holds wait for rows', () => {
      const waiting = query(load.server.dataDir, "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'")[0].n;
      return waiting > 0 || psql.exit !== null;
    }));
  await psql.ended;
  // Committed, and the node does not know it.
  await replace(load, async () => {
    holdCommits();
    await pause(500);
  });
  // A hold is there; its result may be, and its offset is not.
  for (const table of ['reservations', 'requests'])
    await replace(load, () => {
      const before = count(load, table);
      return until(`a row of ${table}`, () => count(load, table) > before);
    });
});

requestChaos('a node that stands still past its session: others decide its requests, and it returns', {}, async (load) => {
  const [node, other] = load.server.nodes;
  load.without(node);
  node.signal('SIGSTOP');
  await until('the other node has all partitions', () => partitionsOf(other) === 3);
  await load.goesOn();
  await pause(KAFKA_SESSION_MS / 2);
  node.signal('SIGCONT');
  load.server.nodes.push(node);
  await until('it has partitions again', () => partitionsOf(other) < 3 && partitionsOf(node) > 0);
});

requestChaos('nodes join and stop under load: each request is decided once', {}, async (load) => {
  for (let round = 0; round < (process.env.TEST_FULL ? 4 : 1); round++) {
    const joined = await load.server.join();
    await until('it has a partition', () => partitionsOf(joined) > 0);
    await load.goesOn();
    const [leaving, ...others] = load.server.nodes;
    const ended = await load.without(leaving).stop();
    assert.deepEqual(ended, { code: 0, signal: null });
    await until('the others have all', () => others.reduce((sum, node) => sum + partitionsOf(node), 0) === 3);
    await load.goesOn();
  }
  assert.equal(load.answers['503 feed_unknown'], undefined, JSON.stringify(load.answers));
});
