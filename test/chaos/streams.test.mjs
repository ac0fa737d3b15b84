// Streams on one node, while mostly another node admits, and its announcements get lost.
import assert from 'node:assert/strict';

import { Stream } from '../e2e/support/sse.mjs';
import { pause } from '../e2e/support/server.mjs';
import { chaos } from './support/chaos.mjs';

chaos('pitfall 17: a stream shows its admission on another node, also when the announcement is lost', { proxies: true }, async (cluster, load) => {
  const [other, listens] = cluster.nodes;
  const streams = await Promise.all(
    Array.from({ length: 12 }, async () => {
      const person = load.newPerson();
      assert.ok(await load.enter(person, other));
      return { person, stream: await Stream.open({ server: listens, name: load.name }, person.token) };
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
    stream.events.forEach(({ data }) => load.recordPlace(person, data, person.recordedAt));
    const [row] = await cluster.ask(`SELECT status, admitted_at FROM queue_entries WHERE seq = ${person.seq}`);
    assert.ok(row.admitted_at !== null, `answered ${JSON.stringify(place)}, and is ${JSON.stringify(row)}`);
  }
});
