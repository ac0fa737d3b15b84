// Streams on one node, while whoever admits is mostly another one, and the news of it get lost.
import assert from 'node:assert/strict';

import { Stream } from '../e2e/support/sse.mjs';
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

chaos('pitfall 17: a stream hears of its admission on another node, also when the news of it are lost', {}, async (cluster, crowd) => {
  const [other, listens] = cluster.nodes;
  const streams = await Promise.all(
    Array.from({ length: 12 }, async () => {
      const person = crowd.newPerson();
      assert.ok(await crowd.enter(person, other));
      return { person, stream: await Stream.open({ server: listens, name: crowd.name }, person.token) };
    }),
  );
  for (let round = 0; round < 12; round++) {
    listens.redis.cut();
    if (round === 6) other.signal('SIGSTOP');
    await pause(250);
  }
  other.signal('SIGCONT');
  for (const { person, stream } of streams) {
    const place = await stream.hears('ACTIVE', 20000);
    await stream.toEnd();
    stream.events.forEach(({ data }) => crowd.hear(person, data, person.heard));
    const [row] = await cluster.ask(`SELECT status, admitted_at FROM queue_entries WHERE seq = ${person.seq}`);
    assert.ok(row.admitted_at !== null, `told ${JSON.stringify(place)}, and is ${JSON.stringify(row)}`);
  }
});
