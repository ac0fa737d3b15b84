// Rankings by the calendar: sales around midnight, the end of an ISO year and the end of a month
// count in their own period, are subtracted from it, and expire with it. The test sets the clock.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { clock } from './support/clock.mjs';
import { Sale, audit } from './support/reservations.mjs';
import { pause, test, until } from './support/server.mjs';

const DAY_MS = 86400000;
// How long a board is kept when its period has ended.
const KEPT_MS = { daily: DAY_MS, weekly: 7 * DAY_MS, monthly: 30 * DAY_MS };
const PERIODS = Object.keys(KEPT_MS);
const DATES = [
  '2026-12-01', '2026-12-21', '2026-12-27', '2026-12-28', '2026-12-29', '2026-12-31', '2027-01-01',
  '2027-01-03', '2027-01-04', '2027-01-10', '2027-01-30', '2027-01-31', '2027-02-01', '2027-02-07',
];

// A second implementation of the calendar: days are numbers of milliseconds, as in UTC.
const dayOf = (ms, zoneMs) => ms - ((ms + zoneMs) % DAY_MS) + zoneMs;
const monthsOn = (day, months) => Date.UTC(new Date(day).getUTCFullYear(), new Date(day).getUTCMonth() + months, 1);
const BEGINS = {
  daily: (day) => day,
  weekly: (day) => day - ((new Date(day).getUTCDay() + 6) % 7) * DAY_MS,
  monthly: (day) => monthsOn(day, 0),
};
const ENDS = {
  daily: (day) => day + DAY_MS,
  weekly: (day) => BEGINS.weekly(day) + 7 * DAY_MS,
  monthly: (day) => monthsOn(day, 1),
};

// A server's two events, and what they have sold by the test's own count.
class Shop {
  constructor(server, zoneMs = 0) {
    this.server = server;
    this.zoneMs = zoneMs;
    this.sales = []; // { event, user, id, seats, day, isLive, isHeld }
    this.users = 0;
  }

  static async open(server, zoneMs) {
    const shop = new Shop(server, zoneMs);
    const event = (name) => Sale.open(server, name, {}, { sections: [{ id: 'A', capacity: 50000 }] });
    shop.events = [await event('CAL/1'), await event('CAL/2')];
    return shop;
  }

  // On the day on which the server says that it was.
  async sell(i, { confirm = true } = {}) {
    const event = this.events[i % 3 === 0 ? 1 : 0];
    const who = await event.buyer(`buyer${++this.users}`);
    const { id, seats, createdAt } = await event.held(who, { quantity: 1 + (i % 2) });
    if (confirm) await event.confirmed(who, id);
    const day = dayOf(Date.parse(createdAt), this.zoneMs);
    this.sales.push({ event, user: who.userId, id, seats: seats.length, day, isLive: true, isHeld: !confirm });
  }

  // Sells one after the other from before midnight until after it, on both days. One hold of the first is
  // never confirmed.
  async sellOver(date) {
    const midnight = Date.parse(`${date}T00:00:00Z`);
    const before = this.sales.length;
    this.step(midnight - this.zoneMs - 2500);
    await this.sell(0, { confirm: false });
    for (let i = 0; clock.now() < midnight - this.zoneMs + 1500; i++) {
      await this.sell(i);
      await pause(30);
    }
    const sold = this.sales.slice(before).map(({ day }) => day);
    assert.deepEqual([...new Set(sold)], [midnight - DAY_MS, midnight], 'there is a sale on each side of midnight');
  }

  // Holds are over then.
  step(time) {
    const at = new Date(time).getTime();
    assert.ok(at > clock.now() + 600000, 'far enough that a hold expires');
    clock.set(at);
    for (const sale of this.sales) if (sale.isHeld) sale.isLive = false;
  }

  // A reservation of that day, by its buyer. A user who was ACTIVE days ago enters again.
  async cancelOne(date) {
    const day = Date.parse(`${date}T00:00:00Z`);
    const sale = this.sales.find((one) => one.isLive && !one.isHeld && one.day === day);
    assert.ok(sale, `nothing is left of ${date}`);
    await sale.event.cancelled(await sale.event.buyer(sale.user), sale.id);
    sale.isLive = false;
  }

  // Rows of a board as they must be at that time: [event, reservations, seats], the best first.
  wanted(period, date, nowMs) {
    const day = Date.parse(`${date}T00:00:00Z`);
    if (nowMs + this.zoneMs >= ENDS[period](day) + KEPT_MS[period]) return [];
    const here = this.sales.filter((sale) => sale.isLive && BEGINS[period](sale.day) === BEGINS[period](day));
    return this.events
      .map((event) => [event.id, here.filter((sale) => sale.event === event)])
      .filter(([, sales]) => sales.length > 0)
      .map(([id, sales]) => [id, sales.length, sales.reduce((sum, { seats }) => sum + seats, 0)])
      .sort((a, b) => b[1] - a[1]);
  }

  async get(node, path) {
    const answer = await node.call('GET', path);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
  }

  // The order of two events with the same score depends on time and is not compared here.
  async look(node, period, date) {
    const { rankings, from, to, serverTime } = await this.get(node, `/rankings/${period}?date=${date}`);
    const day = Date.parse(`${date}T00:00:00Z`);
    const span = [BEGINS[period](day), ENDS[period](day)].map((ms) => new Date(ms - this.zoneMs).toISOString());
    assert.deepEqual([from, to], span, `${period} of ${date}`);
    const shown = rankings.map(({ eventId, reservationCount, seatsSold }) => [eventId, reservationCount, seatsSold]);
    return { shown: sorted(shown), wanted: sorted(this.wanted(period, date, Date.parse(serverTime))) };
  }

  async lookAtAll() {
    const shown = {};
    const wanted = {};
    for (const [i, node] of this.server.nodes.entries())
      for (const period of PERIODS)
        for (const date of DATES) {
          const name = `${period} of ${date} on node ${i + 1}`;
          ({ shown: shown[name], wanted: wanted[name] } = await this.look(node, period, date));
        }
    return { shown, wanted };
  }

  // Every board of every node, all in one look.
  async isCounted() {
    let last;
    const isSame = async () => {
      last = await this.lookAtAll();
      return isDeepStrictEqual(last.shown, last.wanted);
    };
    await until('boards are what was sold', isSame).catch((error) => {
      assert.deepEqual(last?.shown, last?.wanted);
      throw error;
    });
  }

  async sold(period, date) {
    const { rankings } = await this.get(this.server, `/rankings/${period}?date=${date}`);
    return rankings.reduce((sum, row) => sum + row.reservationCount, 0);
  }

  async again() {
    const { dataDir } = this.server;
    await this.server.kill9();
    this.server = await clock.start({ dataDir, args: this.args });
    for (const event of this.events) event.server = this.server;
    await this.isCounted();
  }
}

const sorted = (rows) => rows.toSorted((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));

test('each sale counts in its period, is taken back from it and goes with it', async () => {
  clock.set('2026-12-27T12:00:00Z');
  const first = await clock.start();
  const shop = await Shop.open(first);

  // From Sunday to Monday: another day, another week, the same month.
  await shop.sellOver('2026-12-28');
  await shop.isCounted();
  const ofSunday = await shop.sold('weekly', '2026-12-27');
  assert.equal(await shop.sold('monthly', '2026-12-01'), ofSunday + (await shop.sold('weekly', '2026-12-28')));

  // A day later, a cancelled reservation is subtracted from the day of its sale (pitfall 39).
  shop.step('2026-12-28T23:59:00Z');
  const ofMonday = shop.wanted('daily', '2026-12-28', clock.now());
  await shop.cancelOne('2026-12-27');
  await shop.isCounted();
  assert.ok((await shop.sold('daily', '2026-12-27')) > 0, 'a day is kept for a day');
  assert.deepEqual(shop.wanted('daily', '2026-12-28', clock.now()), ofMonday);

  // Sunday's board is removed at midnight and never comes back; its week and month continue.
  clock.set('2026-12-29T00:00:00Z');
  assert.equal(await shop.sold('daily', '2026-12-27'), 0);
  await shop.cancelOne('2026-12-27');
  await shop.isCounted();
  assert.equal(await shop.sold('daily', '2026-12-27'), 0);
  assert.ok((await shop.sold('weekly', '2026-12-27')) > 0);

  // From the old year into the new one: another day, another month, the same ISO week (pitfall 38).
  await shop.sellOver('2027-01-01');
  await shop.isCounted();
  const week = await shop.sold('weekly', '2026-12-28');
  assert.deepEqual([await shop.sold('weekly', '2027-01-01'), await shop.sold('weekly', '2027-01-03')], [week, week]);
  assert.equal(await shop.sold('monthly', '2027-01-31'), await shop.sold('daily', '2027-01-01'));

  // From its last week into 2027-W01. The week before that year's end is removed by then.
  await shop.sellOver('2027-01-04');
  await shop.isCounted();
  assert.equal(await shop.sold('weekly', '2026-12-21'), 0);
  assert.equal(await shop.sold('weekly', '2027-01-10'), await shop.sold('daily', '2027-01-04'));

  await shop.again();
  await shop.cancelOne('2026-12-27');
  await shop.cancelOne('2026-12-31');
  await shop.isCounted();

  // Thirty days after its end, the month goes, too.
  shop.step('2027-01-30T23:59:00Z');
  await shop.isCounted();
  assert.ok((await shop.sold('monthly', '2026-12-01')) > 0);
  clock.set('2027-01-31T00:00:00Z');
  await shop.cancelOne('2026-12-28');
  await shop.cancelOne('2027-01-01');
  await shop.isCounted();
  assert.equal(await shop.sold('monthly', '2026-12-01'), 0);
  await shop.again();

  audit(shop.server, { env: clock.env() });
  await shop.server.stop();
  await first.stop();
});

test('a month ends when it does where the configuration says', async () => {
  clock.set('2027-01-31T06:00:00Z');
  const args = ['--rankings-time-zone', 'Asia/Seoul'];
  const first = await clock.start({ args });
  const shop = Object.assign(await Shop.open(first, 9 * 3600000), { args });
  await shop.sellOver('2027-02-01'); // at 15:00 of January 31 in UTC
  await shop.isCounted();
  for (const period of PERIODS) assert.ok((await shop.sold(period, '2027-02-01')) > 0, `${period}: it is February, and Monday`);
  await shop.cancelOne('2027-01-31');
  await shop.isCounted();
  await shop.again();
  audit(shop.server, { args, env: clock.env() });
  await shop.server.stop();
  await first.stop();
});
