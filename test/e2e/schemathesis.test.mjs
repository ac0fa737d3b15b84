// Schemathesis sends valid and invalid requests that it makes from docs/openapi.json, and compares the
// answers with it: without a key, with a key of each role, and with each users.auth. No 5xx, and nothing
// that is not documented. Each `make test` has other requests. TEST_SEED=N repeats a run;
// SCHEMATHESIS_SECONDS=N, up to 400, is the time for a long one.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before } from 'node:test';
import { jwt } from './support/jwt.mjs';
import { bearer } from './support/queue.mjs';
import { endOf, launch, removeFolder, run, start, tempFolder, test } from './support/server.mjs';

const ROOT = new URL('../..', import.meta.url).pathname;
const PYTHON = path.join(ROOT, 'build/schemathesis/bin/python');
const SCRIPT = path.join(ROOT, 'test/e2e/support/schemathesis_run.py');
const DOCUMENT = path.join(ROOT, 'docs/openapi.json');
const SECONDS = Number(process.env.SCHEMATHESIS_SECONDS ?? 0);
const SEED = Number(process.env.TEST_SEED ?? Date.now() % 1e9);
const LONGEST_MS = 420000;

const SECTIONS = ['slot', 'lock', 'adaptive', 'seat'].map((mode, i) => ({ id: 'ABCD'[i], capacity: 500, mode }));
const FREE = { title: 'Free', sections: SECTIONS, maxPerUser: 100, confirmBy: 'user', cancelConfirmed: true, reholdSeconds: 0 };
const EVENTS = {
  'CONCERT/free': FREE,
  'CONCERT/shop': { ...FREE, confirmBy: 'shop', cancelConfirmed: false, reholdSeconds: 60, maxHoldsPerStay: 3 },
  'CONCERT/auto': { ...FREE, autoEnter: true },
  'CONCERT/crowded': { ...FREE, queue: { maxActive: 1, maxWaiting: 20 } },
  'ROOM/1': { title: 'Without seats', sections: [], queue: { maxActive: 2 } },
};
const SPARE = ['SPARE/1', 'SPARE/2', 'SPARE/3'];
const pair = (name) => name.split('/');

let folder;
const keys = {}; // by role
const ASSERTION_KEY = 'the shop signs its users with this key';

before(() => {
  folder = tempFolder();
  fs.writeFileSync(path.join(folder, 'users.key'), `${ASSERTION_KEY}\n`, { mode: 0o600 });
  for (const role of ['own', 'read', 'operate', 'shop'])
    keys[role] = run(['keys', 'add', `the-${role}`, role, '--keys-file', path.join(folder, 'keys')]).stdout.trim();
});
after(() => removeFolder(folder));

// A server whose events have places, holds, sales and requests, by users ann, ben and cara.
async function startWithSales(auth) {
  const server = await start({
    args: [
      ...['--users-auth', auth, '--keys-file', path.join(folder, 'keys'), '--net-trusted-proxies', '127.0.0.1'],
      ...['--demo', '--sse-max-seconds', '1', '--queue-tick-ms', '50'],
      ...(auth === 'signed' ? ['--users-key-file', path.join(folder, 'users.key')] : []),
    ],
  });
  const known = { token: [], reservation: [], request: [], seat: [], cookie: [] };
  const ask = async (method, target, body, headers = bearer(server.adminKey)) => {
    const answer = await server.call(method, target, { body, headers });
    assert.ok(answer.status < 300, `${method} ${target}: ${answer.text}`);
    return answer.json;
  };
  for (const [name, event] of Object.entries(EVENTS)) await ask('PUT', `/admin/events/${name}`, event);
  for (const name of SPARE) await ask('PUT', `/admin/events/${name}`, FREE);
  for (const userId of ['ann', 'ben', 'cara'])
    for (const name of Object.keys(EVENTS)) {
      const place = await ask('POST', `/queue/${name}/enter`, { userId });
      const [eventType, eventId] = pair(name);
      known.token.push([place.entryToken, eventType, eventId, userId]);
      if (place.status !== 'ACTIVE' || name === 'ROOM/1') continue;
      for (const { id: section } of SECTIONS.slice(0, 2)) {
        const wish = { eventType, eventId, section, quantity: 1 };
        known.reservation.push((await ask('POST', '/reservations', wish, bearer(place.entryToken))).id);
        known.request.push((await ask('POST', '/api/v4/queue', wish, bearer(place.entryToken))).requestId);
      }
    }
  const { firstSeatId } = await ask('GET', '/events/CONCERT/free/sections/D/seats?limit=1');
  for (let i = 0; i < 60; i++) known.seat.push(firstSeatId + i);
  const events = { event: FREE, events: Object.keys(EVENTS).map(pair), spare: SPARE.map(pair), known };
  return { server, as: (name, headers) => ({ name, url: server.url, headers, ...events }) };
}

test('every answer is as docs/openapi.json says, for each role and without a key', { timeout: LONGEST_MS }, async () => {
  const [trusted, anonymous, signed] = await Promise.all(['trusted', 'anonymous', 'signed'].map(startWithSales));
  try {
    const runs = [
      ...Object.entries(keys).map(([role, key]) => trusted.as(`key with the role ${role}`, bearer(key))),
      trusted.as('no key', {}),
      anonymous.as('no key, anonymous', {}),
      signed.as('no key, signed', { 'X-User-Assertion': jwt(ASSERTION_KEY, { sub: 'ann', lane: 1 }) }),
    ];
    const plan = path.join(folder, 'plan.json');
    const config = path.join(folder, 'schemathesis.toml');
    fs.writeFileSync(plan, JSON.stringify({ config, seconds: Math.ceil(SECONDS / runs.length), seed: SEED, runs }));
    // In that folder, because schemathesis writes files.
    const done = launch(['env', '-C', folder, PYTHON, SCRIPT, DOCUMENT, plan]);
    const ended = await endOf(done, LONGEST_MS);
    assert.deepEqual(ended, { code: 0, signal: null }, `TEST_SEED=${SEED}\n${done.stdout}\n${done.stderr}`);
    if (process.env.TEST_FULL || SECONDS) console.log(done.stdout);
  } finally {
    await Promise.all([trusted, anonymous, signed].map(({ server }) => server.stop()));
  }
});
