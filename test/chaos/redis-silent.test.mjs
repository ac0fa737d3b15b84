// Redis does not answer for ten seconds; the connections stay open.
import { chaos } from './support/chaos.mjs';
import { redisOutage } from './support/outages.mjs';

chaos('Redis is silent for 10 s: places are degraded, confirm and cancel go on, all resumes', { load: { activeTtlSeconds: 60 } }, (cluster, load) =>
  redisOutage(
    cluster,
    load,
    () => cluster.nodes.forEach(({ redis }) => redis.hold()),
    // What the one sent arrives late, what the other sent never does.
    () => cluster.nodes.forEach(({ redis }, i) => (i === 0 ? redis.release() : redis.drop())),
  ),
);
