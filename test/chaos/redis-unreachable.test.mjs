// Redis can't be reached for ten seconds: nobody listens.
import { chaos } from './support/chaos.mjs';
import { redisOutage } from './support/outages.mjs';

chaos('Redis refuses connections for 10 s: places are degraded, confirm and cancel go on, all resumes', { crowd: { activeTtlSeconds: 60 } }, (cluster, crowd) =>
  redisOutage(
    cluster,
    crowd,
    () => cluster.nodes.forEach(({ redis }) => redis.refuse()),
    () => Promise.all(cluster.nodes.map(({ redis }) => redis.accept())),
  ),
);
