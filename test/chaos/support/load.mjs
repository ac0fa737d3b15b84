// Users who buy over all nodes while a test breaks things, and the record of the answers they got.
// Each user enters, polls until ACTIVE, holds seats in a section of some mode with an
// Idempotency-Key, then confirms, cancels, lets the hold expire, or leaves. A request that is answered
// with 503, or not at all, is sent again, to any node, until there is an answer. So no outcome stays
// unknown, unless the load had to end first.
//
// An answer that contradicts an earlier one is recorded as a contradiction when it arrives; the rest
// is compared with the ledger at the end (check.mjs).
import assert from 'node:assert/strict';
import http from 'node:http';

import { pause, until } from '../../e2e/support/server.mjs';

const SECTIONS = { A: ['slot'], B: ['lock'], C: ['adaptive'], D: ['optimistic', 'pessimistic', 'distributed-lock'] };
// The load takes no seats in E: they are for the test.
const MODES = { A: 'slot', B: 'lock', C: 'adaptive', D: 'seat', E: 'seat' };
const CAPACITY = 200;
export const MAX_ACTIVE = 16;
const HOLD_SECONDS = 6;
// How far a time in an answer may be off: nodes answer under load.
const SLACK_MS = 250;
// Some users wait for an answer; others try the next node soon.
const PATIENT_MS = 20000;
const HASTY_MS = 2500;

const REFUSALS = ['seat_taken', 'sold_out', 'conflict', 'lock_timeout', 'lock_lost'];

const pick = (list) => list[Math.floor(Math.random() * list.length)];

// The number of the place, from the token's payload.
export function numberOf(token) {
  const raw = Buffer.from(token, 'base64url');
  return raw.readUIntBE(15, 6);
}

export class Load {
  static async start(cluster, { size = 48, name = 'CONCERT/1', activeTtlSeconds = 12 } = {}) {
    const self = new Load();
    Object.assign(self, { cluster, size, name, activeTtlSeconds, agents: new Map() });
    [self.type, self.id] = name.split('/');
    const answer = await cluster.nodes[0].admin('PUT', `/admin/events/${name}`, {
      title: 'Winter tour',
      queue: { maxActive: MAX_ACTIVE, entryBatchSize: 40, activeTtlSeconds, graceSeconds: 600 },
      holdSeconds: HOLD_SECONDS,
      reholdSeconds: 0,
      maxPerUser: 4,
      // In the last section nobody buys: users are admitted as long as the event has seats.
      sections: [...Object.entries(MODES).map(([id, mode]) => ({ id, capacity: CAPACITY, mode })), { id: 'other', capacity: 1 }],
    });
    assert.equal(answer.status, 201, answer.text);
    await until('all nodes know the event', async () => {
      const looks = await Promise.all(cluster.nodes.map((node) => node.call('GET', `/events/${name}`)));
      return looks.every(({ status }) => status === 200);
    });
    return self;
  }

  constructor() {
    this.people = [];
    this.holds = []; // that were acknowledged
    this.contradictions = [];
    this.done = {}; // "verb outcome" → how often
    this.since = {}; // the same, of requests that were sent since mark()
    this.ending = false;
    this.mostActive = 0;
    this.guests = 0; // all guests so far
    this.guestsIn = []; // when each of them surely had a place
  }

  // ---- asking ----

  agentOf(node) {
    if (!this.agents.has(node)) this.agents.set(node, new http.Agent({ keepAlive: true, maxSockets: 256 }));
    return this.agents.get(node);
  }

  // `since`: the book in which the request belongs, that of the time when it was sent.
  note(verb, answer, since) {
    const outcome = answer === undefined ? 'lost' : answer.json?.code ?? answer.status;
    const marks = answer?.json?.degraded ? ' degraded' : '';
    for (const book of [this.done, since]) {
      const line = `${verb} ${outcome}${marks}`;
      book[line] = (book[line] ?? 0) + 1;
    }
  }

  mark() {
    this.since = {};
  }

  count(pattern) {
    return Object.entries(this.since).reduce((sum, [line, n]) => sum + (pattern.test(line) ? n : 0), 0);
  }

  contradiction(what, detail) {
    if (this.contradictions.length < 50) this.contradictions.push(`${what}: ${typeof detail === 'string' ? detail : JSON.stringify(detail)}`);
  }

  // One request to some node, or to the one that is named; undefined when there was no answer.
  async ask(verb, method, target, options = {}, node = pick(this.cluster.nodes)) {
    const timeoutMs = Math.random() < 0.4 ? PATIENT_MS : HASTY_MS;
    const { since } = this;
    let answer;
    try {
      answer = await node.call(method, target, { timeoutMs, agent: this.agentOf(node), ...options });
    } catch {
      answer = undefined;
    }
    this.note(verb, answer, since);
    if (answer?.status >= 500 && answer.status !== 503) this.contradiction(`${verb} ${answer.status}`, answer.text);
    if (answer?.status === 503 && answer.headers['retry-after'] === undefined) this.contradiction(`${verb} 503`, 'no Retry-After');
    return answer;
  }

  // Repeats until there is an answer other than 503.
  async insist(verb, ...how) {
    for (;;) {
      const answer = await this.ask(verb, ...how);
      if (answer !== undefined && answer.status !== 503) return answer;
      if (this.isOver()) return undefined;
      await pause(50 + Math.random() * 150);
    }
  }

  isOver() {
    return this.ending && performance.now() > this.overAt;
  }

  // ---- one user ----

  newPerson() {
    const person = { userId: `user${this.people.length + 1}`, holds: [], sent: performance.now() };
    this.people.push(person);
    return person;
  }

  // A user for the test's own requests, in a lane before all others and so ACTIVE soon.
  async guest() {
    const person = this.newPerson();
    person.lane = 0;
    this.guests++;
    assert.ok(await this.enter(person), 'the guest has a place');
    this.guestsIn.push(performance.now());
    assert.ok(await this.wait(person), 'the guest is ACTIVE');
    return person;
  }

  async act() {
    const person = this.newPerson();
    if (!(await this.enter(person)) || !(await this.wait(person))) return;
    const holds = 1 + Math.floor(Math.random() * 2);
    for (let i = 0; i < holds && !this.ending; i++) {
      const hold = await this.hold(person, `${person.userId}-${i}`);
      if (hold !== undefined) await this.decide(person, hold);
      if (person.leaves || person.over) return;
    }
    if (!this.ending && Math.random() < 0.9) await this.leave(person);
  }

  async enter(person, node) {
    const how = person.lane === undefined ? {} : { headers: { authorization: `Bearer ${this.cluster.adminKey}` } };
    const body = { userId: person.userId, lane: person.lane };
    const answer = await this.insist('enter', 'POST', `/queue/${this.name}/enter`, { body, ...how }, node);
    if (answer === undefined) return false;
    if (answer.status !== 200 && answer.status !== 202) return this.contradiction('enter', answer.text), false;
    person.token = answer.json.entryToken;
    person.headers = { authorization: `Bearer ${person.token}` };
    person.seq = numberOf(person.token);
    person.answered = performance.now();
    this.recordPlace(person, answer.json, person.sent);
    return true;
  }

  // An answer about a place must agree with the earlier ones.
  recordPlace(person, place, sent) {
    const { status, position } = place;
    const text = { user: person.userId, seq: person.seq, was: person.status, is: place };
    // On a stalled machine a user may be admitted and expire between two answers.
    const isLongAgo = performance.now() - person.asked > this.activeTtlSeconds * 1000 - SLACK_MS;
    const mayHaveEnded = person.leaves || person.confirms || isLongAgo || (person.expiresMs ?? Infinity) <= Date.now() + SLACK_MS;
    if (place.userId !== person.userId) this.contradiction('another user', text);
    if (status === 'WAITING' && person.status === 'ACTIVE' && sent > person.recordedAt && !person.degraded) this.contradiction('back to WAITING', text);
    if (status !== 'WAITING' && status !== 'ACTIVE' && !mayHaveEnded) this.contradiction('a place has gone', text);
    // From the ledger it is a second old.
    if (status === 'WAITING' && !place.degraded) {
      const overtakers = this.guests - this.guestsIn.filter((at) => at < person.asked).length;
      if (sent > person.recordedAt && position > person.position + overtakers) this.contradiction('moved back', { ...text, from: person.position });
      person.position = position;
      person.asked = sent;
    }
    if (status === 'ACTIVE') person.expiresMs = Date.parse(place.activeExpiresAt);
    person.status = status;
    person.degraded = place.degraded;
    person.recordedAt = performance.now();
  }

  async wait(person) {
    // The ledger may know of an admission before Redis: it counts when that does.
    while ((person.status === 'WAITING' || person.degraded) && !this.ending) {
      await pause(300 + Math.random() * 400);
      const sent = performance.now();
      const answer = await this.ask('status', 'GET', `/queue/${this.name}/status`, { headers: person.headers });
      if (answer === undefined || answer.status === 503) continue;
      if (answer.status !== 200) this.contradiction('status', answer.text);
      else this.recordPlace(person, answer.json, sent);
    }
    return person.status === 'ACTIVE' && !person.degraded && !this.ending;
  }

  // `wanted`: section, strategy, and seats or quantity. Without a key, a request without an answer is
  // repeated as a new one.
  async hold(person, key, wanted = this.randomSeats(), node = undefined) {
    const body = { eventType: this.type, eventId: this.id, ...wanted };
    const answer = await this.insist(`hold ${body.strategy}`, 'POST', '/reservations', {
      headers: key === undefined ? person.headers : { ...person.headers, 'idempotency-key': key },
      body,
    }, node);
    if (answer === undefined) return undefined;
    if (answer.status !== 201) return this.refused(person, answer), undefined;
    const held = { ...answer.json, person, key, body, expiresMs: Date.parse(answer.json.expiresAt) };
    if (held.seats.length !== (wanted.quantity ?? wanted.seats.length)) this.contradiction('not as many seats', answer.text);
    if (wanted.seats && `${wanted.seats}` !== `${held.seats}`) this.contradiction('other seats', answer.text);
    person.holds.push(held);
    this.holds.push(held);
    return held;
  }

  randomSeats() {
    const section = pick(Object.keys(SECTIONS));
    const n = 1 + Math.floor(Math.random() * 2);
    const first = 1 + Math.floor(Math.random() * (CAPACITY - n));
    const seats = Array.from({ length: n }, (_, i) => first + i);
    const which = Math.random() < 0.5 ? { quantity: n } : { seats };
    return { section, strategy: pick(SECTIONS[section]), ...which };
  }

  refused(person, answer) {
    const isOver = person.expiresMs <= Date.now() + SLACK_MS || person.confirms;
    const isTruth = answer.json?.code === 'not_active' ? isOver : REFUSALS.includes(answer.json?.code);
    if (answer.json?.code === 'not_active' && isOver) person.over = true;
    // A hold that was written too late is answered with 410.
    if (!isTruth && answer.status !== 410) this.contradiction('hold refused', { user: person.userId, seq: person.seq, expiresMs: person.expiresMs, now: Date.now(), text: answer.text });
  }

  async decide(person, hold) {
    const dice = Math.random();
    if (dice < 0.45) await this.finish(person, hold, 'confirm', 'CONFIRMED');
    else if (dice < 0.75) await this.finish(person, hold, 'cancel', 'CANCELLED');
    else if (dice < 0.85) await this.leave(person);
    else if (dice < 0.95) await this.repeat(person, hold);
  }

  async finish(person, hold, verb, status, node = undefined) {
    hold.asked = verb;
    if (verb === 'confirm') person.confirms = true;
    const answer = await this.insist(verb, 'POST', `/reservations/${hold.id}/${verb}`, { headers: person.headers }, node);
    if (answer === undefined) return;
    if (answer.status === 200) {
      if (answer.json.status !== status || `${answer.json.seats}` !== `${hold.seats}`) this.contradiction(verb, answer.text);
      hold.result = status;
    } else if (answer.status === 410) {
      if (hold.expiresMs > Date.now() + SLACK_MS) this.contradiction(`${verb} too early`, answer.text);
      hold.result = 'EXPIRED';
    } else this.contradiction(verb, answer.text);
  }

  // The same key once more has the same reservation.
  async repeat(person, hold) {
    const answer = await this.insist('repeat', 'POST', '/reservations', {
      headers: { ...person.headers, 'idempotency-key': hold.key },
      body: hold.body,
    });
    if (answer !== undefined && (answer.status !== 201 || answer.json.id !== hold.id)) this.contradiction('another answer for the same key', { hold, text: answer.text });
  }

  async leave(person) {
    person.leaves = true;
    const answer = await this.insist('leave', 'DELETE', `/queue/${this.name}/leave`, { headers: person.headers });
    if (answer === undefined) return;
    if (answer.status === 204) person.left = true;
    else this.contradiction('leave', answer.text);
  }

  // ---- all users ----

  async spawn() {
    while (!this.ending) await this.act();
  }

  // Begins, and goes on until `end`.
  begin() {
    this.running = Promise.all(Array.from({ length: this.size }, () => this.spawn()));
    this.running.catch(() => {}); // end() throws it
    this.sampling = this.sample();
  }

  // How many are ACTIVE at once, by the ledger, over all nodes.
  async sample() {
    const now = '(extract(epoch FROM clock_timestamp()) * 1000)';
    while (!this.ending) {
      try {
        const [{ n }] = await this.cluster.ask(`SELECT count(*) AS n FROM queue_entries WHERE status = 'ACTIVE' AND active_expires_at > ${now}`);
        this.mostActive = Math.max(this.mostActive, n);
      } catch {
        // It is down: until it is back no user becomes ACTIVE.
      }
      await pause(500);
    }
  }

  // Waits until each of these has succeeded `count` more times since mark().
  async succeeds(n, timeoutMs = 90000, verbs = ['enter 20', 'status 200$', 'hold .* 201', 'confirm 200', 'cancel 200']) {
    for (const verb of verbs)
      await until(`${n} × ${verb}`, () => this.count(new RegExp(`^${verb}`)) >= n, timeoutMs).catch((error) => assert.fail(`${error.message} in ${JSON.stringify(this.since)}`));
  }

  async end(graceMs = 60000) {
    this.ending = true;
    this.overAt = performance.now() + graceMs;
    await this.running;
    await this.sampling;
    for (const agent of this.agents.values()) agent.destroy();
    this.agents.clear();
  }

  // Also when the test has failed.
  abandon() {
    this.ending = true;
    this.overAt = 0;
    for (const agent of this.agents.values()) agent.destroy();
  }

  summary() {
    const acknowledged = this.people.filter(({ seq }) => seq !== undefined).length;
    return { people: this.people.length, acknowledged, holds: this.holds.length, mostActive: this.mostActive, stale: this.stale, ...this.done };
  }
}
