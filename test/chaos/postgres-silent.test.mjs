// PostgreSQL does not answer for ten seconds; the connections stay open.
import { chaos } from './support/chaos.mjs';
import { postgresOutage } from './support/outages.mjs';

const args = ['--ledger-deadline-ms', '1500'];

chaos('PostgreSQL is silent for 10 s: positions are shown, requests that must be durable get 503', { proxies: true, args }, (cluster, load) =>
  postgresOutage(
    cluster,
    load,
    () => cluster.nodes.forEach(({ postgres }) => postgres.hold()),
    // The data that the first node sent arrive late, those of the second one never.
    () => cluster.nodes.forEach(({ postgres }, i) => (i === 0 ? postgres.release() : postgres.drop())),
  ),
);
