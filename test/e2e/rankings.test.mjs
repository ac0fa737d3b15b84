// Rankings: the fastest-selling and the most popular events, compared with a recount of the ledger.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { homeOf, redis } from './support/cluster.mjs';
import { assertProblemWith, eachOf, query } from './support/queue.mjs';
import { random } from './support/random.mjs';
import { Sale, audit } from './support/reservations.mjs';
import { assertProblem, isCluster, onlyOn, run, start, storeFlags, test, times, until } from './support/server.mjs';

const DAY = (date = new Date()) => date.toISOString().slice(0, 10);
let server;

before(async () => {
  server = await start();
});
after(async () => {
  audit(server);
  await server.stop();
});

const get = async (path, at = server) => {
  const answer = await at.call('GET', path);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
};

const nodes = () => server.nodes ?? [server];
const rowOf = (json, sale) => json.rankings.find((row) => row.eventType === sale.type && row.eventId === sale.id);

// Live reservations, as the ledger has them.
const recount = (sale) =>
  query(
    server.dataDir,
    `SELECT count(*) AS n, coalesce(sum(r.seat_count), 0) AS seats FROM reservations r JOIN events e ON e.id = r.event_id
     WHERE e.type = '${sale.type}' AND e.external_id = '${sale.id}' AND r.status IN ('HELD','CONFIRMED')`,
  )[0];

// Every node's boards come to what the ledger says, and stay there.
async function becomesRecount(sale) {
  const wanted = recount(sale);
  for (const node of nodes())
    for (const path of ['daily', 'weekly', 'monthly', 'soldout'])
      await until(`${path} has counted ${wanted.n}`, async () => {
        const { reservationCount, seatsSold } = await get(`/rankings/${path}/${sale.type}/${sale.id}`, node);
        return reservationCount === wanted.n && seatsSold === Number(wanted.seats);
      });
  return wanted;
}

describe('popularity', () => {
  test('of 100 reservations at once counts exactly 100', async () => {
    const sale = await Sale.open(server, 'POP/1', {}, { sections: [{ id: 'A', capacity: 1000 }] });
    const buyers = await sale.buyers(100);
    await Promise.all(buyers.map((who) => sale.held(who)));
    assert.deepEqual(await becomesRecount(sale), { n: 100, seats: 100 });
    const json = await get('/rankings/daily?topN=100');
    assert.deepEqual([json.board, json.period, json.date], ['popularity', 'daily', DAY()]);
    const row = rowOf(json, sale);
    assert.deepEqual([row.reservationCount, row.seatsSold, row.capacity, row.shareSold], [100, 100, 1000, 0.1]);
    const one = await get('/rankings/weekly/POP/1');
    assert.deepEqual([one.score, one.reservationCount, one.seatsLeft, one.capacity], [100, 100, 900, 1000]);
  });

  test('is ordered by reservations', async () => {
    const sales = [];
    for (const [i, n] of [3, 7, 5].entries()) {
      const sale = await Sale.open(server, `ORDER/${i}`, {}, { sections: [{ id: 'A', capacity: 100 }] });
      for (const who of await sale.buyers(n)) await sale.held(who);
      sales.push(sale);
    }
    for (const sale of sales) await becomesRecount(sale);
    const { rankings } = await get('/rankings/monthly?topN=100');
    const shown = rankings.filter((row) => row.eventType === 'ORDER').map((row) => row.eventId);
    assert.deepEqual(shown, ['1', '2', '0']);
    assert.deepEqual(rankings.map((row) => row.rank), rankings.map((_, i) => i + 1));
    const ranks = await Promise.all(sales.map((sale) => get(`/rankings/monthly/ORDER/${sale.id}`)));
    assert.ok(ranks[1].rank < ranks[2].rank && ranks[2].rank < ranks[0].rank);
  });

  test('forgets what is cancelled and what expires (pitfall 39)', async () => {
    const sale = await Sale.open(server, 'BACK/1', {}, { sections: [{ id: 'A', capacity: 5000 }], holdSeconds: 1, maxPerUser: 100 });
    const next = random(7);
    const buyers = await sale.buyers(50);
    await eachOf(Array.from({ length: times(1000) }), 16, async (_, i) => {
      const who = buyers[i % buyers.length];
      const held = await sale.hold(who, { quantity: 1 + Math.floor(next() * 3) });
      if (held.status !== 201) return; // the limit
      const dice = next();
      if (dice < 0.4) await sale.cancel(who, held.json.id);
      else if (dice < 0.6) await sale.confirm(who, held.json.id);
    });
    await until('holds have expired', async () => query(server.dataDir, "SELECT count(*) AS n FROM reservations WHERE status = 'HELD' AND event_id = (SELECT id FROM events WHERE type = 'BACK')")[0].n === 0);
    const { n } = await becomesRecount(sale);
    assert.ok(n > 0, 'some were confirmed');
  });

  test('shows an event that sold nothing as unranked, and a day on which nothing was sold as empty', async () => {
    await Sale.open(server, 'NONE/1');
    const one = await get('/rankings/daily/NONE/1');
    assert.deepEqual([one.rank, one.reservationCount, one.score], [null, 0, 0]);
    assert.deepEqual((await get('/rankings/daily?date=2020-01-01')).rankings, []);
    assert.equal((await get('/rankings/weekly?date=2027-01-01')).from, '2026-12-28T00:00:00.000Z');
    for (const board of ['soldout', 'daily', 'weekly', 'monthly'])
      for (const day of ['1970-01-01', '9998-12-31']) assert.deepEqual((await get(`/rankings/${board}?date=${day}`)).rankings, []);
  });
});

describe('the fastest to sell', () => {
  test('are those that sold out, by how long that took; then those that sell', async () => {
    const slow = await Sale.open(server, 'SOLD/slow', {}, { sections: [{ id: 'A', capacity: 2 }] });
    const fast = await Sale.open(server, 'SOLD/fast', {}, { sections: [{ id: 'A', capacity: 2 }], state: 'DRAFT' });
    const selling = await Sale.open(server, 'SOLD/selling', {}, { sections: [{ id: 'A', capacity: 100 }] });
    await selling.held(await selling.buyer('bo'), { quantity: 4 });
    // The fast one opens and sells out while the slow one sells, so its time is certainly shorter.
    const [ann] = await slow.buyers(1);
    assert.equal((await server.admin('POST', '/admin/queue/SOLD/fast/activate')).status, 200);
    await fast.held(await fast.buyer('cy'), { quantity: 2 });
    await slow.held(ann, { quantity: 2 });
    for (const sale of [slow, fast, selling]) await becomesRecount(sale);
    const times = async () => Object.fromEntries((await get('/rankings/soldout?topN=100')).rankings.filter((row) => row.eventType === 'SOLD').map((row) => [row.eventId, row]));
    const rows = await times();
    assert.ok(rows.slow.secondsToSellOut !== null && rows.fast.secondsToSellOut !== null);
    assert.ok(rows.fast.secondsToSellOut < rows.slow.secondsToSellOut);
    assert.ok(rows.fast.rank < rows.slow.rank && rows.slow.rank < rows.selling.rank);
    assert.deepEqual([rows.selling.secondsToSellOut, rows.selling.seatsPerMinute, rows.selling.shareSold], [null, 0.8, 0.04]);
    assert.deepEqual((await get('/concerts/ranking?topN=100')).rankings.map((row) => row.eventId), (await get('/rankings/soldout?topN=100')).rankings.map((row) => row.eventId));
    const today = await get(`/rankings/soldout?date=${DAY()}&topN=100`);
    assert.deepEqual([today.board, today.period], ['soldout', 'daily']);
    assert.ok(rowOf(today, slow).soldOutAt !== null && rowOf(today, selling).soldOutAt === null);
    // One event's row has the date too.
    for (const sale of [slow, selling]) {
      const { seatsLeft, serverTime, board, period, date, from, to, ...row } = await get(`/rankings/soldout/${sale.name}?date=${today.date}`);
      assert.deepEqual([board, period, date, from, to], [today.board, today.period, today.date, today.from, today.to]);
      assert.deepEqual(row, rowOf(today, sale));
      assert.equal(seatsLeft, row.capacity - row.seatsSold);
      const before = await get(`/rankings/soldout/${sale.name}?date=2020-01-01`);
      assert.deepEqual([before.rank, before.seatsSold, before.soldOutAt, before.date], [null, 0, null, '2020-01-01']);
      assert.equal((await get(`/rankings/soldout/${sale.name}`)).date, null);
      assertProblem(await server.call('GET', `/rankings/soldout/${sale.name}?date=today`), 400, 'invalid_parameter');
    }
  });

  test('follow what there is to sell', async () => {
    const sale = await Sale.open(server, 'MORE/1', {}, { sections: [{ id: 'A', capacity: 2 }, { id: 'B', capacity: 2 }] });
    await sale.held(await sale.buyer('ann'), { section: 'A', quantity: 2 });
    // When it was sold out, as soon as all nodes say so. How much there is to sell may be known a
    // moment before it is known when that was sold.
    const becomes = async (shareSold, isRight) => {
      let rows;
      await until(`${shareSold} is sold, on every node`, async () => {
        rows = await Promise.all(nodes().map((node) => get('/rankings/soldout/MORE/1', node)));
        return rows.every((row) => row.shareSold === shareSold && isRight(row.soldOutAt));
      });
      return rows[0].soldOutAt;
    };
    const change = async (sections) => assert.equal((await server.admin('PATCH', '/admin/events/MORE/1', { sections })).status, 200);
    await becomes(0.5, (at) => at === null);
    await change([{ id: 'A', capacity: 2 }]);
    const first = await becomes(1, (at) => at !== null);
    await change([{ id: 'A', capacity: 4 }]);
    await becomes(0.5, (at) => at === null);
    await change([{ id: 'A', capacity: 2 }]);
    await becomes(1, (at) => at > first);
  });

  test('are no longer sold out when a seat comes back (pitfall 39)', async () => {
    const sale = await Sale.open(server, 'AGAIN/1', {}, { sections: [{ id: 'A', capacity: 1 }] });
    const who = await sale.buyer('ann');
    const { id } = await sale.held(who);
    await until('sold out', async () => (await get('/rankings/soldout/AGAIN/1')).secondsToSellOut !== null);
    await sale.cancelled(who, id);
    await becomesRecount(sale);
    assert.deepEqual((({ rank, secondsToSellOut, seatsLeft }) => [rank, secondsToSellOut, seatsLeft])(await get('/rankings/soldout/AGAIN/1')), [null, null, 1]);
  });
});

test('what is asked wrongly is answered with 400 and a code', async () => {
  for (const board of ['soldout', 'daily', 'weekly', 'monthly'])
    for (const wrong of ['topN=0', 'topN=-1', 'topN=abc', 'topN=101', 'topN=', 'date=2026-02-30', 'date=today', 'date=2026-1-1', 'date=1969-12-31', 'date=9999-12-31', 'date='])
      assertProblemWith(await server.call('GET', `/rankings/${board}?${wrong}`), 400, 'invalid_parameter', {});
  for (const period of ['hourly', 'Daily', 'yearly'])
    for (const path of [`/rankings/${period}`, `/rankings/${period}/CONCERT/1`])
      assertProblemWith(await server.call('GET', path), 400, 'unknown_period', {});
  for (const path of ['/rankings/soldout/NO/1', '/rankings/daily/NO/1'])
    assertProblemWith(await server.call('GET', path), 404, 'event_not_found', {});
});

test('days begin where the configuration says', async () => {
  const own = await start({ args: ['--rankings-time-zone', 'Asia/Seoul'] });
  const { from, to } = await get('/rankings/daily?date=2026-12-25', own);
  assert.deepEqual([from, to], ['2026-12-24T15:00:00.000Z', '2026-12-25T15:00:00.000Z']);
  await own.stop();
  const refused = run(['serve', '--rankings-time-zone', 'Asia/Soul']);
  assert.equal(refused.status, 2);
  assert.match(refused.stderr, /rankings\.time_zone: "Asia\/Soul" is not in the time zone database/);
});

describe('a server without rankings', () => {
  test('sells, counts nothing, and says that it keeps none', async () => {
    const own = await start({ args: ['--rankings-enabled=false'] });
    const sale = await Sale.open(own, 'OFF/1', {}, { sections: [{ id: 'A', capacity: 2 }] });
    await sale.held(await sale.buyer('ann'), { quantity: 2 });
    for (const path of ['/rankings/soldout', '/rankings/daily', '/rankings/hourly', '/rankings/stream', '/rankings/soldout/OFF/1', '/rankings/daily/OFF/1', '/rankings/daily/NO/1', '/concerts/ranking?topN=0'])
      for (const node of own.nodes) assertProblemWith(await node.call('GET', path), 404, 'rankings_off', {});
    assert.equal(await own.metric('admitone_rankings_sales_total'), 0);
    audit(own, { args: ['--rankings-enabled=false'] });
    await own.stop('SIGTERM');
  });

  test('has them all when it is started with rankings again', async () => {
    const off = await start({ env: { ADMITONE_RANKINGS_ENABLED: 'false' } });
    const sale = await Sale.open(off, 'LATER/1', {}, { sections: [{ id: 'A', capacity: 50 }] });
    for (const who of await sale.buyers(5)) await sale.held(who);
    assertProblemWith(await off.call('GET', '/rankings/daily'), 404, 'rankings_off', {});
    await off.kill9();
    const on = await start({ dataDir: off.dataDir });
    for (const node of on.nodes)
      await until('they are counted', async () => (await get('/rankings/daily/LATER/1', node)).reservationCount === 5);
    audit(on);
    await on.stop();
    await off.stop();
  });

  test('is no default', () => {
    assert.match(run(['serve', '--help']).stdout, /--rankings-enabled .*\[true\]\n/);
    assert.match(run(['serve', '--print-config']).stdout, /\[rankings\]\nenabled = true /);
  });
});

test('after a crash and a restart boards are what the ledger says', async () => {
  const own = await start();
  const sale = await Sale.open(own, 'CRASH/1', {}, { sections: [{ id: 'A', capacity: 50 }] });
  const buyers = await sale.buyers(30);
  const held = await Promise.all(buyers.map((who) => sale.held(who)));
  await Promise.all(held.slice(0, 10).map(({ id }, i) => sale.cancelled(buyers[i], id)));
  await own.kill9();
  const again = await start({ dataDir: own.dataDir });
  for (const board of ['daily', 'soldout'])
    await until(`${board} is as it was`, async () => {
      const { reservationCount, seatsSold } = await get(`/rankings/${board}/CRASH/1`, again);
      // Boards in Redis outlive the nodes, and may have counted the holds and not yet the cancellations.
      assert.ok(isCluster || [0, 20].includes(reservationCount), 'all of it or, before it is known, nothing');
      return seatsSold === 20;
    });
  await again.stop();
  await own.stop();
});

test('an event that is deleted is on no board, and one created again begins with nothing', async () => {
  const sale = await Sale.open(server, 'GONE/1', {}, { sections: [{ id: 'A', capacity: 50 }] });
  const who = await sale.buyer('ann');
  const { id } = await sale.held(who);
  await becomesRecount(sale);
  await sale.cancelled(who, id);
  await becomesRecount(sale);
  assert.equal((await server.admin('DELETE', '/admin/events/GONE/1')).status, 204);
  const anew = await Sale.open(server, 'GONE/1', {}, { sections: [{ id: 'A', capacity: 50 }] });
  assert.equal((await get('/rankings/daily/GONE/1')).reservationCount, 0);
  await anew.held(await anew.buyer('bo'));
  await becomesRecount(anew);
});

test('an audit recounts the boards that nodes share, while they sell', onlyOn('redis+postgres', 'with --hot memory the boards are a part of the server'), async () => {
  const sale = await Sale.open(server, 'AUDIT/1', {}, { sections: [{ id: 'A', capacity: 500 }], maxPerUser: 100 });
  const buyers = await sale.buyers(10);
  let selling = true;
  const sold = Promise.all(
    buyers.map(async (who) => {
      while (selling) {
        const held = await sale.hold(who);
        if (held.status === 201) await sale.cancel(who, held.json.id);
      }
    }),
  );
  for (let i = 0; i < 3; i++) audit(server);
  selling = false;
  await sold;
  const look = () => run(['audit', ...storeFlags(server.dataDir)]);
  await sale.held(buyers[0]);
  await becomesRecount(sale);
  assert.match(look().stdout, /ok +boards equal a recount +\d+ checked/);
  const { key } = query(server.dataDir, "SELECT id AS key FROM events WHERE type = 'AUDIT'")[0];
  const info = 'performance:{soldout}:info';
  const row = redis(server.dataDir, 'HGET', info, key);
  redis(server.dataDir, 'HSET', info, key, row.replace(/^1 500 (\d+) 1 1 /, '1 500 $1 2 1 '));
  const wrong = look();
  assert.equal(wrong.status, 1, wrong.stdout);
  assert.match(wrong.stdout, /FAIL +boards equal a recount/);
  assert.match(wrong.stdout, /soldout AUDIT\/1: 2 reservations and 1 seats on the board, 1 and 1/);
  redis(server.dataDir, 'HSET', info, key, row);
  assert.equal(look().status, 0);
});

test('an audit that can reach the ledger and not Redis says so, and exits with 2', onlyOn('redis+postgres', 'there is no Redis to reach'), () => {
  const { postgresUrl } = homeOf(server.dataDir);
  const done = run(['audit', '--ledger', postgresUrl, '--hot', 'redis://127.0.0.1:1']);
  assert.equal(done.status, 2, done.stdout + done.stderr);
  assert.match(done.stdout, /FAIL +the boards in Redis could not be checked: /);
  assert.match(done.stdout, /\d+ checks, 0 violations/);
  const without = run(['audit', '--ledger', postgresUrl]);
  assert.equal(without.status, 0, without.stdout + without.stderr);
  assert.match(without.stdout, /- +the boards in Redis were not checked/);
});
