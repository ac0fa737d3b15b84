// Asynchronous requests for seats, as users of the API see them.
import assert from 'node:assert/strict';
import { hexOf } from './cluster.mjs';
import { messagesOf } from './feed.mjs';
import { TIME, bearer, query } from './queue.mjs';
import { Sale, assertHotIsLedger, audit } from './reservations.mjs';
import { hasKafka, until } from './server.mjs';
import { Stream } from './sse.mjs';

const FIELDS = [
  'requestId', 'status', 'position', 'eventType', 'eventId', 'section', 'quantity', 'seats', 'userId',
  'reservationId', 'expiresAt', 'reason', 'message', 'createdAt', 'finishedAt',
];
export const REQUEST_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const UNDECIDED = ['PENDING', 'PROCESSING'];
const DECIDED_MS = 120000;
export const isDecided = ({ status }) => !UNDECIDED.includes(status);

export class RequestSale extends Sale {
  // The bare answer. `wish` as of Sale.hold.
  request(who, wish = { quantity: 1 }, { headers, ...options } = {}) {
    return this.server.call('POST', '/api/v4/queue', {
      ...options,
      headers: { ...bearer(who.token), ...headers },
      body: { eventType: this.type, eventId: this.id, section: 'A', ...wish },
    });
  }

  // It must be accepted. Returns { requestId, status, position }.
  async accepted(who, wish, options) {
    const answer = await this.request(who, wish, options);
    assert.equal(answer.status, 202, answer.text);
    assert.deepEqual(Object.keys(answer.json), ['requestId', 'status', 'position']);
    assert.match(answer.json.requestId, REQUEST_ID);
    assert.equal(answer.json.status, 'PENDING');
    assert.ok(Number.isInteger(answer.json.position) && answer.json.position >= 0, answer.text);
    assert.equal(answer.headers.location, `/api/v4/status/${answer.json.requestId}`);
    assert.equal(answer.headers['cache-control'], 'no-store');
    return answer.json;
  }

  look(who, requestId, { headers, ...options } = {}) {
    return this.server.call('GET', `/api/v4/status/${requestId}`, { ...options, headers: { ...bearer(who.token), ...headers } });
  }

  async looked(who, requestId, options) {
    const answer = await this.look(who, requestId, options);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers['cache-control'], 'no-store');
    return assertRequest(answer.json);
  }

  // Waits for the result.
  decided(who, requestId, options) {
    return until(`${requestId} is decided`, async () => {
      const json = await this.looked(who, requestId, options);
      return isDecided(json) && json;
    });
  }

  subscribe(who, requestId, options) {
    return Stream.at(this.server, `/api/v4/subscribe/${requestId}?token=${who.token}`, options);
  }

  // In the order of acceptance where the feed is the ledger. On Kafka the ledger has only decided
  // requests, and those that were set aside, in no order.
  requestRows() {
    const rows = query(
      this.server.dataDir,
      `SELECT ${hexOf('q.id')} AS id, q.seq, q.status, q.user_id, q.partition FROM requests q JOIN events e ON e.id = q.event_id
       WHERE e.type = '${this.type}' AND e.external_id = '${this.id}' ORDER BY q.seq`,
    );
    return rows.map((row) => ({ ...row, id: row.id.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5') }));
  }

  // The ids of all requests that were accepted, in the order of acceptance; on Kafka in that order
  // within each partition. A request that is in the topic twice is one request.
  acceptedIds() {
    if (!hasKafka) return this.requestRows().map(({ id }) => id);
    const own = messagesOf(this.server.dataDir).map(({ payload }) => JSON.parse(payload)).filter(({ eventType, eventId }) => eventType === this.type && eventId === this.id);
    return [...new Set(own.map(({ requestId }) => requestId))];
  }
}

// Every request that was accepted is decided, and sold seats agree with the results. Returns the rows
// in the order of acceptedIds(). `count`: how many were accepted.
export async function assertAllDecided(sale, count) {
  const accepted = sale.acceptedIds();
  if (count !== undefined) assert.equal(accepted.length, count);
  const rows = await until('all are decided', () => {
    const found = new Map(sale.requestRows().map((row) => [row.id, row]));
    return accepted.every((id) => found.has(id) && isDecided(found.get(id))) && found;
  }, DECIDED_MS);
  assert.equal(rows.size, accepted.length, 'only what was accepted is decided');
  await assertHotIsLedger(sale);
  audit(sale.server);
  return accepted.map((id) => rows.get(id));
}

// Every answer about a request has the same shape, and its parts agree. Returns it.
export function assertRequest(json) {
  const text = JSON.stringify(json);
  assert.deepEqual(Object.keys(json), FIELDS, text);
  assert.match(json.requestId, REQUEST_ID);
  assert.match(json.status, /^(PENDING|PROCESSING|SUCCESS|FAIL(_SOLD_OUT|_ALREADY_RESERVED|_CONFLICT|_NOT_ACTIVE|_NOT_FOUND)?)$/);
  assert.match(json.createdAt, TIME);
  if (isDecided(json)) {
    assert.equal(json.position, null, text);
    assert.match(json.finishedAt, TIME);
  } else {
    assert.equal(json.status, json.position === 0 ? 'PROCESSING' : 'PENDING', text);
    assert.equal(json.finishedAt, null, text);
  }
  assert.equal(json.reservationId !== null, json.status === 'SUCCESS', text);
  assert.equal(json.reason !== null, json.status.startsWith('FAIL'), text);
  assert.equal(json.message !== null, json.reason !== null, text);
  return json;
}
