// The gate in front of other pages: only a user who is ACTIVE in this event passes (docs/pitfalls.md,
// 5, 10 and 18).
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { startNginx } from './support/nginx.mjs';
import { WaitingRoom, bearer } from './support/queue.mjs';
import { assertProblem, call, start, test, until } from './support/server.mjs';

let server;
let rooms = 0;
before(async () => (server = await start({ args: ['--queue-tick-ms', '10'] })));
after(() => server.stop());

const busy = async (queue = {}) => {
  const room = await WaitingRoom.open(server, `GATE/${++rooms}`, { maxActive: 1, entryBatchSize: 100, ...queue });
  room.first = await room.enter('first');
  return room;
};

function assertRefused(room, answer, status, code) {
  assertProblem(answer, status, code);
  assert.equal(answer.headers.location, `/e/${room.name}`, 'where the waiting room is');
  assert.equal(answer.headers['cache-control'], 'no-store', 'no cache may answer for it');
}

describe('the gate', () => {
  test('a token that was just made ACTIVE passes at its first use, at once or after a wait (pitfall 5)', async () => {
    const room = await busy();
    const waits = await room.enter('waits');
    const passed = await room.gate(room.first.entryToken);
    assert.equal(passed.status, 204);
    assert.equal(passed.text, '');
    assert.equal(passed.headers['cache-control'], 'no-store');
    assert.equal(passed.headers.location, undefined);
    await room.leave(room.first.entryToken);
    // Never asked about before: this is the token's first use after its admission.
    await until('it has been admitted', async () => (await room.numbers()).active === 1 && (await room.numbers()).waiting === 0);
    assert.equal((await room.gate(waits.entryToken)).status, 204);
    assert.equal((await server.call('HEAD', `/gate/${room.name}`, { headers: bearer(waits.entryToken) })).status, 204);
  });

  test('no token, no passage (pitfall 10)', async () => {
    const room = await busy();
    assertRefused(room, await room.gate(undefined), 401, 'token_required');
    assertRefused(room, await room.gate('x'), 401, 'token_invalid');
    assertRefused(room, await room.gate(undefined, { authorization: '' }), 401, 'token_required');
    assertRefused(room, await room.gate(undefined, { authorization: 'Bearer ' }), 401, 'token_required');
    assertRefused(room, await room.gate(undefined, { 'x-queue-token': '' }), 401, 'token_invalid');
    assertRefused(room, await server.call('GET', `/gate/${room.name}?userId=first`), 401, 'token_required');
    assertRefused(room, await room.gate(server.adminKey), 401, 'token_invalid', 'the admin key is no place');
    assertProblem(await server.call('GET', '/gate/GATE/none', { headers: bearer(room.first.entryToken) }), 404, 'event_not_found');
  });

  test('it is bound to the user and to the event (pitfall 10)', async () => {
    const [room, other] = [await busy(), await busy()];
    const { entryToken } = room.first;
    assertRefused(other, await other.gate(entryToken), 403, 'token_foreign_event');
    assertRefused(room, await server.call('GET', `/gate/${room.name}?userId=other`, { headers: bearer(entryToken) }), 403, 'user_mismatch');
    assert.equal((await server.call('GET', `/gate/${room.name}?userId=first`, { headers: bearer(entryToken) })).status, 204);
  });

  test('a user who waits, has left or has expired does not pass (pitfall 18)', async () => {
    const room = await busy({ activeTtlSeconds: 3 });
    const [waits, left] = await room.enterAll(['waits', 'left']);
    assertRefused(room, await room.gate(waits.entryToken), 403, 'not_active');
    await room.leave(left.entryToken);
    assertRefused(room, await room.gate(left.entryToken), 403, 'not_active');
    const refused = await until('the stay is over', async () => {
      const answer = await room.gate(room.first.entryToken);
      return answer.status !== 204 && answer;
    });
    assertRefused(room, refused, 403, 'not_active');
    assert.ok(Date.now() >= Date.parse(room.first.activeExpiresAt), 'not before its time');
  });

  test('the state of the event does not shut out active users', async () => {
    const room = await busy();
    for (const verb of ['pause', 'drain', 'deactivate']) {
      await room.did(verb);
      assert.equal((await room.gate(room.first.entryToken)).status, 204, verb);
    }
  });

  test('passing the gate counts as a sign of presence', async () => {
    const room = await busy({ graceSeconds: 2 });
    const [knocks, silent] = await room.enterAll(['knocks', 'silent']);
    await until('the silent one has gone', async () => {
      assert.equal((await room.gate(knocks.entryToken)).status, 403);
      return (await room.numbers()).expired === 1;
    });
    assert.equal((await room.status(silent.entryToken)).status, 'EXPIRED');
    assert.equal((await room.status(knocks.entryToken)).position, 1);
  });
});

describe('behind nginx with auth_request', () => {
  let nginx;
  let room;
  before(async () => {
    const shop = await start({ args: ['--users-auth', 'anonymous', '--queue-tick-ms', '10'] });
    room = await WaitingRoom.open(shop, 'CONCERT/1', { maxActive: 1 });
    nginx = await startNginx(
      `location /shop/ {
         auth_request /_gate;
         auth_request_set $room $upstream_http_location;
         error_page 401 403 = @room;
       }
       location @room { return 302 $room; }
       location = /_gate {
         internal;
         proxy_pass http://127.0.0.1:${shop.port}/gate/CONCERT/1;
         proxy_pass_request_body off;
         proxy_set_header Content-Length "";
       }
       location /queue/ { proxy_pass http://127.0.0.1:${shop.port}; proxy_buffering off; }`,
      { 'shop/buy.html': 'the ticket' },
    );
  });
  after(async () => {
    await nginx?.stop();
    await room?.server.stop();
  });
  const buy = (headers = {}) => call(nginx, 'GET', '/shop/buy.html', { headers });
  const sentAway = (answer) => {
    assert.equal(answer.status, 302, answer.text);
    assert.match(answer.headers.location, /\/e\/CONCERT\/1$/);
  };

  test('a browser is sent to the waiting room, waits, and comes back in with its cookies', async () => {
    const cookie = (answer) => answer.headers['set-cookie'].map((line) => line.split(';')[0]).join('; ');
    sentAway(await buy());
    sentAway(await buy(bearer('x')));
    const first = await call(nginx, 'POST', '/queue/CONCERT/1/enter');
    assert.equal(first.json.status, 'ACTIVE');
    const second = await call(nginx, 'POST', '/queue/CONCERT/1/enter');
    assert.equal(second.json.status, 'WAITING');
    const bought = await buy({ cookie: cookie(first) });
    assert.equal(bought.status, 200);
    assert.equal(bought.text, 'the ticket');
    assert.equal((await buy({ ...bearer(first.json.entryToken) })).status, 200);
    // The shop's own Authorization does not get in the way.
    assert.equal((await buy({ cookie: cookie(first), authorization: 'Basic bWU6bWU=' })).status, 200);
    sentAway(await buy({ cookie: cookie(second) }));
    assert.equal((await call(nginx, 'DELETE', '/queue/CONCERT/1/leave', { headers: { cookie: cookie(first) } })).status, 204);
    sentAway(await buy({ cookie: cookie(first) }));
    await until('the next one is in', async () => (await buy({ cookie: cookie(second) })).status === 200);
  });

  test('a live stream goes through it', async () => {
    const place = (await call(nginx, 'POST', '/queue/CONCERT/1/enter')).json;
    const { status, text, headers } = await (async () => {
      const stream = call(nginx, 'GET', `/queue/CONCERT/1/subscribe/${place.entryToken}`);
      await until('it is open', async () => (await room.server.metric('admitone_sse_opened_total')) > 0);
      await room.patch({ maxActive: 10 });
      return stream;
    })();
    assert.equal(status, 200);
    assert.equal(headers['content-type'], 'text/event-stream');
    assert.match(text, /"status":"WAITING"[^]*"status":"ACTIVE"/);
  });
});
