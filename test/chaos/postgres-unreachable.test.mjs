// PostgreSQL refuses connections for ten seconds.
import { chaos } from './support/chaos.mjs';
import { postgresOutage } from './support/outages.mjs';

const args = ['--ledger-deadline-ms', '1500'];

chaos('PostgreSQL refuses connections for 10 s: positions are shown, requests that must be durable get 503', { proxies: true, args }, (cluster, load) =>
  postgresOutage(
    cluster,
    load,
    () => cluster.nodes.forEach(({ postgres }) => postgres.refuse()),
    () => Promise.all(cluster.nodes.map(({ postgres }) => postgres.accept())),
  ),
);
