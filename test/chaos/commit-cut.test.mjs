// The connection to PostgreSQL is cut at COMMIT: before the COMMIT arrives, or before its answer does.
import assert from 'node:assert/strict';

import { until } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

const CUTS = 12;
const EVERY_MS = 350;

chaos('a commit whose answer was lost is looked up: acknowledged only when it happened, written once', { proxies: true }, async (cluster, load) => {
  const cuts = { before: 0, after: 0 };
  let last = 0;
  const watch = (bytes) => {
    if (!bytes.includes('COMMIT\0') || performance.now() - last < EVERY_MS) return undefined;
    last = performance.now();
    const when = cuts.after <= cuts.before ? 'after' : 'before';
    cuts[when]++;
    return when;
  };
  for (const { postgres } of cluster.nodes) postgres.watch = watch;
  await until('the commits are cut', () => cuts.before + cuts.after >= CUTS);
  for (const { postgres } of cluster.nodes) postgres.watch = undefined;
  const logs = cluster.nodes.map(({ stderr }) => stderr).join('');
  assert.match(logs, /msg="looked up the outcome of a COMMIT whose connection was lost" outcome=committed/);
  assert.match(logs, /msg="looked up the outcome of a COMMIT whose connection was lost" outcome="not committed"/);
});
