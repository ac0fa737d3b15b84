// PostgreSQL can't be reached for ten seconds: nobody listens.
import { chaos } from './support/chaos.mjs';
import { postgresOutage } from './support/outages.mjs';

const args = ['--ledger-deadline-ms', '1500'];

chaos('PostgreSQL refuses connections for 10 s: positions go on, whatever must be durable is 503', { args }, (cluster, crowd) =>
  postgresOutage(
    cluster,
    crowd,
    () => cluster.nodes.forEach(({ postgres }) => postgres.refuse()),
    () => Promise.all(cluster.nodes.map(({ postgres }) => postgres.accept())),
  ),
);
