// Asynchronous requests for seats, as users of the API see them.
import assert from 'node:assert/strict';
import { TIME, bearer, query } from './queue.mjs';
import { Sale } from './reservations.mjs';
import { until } from './server.mjs';
import { Stream } from './sse.mjs';

const FIELDS = [
  'requestId', 'status', 'position', 'eventType', 'eventId', 'section', 'quantity', 'seats', 'userId',
  'reservationId', 'expiresAt', 'reason', 'message', 'createdAt', 'finishedAt',
];
export const REQUEST_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const UNDECIDED = ['PENDING', 'PROCESSING'];
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

  requestRows() {
    return query(
      this.server.dataDir,
      `SELECT q.seq, q.status, q.user_id, q.partition FROM requests q JOIN events e ON e.id = q.event_id
       WHERE e.type = '${this.type}' AND e.external_id = '${this.id}' ORDER BY q.seq`,
    );
  }
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
