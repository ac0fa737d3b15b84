// After the load has ended: every answer that a user got is true, in the ledger and on every node.
import assert from 'node:assert/strict';

import { eachOf } from '../../e2e/support/queue.mjs';
import { until } from '../../e2e/support/server.mjs';
import { MAX_ACTIVE } from './load.mjs';

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
  const about = JSON.stringify({ person: { ...person, holds: person.holds.map(({ id, result }) => ({ id, result })), headers: 0 }, row });
  if (row === undefined || row.user_id !== person.userId) return complain('an acknowledged place is not there', about);
  const isOver = row.active_expires_at !== null && row.active_expires_at <= Date.now();
  const mayBe = { WAITING: person.status === 'WAITING', ACTIVE: true, LEFT: person.leaves, COMPLETED: person.confirms, EXPIRED: isOver };
  if (!mayBe[row.status]) complain('a place has another end than was answered', about);
  if (person.left && !['LEFT', 'COMPLETED', 'EXPIRED'].includes(row.status)) complain('a user who has left is still there', about);
}

function checkHold(hold, row, complain) {
  const { person, ...rest } = hold;
  const about = JSON.stringify({ hold: rest, leaves: person.leaves, row });
  if (row === undefined) return complain('an acknowledged hold is not there', about);
  if (row.user_id !== person.userId || row.seats !== hold.seats.join(',')) complain('a hold has another user or other seats', about);
  if (row.strategy !== hold.strategy) complain('a hold has another strategy', about);
  const isOver = row.expires_at <= Date.now();
  const mayBe = {
    HELD: hold.result === undefined,
    CONFIRMED: hold.result === 'CONFIRMED' || (hold.result === undefined && hold.asked === 'confirm'),
    CANCELLED: hold.result === 'CANCELLED' || (hold.result === undefined && (hold.asked === 'cancel' || person.leaves)),
    EXPIRED: hold.result === 'EXPIRED' || (hold.result === undefined && isOver),
  };
  if (!mayBe[row.status]) complain('a hold is not what was answered', about);
}

// A user who was answered before another one sent the request is in front of that one.
function checkOrder(people, complain) {
  const answered = people.filter(({ seq }) => seq !== undefined).sort((a, b) => a.answered - b.answered);
  const asked = [...answered].sort((a, b) => a.sent - b.sent);
  let before = 0;
  let highest = { seq: 0 };
  for (const one of asked) {
    for (; before < answered.length && answered[before].answered < one.sent; before++) if (answered[before].seq > highest.seq) highest = answered[before];
    if (highest.seq >= one.seq) complain('a later user has the lower number', JSON.stringify([highest.userId, highest.seq, one.userId, one.seq]));
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

// Every node shows the seats as the ledger has them: the relay repeats changes that were lost.
async function checkCounts(load) {
  const { cluster, name } = load;
  for (const node of cluster.nodes) {
    let shown;
    let stored;
    const isSame = async () => {
      const event = await node.call('GET', `/events/${name}`);
      shown = event.json?.sections?.map((s) => [s.id, s.available, s.held, s.confirmed]) ?? event.text;
      stored = (await ledgerOf(load)).sections.map((s) => [s.code, s.capacity - s.held - s.confirmed, s.held, s.confirmed]);
      return JSON.stringify(shown) === JSON.stringify(stored);
    };
    await until('the counts agree', isSame, 12000).catch(() => {});
    assert.deepEqual(shown, stored, `node ${node.number} shows other seats than the ledger has`);
  }
}

const isLive = (status) => status === 'WAITING' || status === 'ACTIVE';

// The places of waiting users, as each node shows them, are in the order of their numbers, and their
// status is that of the ledger. One exception: a user who left or bought when the connection to Redis
// broke has ended in the ledger, and is live in Redis until `reconcile` finds it or it expires there.
// Returns how many such places there are.
async function checkPlaces(load, { entries }, complain) {
  const people = load.people.filter(({ seq }) => seq !== undefined);
  const stale = new Set();
  for (const node of load.cluster.nodes) {
    const answers = await eachOf(people, 16, (person) => node.call('GET', `/queue/${load.name}/status`, { headers: person.headers }));
    const waiting = [];
    answers.forEach(({ status, json, text }, i) => {
      const row = entries.get(people[i].seq);
      const isOver = row?.status === 'ACTIVE' && row.active_expires_at <= Date.parse(json?.serverTime) + 50;
      const stored = isOver ? 'EXPIRED' : row?.status;
      const hasEnded = stored === 'LEFT' || stored === 'COMPLETED';
      if (hasEnded && json?.status === 'EXPIRED') return; // there it expired
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

// Waiting and active users, counted: none is lost, and no ended one keeps a place.
async function checkQueue(load) {
  const now = '(extract(epoch FROM clock_timestamp()) * 1000)';
  const question = `SELECT count(*) FILTER (WHERE status = 'WAITING') AS waiting,
    count(*) FILTER (WHERE status = 'ACTIVE' AND active_expires_at > ${now}) AS active FROM queue_entries`;
  for (const node of load.cluster.nodes) {
    let shown;
    let stored;
    await until('the queues agree', async () => {
      const { json, text } = await node.admin('GET', `/admin/queue/${load.name}`);
      shown = json === undefined ? text : { waiting: json.waiting, active: json.active };
      [stored] = await load.cluster.ask(question);
      return shown.waiting === stored.waiting && shown.active === stored.active;
    }, 12000).catch(() => assert.deepEqual(shown, stored, `node ${node.number} counts otherwise than the ledger`));
  }
}

async function checkReservations(load, complain) {
  for (const node of load.cluster.nodes)
    await eachOf(load.holds, 16, async (hold) => {
      const { status, json, text } = await node.call('GET', `/reservations/${hold.id}`, { headers: hold.person.headers });
      if (status !== 200 || `${json.seats}` !== `${hold.seats}`) complain('a reservation is not shown', text);
      else if (hold.result !== undefined && json.status !== hold.result) complain('a reservation is shown otherwise', `${hold.result} ${text}`);
    });
}

export async function check(load) {
  const complaints = [...load.contradictions];
  const complain = (what, detail) => complaints.push(`${what}: ${detail}`);
  const { cluster, name } = load;
  // A connection to PostgreSQL that was lost unused is renewed now; if that takes too long, the answer
  // is 503.
  await until('the queue is paused', async () => {
    const { status, json, text } = await cluster.nodes[0].admin('POST', `/admin/queue/${name}/pause`);
    assert.ok(status === 200 || (status === 503 && json.code === 'ledger_failed'), text);
    return status === 200;
  });
  assert.ok(load.mostActive <= MAX_ACTIVE, `${load.mostActive} were ACTIVE at once`);
  await checkCounts(load);
  const ledger = await ledgerOf(load);
  for (const person of load.people) if (person.seq !== undefined) checkEntry(person, ledger.entries.get(person.seq), complain);
  for (const hold of load.holds) checkHold(hold, ledger.reservations.get(hold.id), complain);
  checkOrder(load.people, complain);
  checkSeats(ledger, complain);
  load.stale = await checkPlaces(load, ledger, complain);
  if (load.stale > 0) {
    await cluster.reconcile();
    assert.equal(await checkPlaces(load, await ledgerOf(load), complain), 0, 'reconcile has repaired them all');
  }
  await checkReservations(load, complain);
  await checkQueue(load);
  assert.deepEqual(complaints.slice(0, 8), [], `${complaints.length} complaints; the load: ${JSON.stringify(load.summary())}`);
}
