// Redis refuses connections for ten seconds.
import { chaos } from './support/chaos.mjs';
import { redisOutage } from './support/outages.mjs';

chaos('Redis refuses connections for 10 s: places are degraded, confirm and cancel go on, all resumes', { proxies: true, load: { activeTtlSeconds: 60 } }, (cluster, load) =>
  redisOutage(
    cluster,
    load,
    () => cluster.nodes.forEach(({ redis }) => redis.refuse()),
    () => Promise.all(cluster.nodes.map(({ redis }) => redis.accept())),
  ),
);
