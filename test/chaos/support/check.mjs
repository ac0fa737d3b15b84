// When all is quiet: everything that the crowd was told is so, in the ledger and on every node.
import assert from 'node:assert/strict';

import { eachOf } from '../../e2e/support/queue.mjs';
import { until } from '../../e2e/support/server.mjs';
import { MAX_ACTIVE } from './crowd.mjs';

// All of it as it is at one moment.
async function ledgerOf({ cluster, type, id }) {
  const all = (table, where) => `(SELECT coalesce(json_agg(x), '[]') FROM ${table} x WHERE ${where}) AS ${table}`;
  const [found] = await cluster.ask(
    `SELECT ${all('queue_entries', 'x.event_id = e.id')}, ${all('reservations', 'x.event_id = e.id')}, ${all('sections', 'x.event_id = e.id')},
            ${all('seats', "x.state <> 'AVAILABLE'")}, (extract(epoch FROM now()) * 1000)::bigint AS now_ms
     FROM events e WHERE e.type = '${type}' AND e.external_id = '${id}'`,
  );
  return {
    nowMs: found.now_ms,
    entries: new Map(found.queue_entries.map((row) => [row.seq, row])),
    reservations: new Map(found.reservations.map((row) => [row.id, row])),
    sections: found.sections.sort((a, b) => a.position - b.position),
    seats: found.seats,
  };
}

function checkEntry(person, row, complain) {
  const about = JSON.stringify({ person: { ...person, holds: person.holds.map(({ id, told }) => ({ id, told })), headers: 0 }, row });
  if (row === undefined || row.user_id !== person.userId) return complain('an acknowledged place is not there', about);
  const isOver = row.active_expires_at !== null && row.active_expires_at <= Date.now();
  const mayBe = { WAITING: person.status === 'WAITING', ACTIVE: true, LEFT: person.leaves, COMPLETED: person.confirms, EXPIRED: isOver };
  if (!mayBe[row.status]) complain('a place has another end than was told', about);
  if (person.left && !['LEFT', 'COMPLETED', 'EXPIRED'].includes(row.status)) complain('who has left is still there', about);
}

function checkHold(hold, row, complain) {
  const { person, ...rest } = hold;
  const about = JSON.stringify({ hold: rest, leaves: person.leaves, row });
  if (row === undefined) return complain('an acknowledged hold is not there', about);
  if (row.user_id !== person.userId || row.seats !== hold.seats.join(',')) complain('a hold has another user or other seats', about);
  if (row.strategy !== hold.strategy) complain('a hold has another strategy', about);
  const isOver = row.expires_at <= Date.now();
  const mayBe = {
    HELD: hold.told === undefined,
    CONFIRMED: hold.told === 'CONFIRMED' || (hold.told === undefined && hold.asked === 'confirm'),
    CANCELLED: hold.told === 'CANCELLED' || (hold.told === undefined && (hold.asked === 'cancel' || person.leaves)),
    EXPIRED: hold.told === 'EXPIRED' || (hold.told === undefined && isOver),
  };
  if (!mayBe[row.status]) complain('a hold is not what was told', about);
}

// Who was told before somebody else even asked stands before them.
function checkOrder(people, complain) {
  const told = people.filter(({ seq }) => seq !== undefined).sort((a, b) => a.told - b.told);
  const asked = [...told].sort((a, b) => a.sent - b.sent);
  let before = 0;
  let highest = { seq: 0 };
  for (const one of asked) {
    for (; before < told.length && told[before].told < one.sent; before++) if (told[before].seq > highest.seq) highest = told[before];
    if (highest.seq >= one.seq) complain('a later one has the lower number', JSON.stringify([highest.userId, highest.seq, one.userId, one.seq]));
  }
}

function checkSeats({ reservations, seats }, complain) {
  const owners = new Map();
  for (const { id, section_id: section, seats: numbers, status } of reservations.values()) {
    if (status !== 'HELD' && status !== 'CONFIRMED') continue;
    for (const number of numbers.split(',')) {
      const seat = `${section}/${number}`;
      if (owners.has(seat)) complain('a seat is sold twice', `${seat}: ${owners.get(seat)}, ${id}`);
      owners.set(seat, id);
    }
  }
  if (seats.length !== owners.size) complain('seats are not those of the live reservations', `${seats.length}, ${owners.size}`);
}

// Every node shows of the seats what the ledger has: what was lost on its way comes by the relay.
async function checkCounts(crowd) {
  const { cluster, name } = crowd;
  for (const node of cluster.nodes) {
    let shown;
    let stored;
    const isSame = async () => {
      const event = await node.call('GET', `/events/${name}`);
      shown = event.json?.sections?.map((s) => [s.id, s.available, s.held, s.confirmed]) ?? event.text;
      stored = (await ledgerOf(crowd)).sections.map((s) => [s.code, s.capacity - s.held - s.confirmed, s.held, s.confirmed]);
      return JSON.stringify(shown) === JSON.stringify(stored);
    };
    await until('the counts agree', isSame, 12000).catch(() => {});
    assert.deepEqual(shown, stored, `node ${node.number} shows other seats than the ledger has`);
  }
}

const isLive = (status) => status === 'WAITING' || status === 'ACTIVE';

// The places of those who wait, as each node shows them, are in the order of their numbers; whatever
// else a node says of a place, the ledger says too. But for one thing: whoever left or bought just
// when the way to Redis broke has ended in the ledger, and is live in Redis until `reconcile` finds
// it, or its time is over there. Returns how many are live.
async function checkPlaces(crowd, { entries }, complain) {
  const people = crowd.people.filter(({ seq }) => seq !== undefined);
  const stale = new Set();
  for (const node of crowd.cluster.nodes) {
    const answers = await eachOf(people, 16, (person) => node.call('GET', `/queue/${crowd.name}/status`, { headers: person.headers }));
    const waiting = [];
    answers.forEach(({ status, json, text }, i) => {
      const row = entries.get(people[i].seq);
      const isOver = row?.status === 'ACTIVE' && row.active_expires_at <= Date.parse(json?.serverTime) + 50;
      const stored = isOver ? 'EXPIRED' : row?.status;
      const hasEnded = stored === 'LEFT' || stored === 'COMPLETED';
      if (hasEnded && json?.status === 'EXPIRED') return; // there it was over by its time
      if (status !== 200 || json.degraded) complain('no place is shown', text);
      else if (hasEnded && isLive(json.status)) stale.add(people[i]);
      else if (json.status !== stored && !(isOver && json.status === 'ACTIVE')) complain(`node ${node.number} shows another status than the ledger has`, `${stored} ${text}`);
      if (json?.status === 'WAITING' && people[i].lane === undefined) waiting.push([people[i].seq, json.position]);
    });
    waiting.sort(([a], [b]) => a - b);
    waiting.forEach(([seq, position], i) => {
      if (i > 0 && position <= waiting[i - 1][1]) complain('the order is another', JSON.stringify([waiting[i - 1], [seq, position]]));
    });
  }
  return stale.size;
}

// Who waits and who is in, counted: nobody is forgotten, and no ghost keeps a place.
async function checkQueue(crowd) {
  const now = '(extract(epoch FROM clock_timestamp()) * 1000)';
  const question = `SELECT count(*) FILTER (WHERE status = 'WAITING') AS waiting,
    count(*) FILTER (WHERE status = 'ACTIVE' AND active_expires_at > ${now}) AS active FROM queue_entries`;
  for (const node of crowd.cluster.nodes) {
    let shown;
    let stored;
    await until('the queues agree', async () => {
      const { json, text } = await node.admin('GET', `/admin/queue/${crowd.name}`);
      shown = json === undefined ? text : { waiting: json.waiting, active: json.active };
      [stored] = await crowd.cluster.ask(question);
      return shown.waiting === stored.waiting && shown.active === stored.active;
    }, 12000).catch(() => assert.deepEqual(shown, stored, `node ${node.number} counts otherwise than the ledger`));
  }
}

async function checkReservations(crowd, complain) {
  for (const node of crowd.cluster.nodes)
    await eachOf(crowd.holds, 16, async (hold) => {
      const { status, json, text } = await node.call('GET', `/reservations/${hold.id}`, { headers: hold.person.headers });
      if (status !== 200 || `${json.seats}` !== `${hold.seats}`) complain('a reservation is not shown', text);
      else if (hold.told !== undefined && json.status !== hold.told) complain('a reservation is shown otherwise', `${hold.told} ${text}`);
    });
}

export async function check(crowd) {
  const complaints = [...crowd.lies];
  const complain = (what, detail) => complaints.push(`${what}: ${detail}`);
  const { cluster, name } = crowd;
  const paused = await cluster.nodes[0].admin('POST', `/admin/queue/${name}/pause`);
  assert.equal(paused.status, 200, paused.text);
  assert.ok(crowd.mostActive <= MAX_ACTIVE, `${crowd.mostActive} were ACTIVE at once`);
  await checkCounts(crowd);
  const ledger = await ledgerOf(crowd);
  for (const person of crowd.people) if (person.seq !== undefined) checkEntry(person, ledger.entries.get(person.seq), complain);
  for (const hold of crowd.holds) checkHold(hold, ledger.reservations.get(hold.id), complain);
  checkOrder(crowd.people, complain);
  checkSeats(ledger, complain);
  crowd.stale = await checkPlaces(crowd, ledger, complain);
  if (crowd.stale > 0) {
    await cluster.reconcile();
    assert.equal(await checkPlaces(crowd, await ledgerOf(crowd), complain), 0, 'reconcile has mended them all');
  }
  await checkReservations(crowd, complain);
  await checkQueue(crowd);
  assert.deepEqual(complaints.slice(0, 8), [], `${complaints.length} complaints; the crowd: ${JSON.stringify(crowd.summary())}`);
}
