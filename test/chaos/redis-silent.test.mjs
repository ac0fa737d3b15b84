// Redis does not answer for ten seconds; the connections stay open.
import { chaos } from './support/chaos.mjs';
import { redisOutage } from './support/outages.mjs';

chaos('Redis is silent for 10 s: places are degraded, confirm and cancel go on, all resumes', { proxies: true, load: { activeTtlSeconds: 60 } }, (cluster, load) =>
  redisOutage(
    cluster,
    load,
    () => cluster.nodes.forEach(({ redis }) => redis.hold()),
    // The data that the first node sent arrive late, those of the second one never.
    () => cluster.nodes.forEach(({ redis }, i) => (i === 0 ? redis.release() : redis.drop())),
  ),
);
