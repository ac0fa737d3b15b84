// Seats as users of the API see them, and as the ledger and the gauges have them.
import assert from 'node:assert/strict';
import { hexOf } from './cluster.mjs';
import { WaitingRoom, TIME, assertAudit, bearer, query } from './queue.mjs';
import { metricsOf } from './server.mjs';

// Every strategy, and the mode of the sections that have it.
export const MODE_OF = {
  slot: 'slot',
  lock: 'lock',
  adaptive: 'adaptive',
  optimistic: 'seat',
  pessimistic: 'seat',
  'distributed-lock': 'seat',
};
export const STRATEGIES = Object.keys(MODE_OF);

const ROOMY = { maxActive: 100000, entryBatchSize: 100000 };
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const FIELDS = [
  'id', 'status', 'strategy', 'eventType', 'eventId', 'section', 'seats', 'userId', 'price', 'currency',
  'expiresAt', 'confirmationCode', 'createdAt', 'confirmedAt', 'endedAt',
];

// An event on sale: by default every user who enters is ACTIVE at once, may cancel what is CONFIRMED,
// and may name seats again at once. A buyer is { userId, token }; `options` of a request: headers, agent, and to confirm or
// cancel also body.
export class Sale extends WaitingRoom {
  static open(server, name, queue = {}, more = {}) {
    return super.open(server, name, { ...ROOMY, ...queue }, { cancelConfirmed: true, reholdSeconds: 0, ...more });
  }

  // An ACTIVE user.
  async buyer(userId) {
    const place = await this.enter(userId);
    assert.equal(place.status, 'ACTIVE');
    return { userId, token: place.entryToken };
  }

  buyers(count, prefix = 'buyer') {
    return Promise.all(Array.from({ length: count }, (_, i) => this.buyer(`${prefix}${i + 1}`)));
  }

  // The bare answer. `wish`: section (A), quantity or seats, strategy, and whatever else goes into
  // the body.
  hold(who, wish = { quantity: 1 }, { headers, ...options } = {}) {
    return this.server.call('POST', '/reservations', {
      ...options,
      headers: { ...tokenOf(who), ...headers },
      body: { eventType: this.type, eventId: this.id, section: 'A', ...wish },
    });
  }

  // Holds, and it must be had. Returns the reservation.
  async held(who, wish, options) {
    const answer = await this.hold(who, wish, options);
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.headers.location, `/reservations/${answer.json.id}`);
    return this.reservation(answer, 'HELD');
  }

  finish(who, verb, id, { headers, ...options } = {}) {
    return this.server.call('POST', `/reservations/${id}/${verb}`, { ...options, headers: { ...tokenOf(who), ...headers } });
  }

  confirm(who, id, options) {
    return this.finish(who, 'confirm', id, options);
  }

  cancel(who, id, options) {
    return this.finish(who, 'cancel', id, options);
  }

  async confirmed(who, id, options) {
    return this.found(await this.confirm(who, id, options), 'CONFIRMED');
  }

  async cancelled(who, id, options) {
    return this.found(await this.cancel(who, id, options), 'CANCELLED');
  }

  found(answer, status) {
    assert.equal(answer.status, 200, answer.text);
    return this.reservation(answer, status);
  }

  get(who, id, { headers, ...options } = {}) {
    return this.server.call('GET', `/reservations/${id}`, { ...options, headers: { ...tokenOf(who), ...headers } });
  }

  async got(who, id, status) {
    return this.found(await this.get(who, id), status);
  }

  // The user's own live ones.
  async list(who, options = {}) {
    const answer = await this.server.call('GET', '/reservations', { ...options, headers: { ...tokenOf(who), ...options.headers } });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers['cache-control'], 'no-store');
    assert.deepEqual(Object.keys(answer.json), ['reservations']);
    for (const one of answer.json.reservations) assertReservation(one);
    return answer.json.reservations;
  }

  // Every answer about a reservation has the same shape, and its parts agree. Returns its JSON.
  reservation(answer, status) {
    assert.equal(answer.headers['cache-control'], 'no-store');
    assertReservation(answer.json);
    assert.equal(`${answer.json.eventType}/${answer.json.eventId}`, this.name);
    if (status !== undefined) assert.equal(answer.json.status, status, answer.text);
    return answer.json;
  }

  async map(section = 'A') {
    const answer = await this.server.call('GET', `/events/${this.name}/sections/${section}/seats`);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
  }

  async sections() {
    const answer = await this.server.call('GET', `/events/${this.name}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.json.sections;
  }

  // The public view of a section.
  async counts(section = 'A') {
    const { available, held, confirmed } = (await this.sections()).find(({ id }) => id === section);
    return { available, held, confirmed };
  }

  // The rows of its reservations, oldest first; `id` as the API writes it. Without those that were
  // undone before they were answered.
  rows() {
    const rows = query(
      this.server.dataDir,
      `SELECT ${hexOf('r.id')} AS id, r.user_id, r.section_id, r.entry_seq, r.strategy, r.status, r.seats, r.price,
              r.expires_at, r.created_at, r.confirmed_at, r.ended_at, r.confirmation_code
       FROM reservations r JOIN events e ON e.id = r.event_id
       WHERE e.type = '${this.type}' AND e.external_id = '${this.id}' AND e.deleted_at IS NULL AND r.status <> 'VOID' ORDER BY r.id`,
    );
    return rows.map((row) => ({ ...row, id: row.id.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5') }));
  }
}

const tokenOf = (who) => (who?.token === undefined ? {} : bearer(who.token));

export function assertReservation(json) {
  const text = JSON.stringify(json);
  assert.deepEqual(Object.keys(json), FIELDS, text);
  assert.match(json.id, ID);
  assert.ok(json.strategy in MODE_OF, text);
  assert.deepEqual(json.seats, [...new Set(json.seats)].sort((a, b) => a - b), 'each once, in order');
  assert.ok(json.seats.length > 0 && json.seats.every((seat) => Number.isInteger(seat) && seat > 0), text);
  assert.match(json.currency, /^[A-Z]{3}$/);
  for (const name of ['createdAt', 'expiresAt']) assert.match(json[name], TIME, text);
  assert.match(json.status, /^(HELD|CONFIRMED|CANCELLED|EXPIRED)$/);
  const isLive = json.status === 'HELD' || json.status === 'CONFIRMED';
  const mayBeConfirmed = json.status === 'CONFIRMED' || json.status === 'CANCELLED';
  if (isLive) assert.equal(json.endedAt, null, text);
  else assert.match(json.endedAt, TIME, text);
  if (json.status === 'CONFIRMED' || (mayBeConfirmed && json.confirmedAt !== null)) {
    assert.match(json.confirmedAt, TIME, text);
    assert.match(json.confirmationCode, /^[0-9A-Z]{10}$/, text);
  } else {
    assert.deepEqual([json.confirmedAt, json.confirmationCode], [null, null], text);
  }
}

// The value of a gauge or counter with these labels; 0 when it was never counted.
export async function metric(server, name, labels = {}) {
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  const lines = (await metricsOf(server)).split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  assert.ok(lines.length > 0, `there is no metric ${name}`);
  const found = lines.filter((line) => wanted.every((one) => line.includes(one)));
  assert.equal(found.length, 1, `${name} with ${wanted.join(', ')}: ${found.join(', ') || 'none'}`);
  return Number(found[0].slice(found[0].lastIndexOf(' ') + 1));
}

export const audit = (server, options) => assertAudit(server.dataDir, options);

// Checks that the public view of the seats, in counts and maps, agrees with the ledger. When nothing
// is under way.
export async function assertHotIsLedger(sale) {
  const stored = query(
    sale.server.dataDir,
    `SELECT s.id, s.code, s.capacity, s.held, s.confirmed FROM sections s JOIN events e ON e.id = s.event_id
     WHERE e.type = '${sale.type}' AND e.external_id = '${sale.id}' AND e.deleted_at IS NULL AND s.removed_version IS NULL
     ORDER BY s.position`,
  );
  const shown = await sale.sections();
  assert.deepEqual(
    shown.map(({ id, available, held, confirmed }) => [id, available, held, confirmed]),
    stored.map(({ code, capacity, held, confirmed }) => [code, capacity - held - confirmed, held, confirmed]),
  );
  for (const { id, code, capacity } of stored) {
    const letters = new Array(capacity).fill('A');
    for (const { seat_no: seat, state } of query(sale.server.dataDir, `SELECT seat_no, state FROM seats WHERE section_id = ${id} AND state <> 'AVAILABLE'`))
      letters[seat - 1] = state[0];
    assert.equal((await sale.map(code)).seats, letters.join(''), `the map of ${code}`);
  }
}
