// The waiting room as users of the API see it, and its rows in the ledger.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import http from 'node:http';
import path from 'node:path';
import { ask, forgetHot } from './cluster.mjs';
import { assertProblem, concert, isCluster, storeFlags, run, until } from './server.mjs';

export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

export const bearer = (token) => ({ authorization: `Bearer ${token}` });

// One event's waiting room. `queue`: its rules; `more`: further fields of the event. Ticks and
// intervals are the server's: only maxActive keeps people waiting for as long as a test wants.
export class WaitingRoom {
  static async open(server, name, queue = {}, more = {}) {
    const room = new this(server, name);
    const { status, text } = await server.admin('PUT', `/admin/events/${name}`, concert({ queue, ...more }));
    assert.equal(status, 201, text);
    return room;
  }

  constructor(server, name) {
    this.server = server;
    this.name = name;
    [this.type, this.id] = name.split('/');
  }

  // The bare answer. `options`: lane, headers, agent.
  ask(userId, { lane, ...options } = {}) {
    return this.server.call('POST', `/queue/${this.name}/enter`, { ...options, body: { userId, lane } });
  }

  askAsAdmin(userId, { lane, headers, ...options } = {}) {
    return this.ask(userId, { lane, ...options, headers: { ...headers, ...bearer(this.server.adminKey) } });
  }

  // Takes a place, and it must be had. Returns the answer's JSON.
  async enter(userId, options) {
    const answer = await this.ask(userId, options);
    return this.place(answer, answer.json?.status === 'ACTIVE' ? 200 : 202);
  }

  async enterAll(users, options) {
    const places = [];
    for (const user of users) places.push(await this.enter(user, options));
    return places;
  }

  async status(token, options = {}) {
    const answer = await this.server.call('GET', `/queue/${this.name}/status`, { ...options, headers: { ...bearer(token), ...options.headers } });
    return this.place(answer, 200);
  }

  leave(token, headers = {}) {
    return this.server.call('DELETE', `/queue/${this.name}/leave`, { headers: { ...bearer(token), ...headers } });
  }

  gate(token, headers = {}) {
    return this.server.call('GET', `/gate/${this.name}`, { headers: { ...(token === undefined ? {} : bearer(token)), ...headers } });
  }

  async becomes(token, status, timeoutMs) {
    return until(`${this.name}: ${status}`, async () => {
      const place = await this.status(token);
      return place.status === status && place;
    }, timeoutMs);
  }

  act(verb, body) {
    return this.server.admin('POST', `/admin/queue/${this.name}/${verb}`, body);
  }

  async did(verb, body) {
    const answer = await this.act(verb, body);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
  }

  async patch(rules) {
    const answer = await this.server.admin('PATCH', `/admin/queue/${this.name}`, rules);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
  }

  async numbers(options) {
    const answer = await this.server.admin('GET', `/admin/queue/${this.name}/status`, undefined, options);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
  }

  // Every answer about a place has the same shape, and its parts agree. Returns its JSON.
  place(answer, status) {
    assert.equal(answer.status, status, answer.text);
    assert.equal(answer.headers['cache-control'], 'no-store', 'a place is nobody else\'s to see');
    assertPlace(answer.json);
    assert.equal(`${answer.json.eventType}/${answer.json.eventId}`, this.name);
    return answer.json;
  }
}

const FIELDS = [
  'activeExpiresAt', 'admitting', 'ahead', 'entryToken', 'estimatedWaitSeconds', 'eventId', 'eventState', 'eventType', 'heldSeats',
  'notice', 'position', 'remainingSeats', 'reserving', 'seatsAhead', 'serverTime', 'soldOut', 'status', 'totalWaiting', 'userId',
];

export function assertPlace(json) {
  const { admissionPass, token, expiresIn, degraded, ...rest } = json;
  const text = JSON.stringify(json);
  assert.deepEqual(Object.keys(rest).sort(), FIELDS, text);
  assert.match(json.serverTime, TIME);
  if (json.notice !== null) assert.ok(typeof json.notice === 'string' && json.notice !== '', text);
  if (degraded === undefined) {
    assert.equal(typeof json.reserving, 'boolean', text);
    if (json.status !== 'ACTIVE') assert.equal(json.reserving, false, text);
    assertStock(json, text);
  } else {
    const unknown = ['reserving', 'seatsAhead', 'remainingSeats', 'heldSeats', 'soldOut'].map((field) => json[field]);
    assert.deepEqual([degraded, ...unknown], [true, null, null, null, null, null], text);
  }
  const mayAdmit = /^(OPEN|DRAINING)$/.test(json.eventState) && json.remainingSeats !== 0;
  const admits = json.admitting !== false;
  if (mayAdmit && degraded) assert.equal(json.admitting, null, text);
  else assert.equal(typeof json.admitting, 'boolean', text);
  // All available seats may be offered to others.
  assert.ok(admits === mayAdmit || (mayAdmit && json.remainingSeats > 0), text);
  if (json.status === 'WAITING') {
    assert.ok(json.position >= 1 && json.position <= json.totalWaiting, text);
    assert.equal(json.ahead, json.position - 1);
    assert.ok(admits ? json.estimatedWaitSeconds >= 1 : json.estimatedWaitSeconds === null, text);
  } else if (json.status === 'ACTIVE') {
    assert.equal(json.position, 0);
    assert.equal(json.ahead, 0);
    assert.equal(json.estimatedWaitSeconds, 0);
    assert.match(json.activeExpiresAt, TIME);
    // On a busy machine a short stay may be over before its answer is written.
    assert.ok(Date.parse(json.activeExpiresAt) > Date.parse(json.serverTime) - 10000, text);
  } else {
    assert.match(json.status, /^(COMPLETED|LEFT|EXPIRED|NONE)$/);
    for (const field of ['position', 'ahead', 'estimatedWaitSeconds']) assert.equal(json[field], null, text);
  }
  if (json.status !== 'ACTIVE') assert.equal(json.activeExpiresAt, null);
  assert.equal(typeof admissionPass, json.status === 'ACTIVE' ? 'string' : 'undefined', text);
}

// What an answer says about the seats that are left. An event without sections has none.
function assertStock({ status, remainingSeats, heldSeats, soldOut, seatsAhead, ahead }, text) {
  if (remainingSeats === null) {
    assert.deepEqual([heldSeats, soldOut, seatsAhead], [null, false, null], text);
    return;
  }
  assert.ok(Number.isInteger(remainingSeats) && Number.isInteger(heldSeats), text);
  assert.equal(soldOut, remainingSeats === 0 && heldSeats === 0, text);
  if (seatsAhead !== null) assert.ok(/^(WAITING|ACTIVE)$/.test(status) && (ahead > 0 ? seatsAhead >= 0 : seatsAhead === 0), text);
}

// A problem with additional members. Returns the document.
export function assertProblemWith(answer, status, code, members) {
  const json = { ...answer.json };
  for (const [name, value] of Object.entries(members)) {
    assert.deepEqual(json[name], value, `${name}: ${answer.text}`);
    delete json[name];
  }
  return assertProblem({ ...answer, json }, status, code);
}

// The server's ledger, asked with SQL: rows as objects. While the server runs, or after.
export function query(dataDir, sql) {
  if (isCluster) return ask(dataDir, sql);
  const done = spawnSync('sqlite3', ['-json', '-cmd', '.timeout 10000', path.join(dataDir, 'admitone.db'), sql], {
    encoding: 'utf8',
    timeout: 60000,
    killSignal: 'SIGKILL',
    maxBuffer: 256 << 20,
  });
  assert.ifError(done.error);
  assert.equal(done.status, 0, done.stderr);
  return done.stdout.trim() === '' ? [] : JSON.parse(done.stdout);
}

// Changes the ledger while no server runs on it. Empties a hot store that is still there, so that the
// servers do not use its data.
export function rewrite(dataDir, sql) {
  query(dataDir, sql);
  if (isCluster) forgetHot(dataDir);
}

// `count` connections that stay open. Use with `release`.
export function keepAlive(sockets) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: sockets, scheduling: 'fifo' });
  return Object.assign(agent, { release: () => agent.destroy() });
}

// Calls a function for each item, `width` at a time. Returns the results in order.
export async function eachOf(items, width, act) {
  const results = new Array(items.length);
  let next = 0;
  await Promise.all(
    Array.from({ length: Math.min(width, items.length) }, async () => {
      while (next < items.length) {
        const i = next++;
        results[i] = await act(items[i], i);
      }
    }),
  );
  return results;
}

export const users = (count, prefix = 'user') => Array.from({ length: count }, (_, i) => `${prefix}${i + 1}`);

// The rows of a room's entries, in order of their numbers, without those that were undone before they
// were answered.
export function entriesOf(room, dataDir = room.server.dataDir) {
  return query(
    dataDir,
    `SELECT q.* FROM queue_entries q JOIN events e ON e.id = q.event_id
     WHERE e.type = '${room.type}' AND e.external_id = '${room.id}' AND e.deleted_at IS NULL AND q.status <> 'VOID' ORDER BY q.seq`,
  );
}

// The ledger agrees with itself, and boards that nodes share with the ledger. While the server runs,
// or after.
export function assertAudit(dataDir, { args = [], ...options } = {}) {
  const audit = run(['audit', ...storeFlags(dataDir), ...args], options);
  assert.equal(audit.status, 0, audit.stdout + audit.stderr);
  assert.match(audit.stdout, /\d+ checks, 0 violations/);
}
