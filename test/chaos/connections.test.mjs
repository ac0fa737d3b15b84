// One node without load, whose connections to its stores break in special situations.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before } from 'node:test';

import { Sale } from '../e2e/support/reservations.mjs';
import { pause, test, until } from '../e2e/support/server.mjs';
import { Cluster } from './support/cluster.mjs';

let cluster;
let node;

before(async () => {
  // Calls are repeated for as long as a busy machine may need for the steps of a test.
  cluster = await Cluster.start({ nodes: 1, proxies: true, args: ['--hot-deadline-ms', '20000'] });
  [node] = cluster.nodes;
});

after(async () => {
  await node.stop();
  await cluster.abandon();
});

// The ledger's change arrives in Redis: another user has one of the seats.
async function takeAway(sale, library, section, seat) {
  const tag = `{${sale.type}:${sale.id}}`;
  const names = ['meta', 'map', 'slots', 'free', 'runs'].map((part) => `section:${tag}:${section}:${part}`);
  const keys = [
    `queue:${tag}:meta`, `section:${tag}:counts`, `limit:${tag}:reserving`,
    `claim:${tag}`, `claim:${tag}:pending`, `claim:${tag}:due`, `limit:${tag}`, `limit:${tag}:of`, ...names,
  ];
  const epoch = await cluster.redisCli('HGET', 'admitone:{hot}:incarnation', 'epoch');
  const event = await cluster.redisCli('HGET', `queue:${tag}:meta`, 'key');
  const reservation = [randomUUID(), 'another user', 1, section, 'CONFIRMED', Date.now() + 600000, seat];
  const args = [epoch, event, 0, section, '', ...reservation];
  return cluster.redisCli('FCALL', `${library}_sync`, String(keys.length), ...keys, ...args.map(String));
}

test('a claim that loses a seat before it is repeated is repeated from the start, with as many seats as were requested', async () => {
  const sale = await Sale.open(node, 'CONCERT/claims', {}, { sections: [{ id: 'A', capacity: 10 }] });
  const buyer = await sale.buyer('anna');
  const claims = `claim:{${sale.type}:${sale.id}}`;
  let library;
  node.redis.watch = (bytes) => {
    library = /\r\n(\S+)_claim\r\n/.exec(bytes.toString('latin1'))?.[1];
    if (library === undefined) return undefined;
    node.redis.watch = undefined;
    node.redis.hold();
    return 'after';
  };
  const answer = sale.hold(buyer, { quantity: 3 });
  await until('Redis has the claim', async () => (await cluster.redisCli('HLEN', claims)) === '1');
  const [section, step, , , , , seats] = (await cluster.redisCli('HVALS', claims)).split(' ');
  assert.equal(step, 'P');
  assert.equal(seats, '1-3');
  assert.equal(await takeAway(sale, library, section, 2), '1');
  node.redis.release();
  const { status, json, text } = await answer;
  assert.equal(status, 201, text);
  assert.equal(json.seats.length, 3);
  assert.ok(!json.seats.includes(2), text);
  // Nothing of the first claim is left.
  await until('the first claim is given back', async () => (await cluster.redisCli('HLEN', claims)) === '2');
});

// A request may be answered with 503 when a new connection takes long on a busy machine; sent again, it
// must succeed. Without a deadline for each statement a PUT took two minutes.
test('connections to PostgreSQL that are silent while new ones work are replaced within seconds', async () => {
  const seats = { capacity: 100, mode: 'seat' };
  const sale = await Sale.open(node, 'CONCERT/silent', {}, { sections: [{ id: 'A', ...seats }] });
  const buyers = await sale.buyers(32);
  const wish = { quantity: 1, strategy: 'pessimistic' };
  // All of the threads that wait for locks have connections then.
  const [{ id }] = await Promise.all(buyers.slice(1).map((buyer) => sale.held(buyer, wish)));
  const acts = {
    put: () => node.admin('PUT', '/admin/events/CONCERT/silent', { title: 'Summer tour', sections: [{ id: 'A', ...seats }] }),
    hold: () => sale.hold(buyers[0], wish),
    look: () => sale.get(buyers[1], id),
    enter: () => sale.ask('latecomer'),
  };
  await pause(1100); // Only a connection that has been idle for a second is suspected.
  node.postgres.silence();
  await Promise.all(
    Object.entries(acts).map(async ([name, act]) => {
      const began = performance.now();
      // Each answer comes within 10 s, whatever it is.
      const timed = async () => {
        const asked = performance.now();
        const answer = await act();
        const ms = Math.round(performance.now() - asked);
        assert.ok(ms < 10000, `${name} took ${ms} ms`);
        return answer;
      };
      let answer = await timed();
      while (answer.status === 503 && performance.now() - began < 30000) answer = await timed();
      assert.ok(answer.status < 300, `${name}: ${answer.text}`);
    }),
  );
});

// Warnings and errors behind the first `length` characters of the log, without failed requests, and
// without those about `other`: a connection that has not tried again since the outage of the test
// before may report that one once more.
function linesAfter(length, other) {
  const lines = node.stderr.slice(length).split('\n');
  return lines.filter((line) => /level=(warn|error)/.test(line) && !/msg="?request/.test(line) && !line.includes(` port=${other.port} `));
}

for (const [store, proxyOf, otherOf, text] of [
  ['postgresql', () => node.postgres, () => node.redis, /address=".*host=127.0.0.1 port=\d+/],
  ['redis', () => node.redis, () => node.postgres, /address=127.0.0.1:\d+/],
])
  test(`a ${store} that is lost for seconds under load is one line in the log, and one when it is back`, async () => {
    await cluster.isWell();
    const sale = await Sale.open(node, `CONCERT/${store}`, {}, { sections: [{ id: 'A', capacity: 100 }] });
    const buyer = await sale.buyer('anna');
    const { id } = await sale.held(buyer, { quantity: 1 });
    const proxy = proxyOf();
    // An outage is over when it has been calm for some seconds; until then another one is the same.
    const logged = (what) => node.stderr.split(`msg="a dependency is ${what}" dependency=${store}`).length;
    await until('earlier outages are over', () => logged('unavailable') === logged('available again'));
    const length = node.stderr.length;
    const ends = performance.now() + 4000;
    proxy.refuse();
    // Soon after an earlier outage a new one is logged only when it has lasted for five seconds.
    while (performance.now() < ends || linesAfter(length, otherOf()).length === 0) {
      await Promise.all([sale.ask(`user${performance.now()}`), sale.get(buyer, id), sale.hold(buyer, { quantity: 1 })]);
      await pause(20);
    }
    const lost = linesAfter(length, otherOf());
    await proxy.accept();
    await cluster.isWell();
    assert.equal(lost.length, 1, lost.join('\n'));
    await untilBack(length, store);
    assert.match(lost[0], new RegExp(`msg="a dependency is unavailable" dependency=${store}`));
    assert.match(lost[0], text);
    assert.match(lost[0], /error=.*meaning=/);
    const all = node.stderr.slice(length);
    assert.equal(all.match(/msg="a dependency is available again"/g).length, 1, all);
    await until('all works again', async () => (await sale.ask('berta')).status < 300);
  });

function untilBack(length, store) {
  return until('it is back', () => new RegExp(`msg="a dependency is available again" dependency=${store} .* seconds=\\d+`).test(node.stderr.slice(length)));
}
