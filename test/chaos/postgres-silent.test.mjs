// PostgreSQL can't be reached for ten seconds: nothing comes back, and nobody is told.
import { chaos } from './support/chaos.mjs';
import { postgresOutage } from './support/outages.mjs';

const args = ['--ledger-deadline-ms', '1500'];

chaos('PostgreSQL is silent for 10 s: positions go on, whatever must be durable is 503', { args }, (cluster, crowd) =>
  postgresOutage(
    cluster,
    crowd,
    () => cluster.nodes.forEach(({ postgres }) => postgres.hold()),
    // What the one sent arrives late, what the other sent never does.
    () => cluster.nodes.forEach(({ postgres }, i) => (i === 0 ? postgres.release() : postgres.drop())),
  ),
);
