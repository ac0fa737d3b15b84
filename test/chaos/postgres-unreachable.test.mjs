// PostgreSQL can't be reached for ten seconds: nobody listens.
import assert from 'node:assert/strict';

import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const args = ['--ledger-deadline-ms', '1500'];

async function outage(cluster, crowd, begin, end) {
  begin();
  const over = pause(10000);
  await pause(5000); // the deadline, and whoever asked just before
  crowd.mark();
  await pause(3000);
  const seen = JSON.stringify(crowd.since);
  assert.ok(crowd.count(/^status 200$/) > 10, `positions go on: ${seen}`);
  assert.equal(crowd.count(/^status (?!200$)/), 0, `for everybody: ${seen}`);
  assert.equal(crowd.count(/^(enter|hold \S+|confirm|cancel|leave) 20/), 0, `nothing is told that can't be durable: ${seen}`);
  assert.ok(crowd.count(/ ledger_/) > 0, seen);
  await over;
  await end();
  crowd.mark();
  await crowd.succeeds(6);
}

chaos('PostgreSQL refuses connections for 10 s: positions go on, whatever must be durable is 503', { args }, (cluster, crowd) =>
  outage(
    cluster,
    crowd,
    () => cluster.nodes.forEach(({ postgres }) => postgres.refuse()),
    () => Promise.all(cluster.nodes.map(({ postgres }) => postgres.accept())),
  ),
);
