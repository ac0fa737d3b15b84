// No place, admission or end is shown before it is on disk, and a disk that fails leaves nothing half
// done. The real program runs with the shim that delays syncs or fails writes.
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { WaitingRoom, assertAudit, bearer, entriesOf } from './support/queue.mjs';
import { assertProblem, isCluster, onlyOn, start, test, until, within } from './support/server.mjs';
import { shimmed, withShim } from './support/shim.mjs';
import { Stream } from './support/sse.mjs';

const QUICK = ['--queue-tick-ms', '10', '--push-interval-ms', '10'];

const WRITES_FAIL = 'the shim fails the writes of SQLite\'s files';

const underWay = (server, records) =>
  until(`${records} records are under way`, async () => (await server.metric('admitone_ledger_queue_depth')) >= records);

describe('while the disk holds everything up', { concurrency: isCluster ? 1 : 2 }, () => {
  test('enter has no answer; repeats join the same commit and get the same place (pitfall 7)', () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'HOLD/1', { maxActive: 1, entryBatchSize: 100 });
      server.hold();
      const asked = ['a', 'a', 'b', 'a', 'b', 'c'].map((user) => room.ask(user));
      await underWay(server, 6);
      assert.equal(await within(300, Promise.race(asked)), 'pending');
      assert.equal((await server.call('GET', '/health')).status, 200);
      const { waiting, active, entered } = await room.numbers();
      assert.deepEqual({ places: waiting + active, entered }, { places: 3, entered: 0 }, 'they count towards the caps, and nobody has entered');
      server.release();
      const answers = (await Promise.all(asked)).map((answer) => answer.json);
      for (const user of ['a', 'b', 'c']) {
        const own = answers.filter((place) => place.userId === user);
        assert.equal(new Set(own.map((place) => place.entryToken)).size, 1, user);
        assert.equal(new Set(own.map((place) => place.position)).size, 1, user);
      }
      assert.equal(entriesOf(room).length, 3);
      assert.deepEqual([...new Set(answers.map((place) => place.position))].sort(), [0, 1, 2]);
    }, QUICK));

  test('a stay that was over before the disk had it is not what enter answers', () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'HOLD/1', { activeTtlSeconds: 1, entryBatchSize: 100 });
      server.hold();
      const asked = room.ask('a');
      await underWay(server, 1);
      await new Promise((resolve) => setTimeout(resolve, 1500)); // time has to pass
      server.release();
      assert.equal(room.place(await asked, 200).status, 'ACTIVE');
    }, QUICK));

  test('pending places count towards the limits, which are never exceeded (pitfall 4)', () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'HOLD/1', { maxActive: 1, maxWaiting: 2, entryBatchSize: 100 });
      server.hold();
      const asked = ['a', 'b', 'c'].map((user) => room.ask(user));
      await underWay(server, 3);
      assert.equal((await room.ask('d')).status, 429);
      server.release();
      assert.deepEqual((await Promise.all(asked)).map((answer) => answer.status).sort(), [200, 202, 202]);
    }, QUICK));

  test('an admission is not seen by poll, gate or stream before it is durable', () =>
    withShim(async (server) => {
      // The next one's stay must not be over, too, before it is durable.
      const room = await WaitingRoom.open(server, 'HOLD/1', { maxActive: 1, entryBatchSize: 100, activeTtlSeconds: isCluster ? 3 : 1 });
      const first = await room.enter('first');
      const next = await room.enter('next');
      const stream = await Stream.open(room, next.entryToken);
      server.hold();
      await room.becomes(first.entryToken, 'EXPIRED');
      await underWay(server, 2); // the end of one stay, and the beginning of the next
      for (const end = Date.now() + 500; Date.now() < end; ) {
        const place = await room.status(next.entryToken);
        assert.equal(place.status, 'WAITING');
        assert.equal(place.position, 1);
        assertProblem(await room.gate(next.entryToken), 403, 'not_active');
      }
      assert.deepEqual(stream.events.map(({ data }) => data.status), ['WAITING']);
      server.release();
      await stream.hears('ACTIVE');
      await stream.toEnd();
      stream.destroy();
    }, QUICK));

  test('leave has no answer, and the place stays until it is gone for good', () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'HOLD/1', { maxActive: 1, entryBatchSize: 100 });
      const first = await room.enter('first');
      const next = await room.enter('next');
      server.hold();
      const left = room.leave(first.entryToken);
      await underWay(server, 1);
      assert.equal(await within(300, left), 'pending');
      assert.equal((await room.status(first.entryToken)).status, 'ACTIVE');
      assert.equal((await room.status(next.entryToken)).position, 1, 'nobody takes it before');
      server.release();
      assert.equal((await left).status, 204);
      await room.becomes(next.entryToken, 'ACTIVE');
    }, QUICK));

  test('kill -9 then: no request was answered, and all users can enter again', async () => {
    const server = await shimmed(QUICK);
    let room = await WaitingRoom.open(server, 'HOLD/1', { maxActive: 1, entryBatchSize: 100 });
    const known = await room.enter('known');
    server.hold();
    const asked = ['a', 'b', 'c'].map((user) => room.ask(user).then(() => 'answered', () => 'cut'));
    await underWay(server, 3);
    await server.kill9();
    assert.deepEqual(await Promise.all(asked), ['cut', 'cut', 'cut']);
    server.release();
    assertAudit(server.dataDir);
    const next = await start({ dataDir: server.dataDir });
    room = new WaitingRoom(next, 'HOLD/1');
    assert.equal((await room.status(known.entryToken)).status, 'ACTIVE');
    const again = await room.enterAll(['a', 'b', 'c']);
    assert.deepEqual(again.map((place) => place.position).sort(), [1, 2, 3]);
    assert.equal(entriesOf(room).length, 4, 'each once');
    await next.stop();
    server.forget();
  });
});

describe('every acknowledgement', () => {
  test('of an enter and of a leave has a sync of the log between the request and the answer', onlyOn('memory+sqlite', 'the shim sees SQLite sync; PostgreSQL does so by itself'), () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'SYNC/1', { maxActive: 5, entryBatchSize: 100000 });
      const acts = [];
      const timed = async (what, act) => {
        const sent = process.hrtime.bigint();
        const answer = await act();
        acts.push({ what, sent, answered: process.hrtime.bigint() });
        return answer;
      };
      await Promise.all(
        Array.from({ length: 8 }, async (_, n) => {
          for (let i = 0; i < 15; i++) {
            const { entryToken } = await timed('enter', () => room.enter(`u${n}-${i}`));
            if (i % 2) await timed('leave', () => server.call('DELETE', `/queue/${room.name}/leave`, { headers: bearer(entryToken) }));
          }
        }),
      );
      const syncs = server.syncs().filter(({ kind }) => kind === 'wal');
      for (const { what, sent, answered } of acts) assert.ok(syncs.some(({ at }) => at > sent && at < answered), `${what}: no sync in between`);
    }, QUICK));
});

describe('a disk that fails', () => {
  test('enter is 503 and leaves no ghost in the line; leave is 503 and leaves the place', onlyOn('memory+sqlite', WRITES_FAIL), () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'FULL/1', { maxActive: 1, maxWaiting: 2, entryBatchSize: 100 });
      const first = await room.enter('first');
      const before = await room.enter('before');
      server.fail();
      for (let i = 0; i < 5; i++) {
        const refused = await room.ask(`lost${i}`);
        assertProblem(refused, 503, 'ledger_full');
        assert.match(refused.headers['retry-after'], /^\d+$/);
      }
      assertProblem(await room.leave(first.entryToken), 503, 'ledger_full');
      assert.equal((await room.status(first.entryToken)).status, 'ACTIVE');
      assert.equal((await room.status(before.entryToken)).position, 1, 'looks go on');
      assert.equal((await room.numbers()).waiting, 1, 'and the refused ones take no room');
      server.recover();
      assert.equal((await room.enter('after')).position, 2);
      assert.equal((await room.leave(first.entryToken)).status, 204);
      await room.becomes(before.entryToken, 'ACTIVE');
      assert.deepEqual(entriesOf(room).map((row) => row.user_id), ['first', 'before', 'after']);
    }, QUICK));

  test('a stay that ends then is written when the disk is back, and only then the next one goes in', onlyOn('memory+sqlite', WRITES_FAIL), () =>
    withShim(async (server) => {
      const room = await WaitingRoom.open(server, 'FULL/1', { maxActive: 1, entryBatchSize: 100, activeTtlSeconds: 1 });
      const first = await room.enter('first');
      const next = await room.enter('next');
      server.fail();
      assert.equal((await room.ask('lost')).status, 503);
      await room.becomes(first.entryToken, 'EXPIRED');
      for (const end = Date.now() + 500; Date.now() < end; ) assert.equal((await room.status(next.entryToken)).status, 'WAITING');
      server.recover();
      await room.becomes(next.entryToken, 'ACTIVE');
      await until('the ledger knows the end', () => entriesOf(room).find((row) => row.user_id === 'first').status === 'EXPIRED');
      assertAudit(server.dataDir);
    }, QUICK));
});
