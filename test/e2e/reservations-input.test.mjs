// Invalid requests for seats: each is refused with its code, and changes nothing.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { assertProblemWith, bearer } from './support/queue.mjs';
import { Sale, assertHotIsLedger, audit } from './support/reservations.mjs';
import { assertProblem, start, test } from './support/server.mjs';

const PATHS = ['/reservations', '/api/v1/optimistic', '/api/v2/pessimistic', '/api/v3/distributed-lock'];

let server;
let sale;
let ann;
let held;
before(async () => {
  server = await start();
  const sections = [{ id: 'A', capacity: 100 }, { id: 'S', capacity: 100, mode: 'seat' }];
  sale = await Sale.open(server, 'CONCERT/1', {}, { sections, maxPerUser: 1000 });
  ann = await sale.buyer('ann');
  held = await sale.held(ann, { section: 'S', seats: [3] });
});
after(async () => {
  audit(server);
  await server.stop();
});

const post = (target, body, headers = {}) => server.call('POST', target, { body, headers: { ...bearer(ann.token), ...headers } });
const good = { eventType: 'CONCERT', eventId: '1', section: 'S', quantity: 1 };
const without = (...names) => Object.fromEntries(Object.entries(good).filter(([name]) => !names.includes(name)));

// Everything that a request could have changed.
const everything = async () =>
  JSON.stringify([await sale.sections(), (await sale.map('A')).seats, (await sale.map('S')).seats, sale.rows(), await sale.list(ann), (await sale.numbers()).active]);

async function changesNothing(act) {
  const before = await everything();
  await act();
  assert.equal(await everything(), before);
  await assertHotIsLedger(sale);
}

// `mentions`: what the detail must name, so that a client finds the mistake.
async function refusesAll(cases, status, code, targets = PATHS) {
  await changesNothing(async () => {
    for (const target of targets)
      for (const [what, body, mentions] of cases) {
        const answer = await post(target, body);
        assert.equal(answer.status, status, `${target}, ${what}: ${answer.status} ${answer.text}`);
        const { detail } = assertProblem(answer, status, code);
        if (mentions) assert.match(detail, mentions, what);
      }
  });
}

describe('a body', () => {
  test('that lacks something, or says something out of range, is 422', () =>
    refusesAll(
      [
        ['no event', without('eventType', 'eventId'), /eventType and eventId/],
        ['no event type', without('eventType'), /eventType and eventId/],
        ['no event id', without('eventId'), /eventType and eventId/],
        ['no section', without('section'), /section/],
        ['neither quantity nor seats', without('quantity'), /quantity or seats is required/],
        ['both', { ...good, seats: [1] }, /one of quantity, seats and seatId/],
        ['quantity and seatId', { ...good, seatId: 1 }, /one of quantity, seats and seatId/],
        ['seats and seatId', { ...without('quantity'), seats: [1], seatId: 1 }, /one of quantity, seats and seatId/],
        ['seatId with half an event', { eventType: 'CONCERT', seatId: 1 }, /eventType and eventId/],
        ['seatId with a section only', { section: 'S', seatId: 1 }, /eventType and eventId/],
        ...[0, -1, -0, 1001, 10000, 1.5, 1e100, '2', '', null, true, [2], { n: 2 }].map((quantity) => [
          `quantity ${JSON.stringify(quantity)}`,
          { ...good, quantity },
          /^quantity must be a whole number from 1 to 1000/,
        ]),
        ...[[], null, '1', 1, true, {}, { 0: 1 }].map((seats) => [
          `seats ${JSON.stringify(seats)}`,
          { ...without('quantity'), seats },
          /^seats must be an array of 1 to 1000 numbers/,
        ]),
        ['1,001 seats', { ...without('quantity'), seats: Array.from({ length: 1001 }, (_, i) => i + 1) }, /^seats must be an array of 1 to 1000 numbers/],
        ...[0, -1, 1.5, 1000001, 4294967297, '1', null, true, [1], {}].map((seat) => [
          `seat ${JSON.stringify(seat)}`,
          { ...without('quantity'), seats: [1, seat] },
          /^seats\[1\] must be a whole number from 1 to 1000000/,
        ]),
        ['a seat twice', { ...without('quantity'), seats: [5, 7, 5] }, /5 is listed twice/],
        ['a seat a thousand times', { ...without('quantity'), seats: new Array(1000).fill(9) }, /9 is listed twice/],
        ...[0, -1, 1.5, '1', null, [], {}].map((seatId) => [`seatId ${JSON.stringify(seatId)}`, { seatId }, /^seatId must be a whole number/]),
      ],
      422,
      'invalid_field',
    ));

  test('that is empty gets an error that names the missing fields, and not a range', () =>
    changesNothing(async () => {
      for (const target of PATHS) {
        const { title, detail } = assertProblem(await post(target, {}), 422, 'invalid_field');
        assert.equal(title, 'A field is missing or not valid');
        assert.match(detail, target === '/reservations' ? /^quantity or seats is required\.$/ : /^seatId is required: /, target);
      }
    }));

  test('with a field of the wrong type is 422', () => {
    const cases = [];
    for (const field of ['eventType', 'eventId', 'section'])
      for (const value of [1, null, true, [], {}, '', 'a b', 'a/b', 'é', '\u007f', 'x'.repeat(65), '../A'])
        cases.push([`${field} ${JSON.stringify(value)}`, { ...good, [field]: value }, new RegExp(`^${field} must be 1 to \\d+ letters`)]);
    for (const userId of ['', 'x'.repeat(65), 'a\nb', 'a\u007f', null, true, 1.5, [], {}, ['ann']])
      cases.push([`userId ${JSON.stringify(userId)}`, { ...good, userId }, /^userId must be a string of 1 to 64 bytes/]);
    for (const strategy of ['', 'Slot', 'none', 'fastest', 1, null, true, [], ['slot'], {}])
      cases.push([`strategy ${JSON.stringify(strategy)}`, { ...good, strategy }, /^strategy must be one of "slot", "lock", "adaptive", "optimistic", "pessimistic", "distributed-lock", "queue"\.$/]);
    return refusesAll(cases, 422, 'invalid_field');
  });

  test('with an unknown field is 422, and the field is named', () =>
    refusesAll(
      [
        ['Quantity', { ...good, Quantity: 1 }, /^Quantity is not a field here/],
        ['seat', { ...good, seat: 1 }, /^seat is not/],
        ['price', { ...good, price: 0 }, /^price is not/],
        ['status', { ...good, status: 'CONFIRMED' }, /^status is not/],
        ['holdSeconds', { ...good, holdSeconds: 86400 }, /^holdSeconds is not/],
        ['lane', { ...good, lane: 0 }, /^lane is not/],
        ['__proto__', `{"__proto__": 1, ${JSON.stringify(good).slice(1)}`, /^__proto__ is not/],
        ['an empty name', { ...good, '': 1 }, / is not a field here/],
        ['a long name', { ...good, ['x'.repeat(5000)]: 1 }, /^x+ is not a field here/],
      ],
      422,
      'unknown_field',
    ));

  test('that is no JSON object is 400', () => {
    const text = JSON.stringify(good);
    const bytes = (name, ...more) => Buffer.concat([Buffer.from(text.slice(0, -1)), Buffer.from(`,"${name}":"`), Buffer.from(more), Buffer.from('"}')]);
    return refusesAll(
      [
        ['nothing', ''],
        ['white space', ' \n '],
        ['half of it', text.slice(0, -1)],
        ['two of them', text + text],
        ['something after it', `${text}x`],
        ['a comma too many', text.replace('}', ',}')],
        ['single quotes', text.replaceAll('"', '\'')],
        ['a field twice', `{"quantity": 1, ${text.slice(1)}`],
        ['an array', JSON.stringify([good]), /must be a JSON object/],
        ['a number', '1'],
        ['a string', '"quantity"'],
        ['null', 'null'],
        ['NaN', text.replace('1}', 'NaN}')],
        ['a hexadecimal number', text.replace('1}', '0x1}')],
        ['a leading zero', text.replace('1}', '01}')],
        ['a number beyond 64 bits', text.replace(':1}', ':9223372036854775808}'), /big|integer/],
        ['a number of a thousand digits', text.replace(':1}', `:${'9'.repeat(1000)}}`), /big|integer/],
        ['a number beyond all', text.replace(':1}', ':1e999}'), /real|overflow/],
        ['invalid UTF-8', bytes('userId', 0xff, 0xfe)],
        ['half a UTF-8 character', bytes('userId', 0xc3)],
        ['an overlong one', bytes('userId', 0xc0, 0x80)],
        ['a surrogate', bytes('userId', 0xed, 0xa0, 0x80)],
        ['half a surrogate pair', text.replace('}', ',"userId":"\\ud800"}')],
        ['a NUL', bytes('userId', 0x61, 0x00, 0x62)],
        ['an escaped NUL', text.replace('}', ',"userId":"a\\u0000b"}'), /\\u0000 is not allowed/],
        ['a control character', bytes('userId', 0x0a)],
        ['thirty thousand brackets', '['.repeat(30000)],
        ['deeply nested', `${text.slice(0, -1)},"seats":${'['.repeat(5000)}${']'.repeat(5000)}}`],
        ['deeply nested objects', '{"a":'.repeat(5000) + '1' + '}'.repeat(5000)],
      ],
      400,
      'bad_json',
    );
  });

  test('of another type is 415, and one that is too large is 413', () =>
    changesNothing(async () => {
      for (const target of PATHS) {
        for (const type of ['', 'text/plain', 'application/x-www-form-urlencoded', 'application/jsonx', 'multipart/form-data; boundary=x'])
          assertProblem(await post(target, JSON.stringify(good), { 'content-type': type }), 415, 'unsupported_media_type');
        assertProblem(await server.call('POST', target, { headers: bearer(ann.token) }), 415, 'unsupported_media_type');
        assertProblem(await post(target, JSON.stringify(good) + ' '.repeat(65536)), 413, 'content_too_large');
      }
    }));
});

describe('something that is not there', () => {
  test('an event, a section: 404', async () => {
    await refusesAll(
      [
        ['another id', { ...good, eventId: '2' }],
        ['another type', { ...good, eventType: 'concert' }],
      ],
      404,
      'event_not_found',
    );
    await refusesAll(
      [
        ['another section', { ...good, section: 'B' }],
        ['another case', { ...good, section: 's' }],
      ],
      404,
      'section_not_found',
    );
  });

  test('a seat beyond the last one: 404, and the answer names it', () =>
    changesNothing(async () => {
      const named = (seats, section = 'S') => ({ ...without('quantity'), section, seats });
      for (const [seats, missing] of [[[101], [101]], [[1, 101, 2], [101]], [[1000000, 4, 102], [102, 1000000]]]) {
        for (const target of PATHS) assertProblemWith(await post(target, named(seats)), 404, 'seat_not_found', { seats: missing });
        assertProblemWith(await post('/reservations', named(seats, 'A')), 404, 'seat_not_found', { seats: missing });
      }
      assertProblemWith(await post('/reservations', named([3, 101])), 404, 'seat_not_found', { seats: [101] });
      const { firstSeatId } = await sale.map('S');
      assertProblemWith(await post('/reservations', { seatId: firstSeatId + 100 }), 404, 'seat_not_found', { seats: [101] });
      for (const seatId of [1, firstSeatId - 1, 2 ** 53 - 1]) assert.equal((await post('/reservations', { seatId })).json.code, 'seat_not_found');
      assert.equal((await post('/reservations', '{"seatId": 9223372036854775807}')).json.code, 'seat_not_found');
    }));

  test('a reservation: 404, whatever its id looks like', () =>
    changesNothing(async () => {
      const ids = [
        '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', held.id.replaceAll('-', ''), held.id.slice(0, -1), `${held.id}0`,
        `{${held.id}}`, held.id.replace(/.$/, 'g'), 'x', '1', '-1', 'null', '%27%20OR%201=1', 'x'.repeat(2000), '..%2f..', '%F0%9F%92%BA',
      ];
      for (const id of ids) {
        for (const what of ['confirm', 'cancel']) assertProblem(await server.call('POST', `/reservations/${id}/${what}`, { headers: bearer(ann.token) }), 404, 'reservation_not_found');
        assertProblem(await server.call('GET', `/reservations/${id}`, { headers: bearer(ann.token) }), 404, 'reservation_not_found');
      }
      for (const id of ['%00', '%ff', '%', '%zz']) assertProblem(await server.call('GET', `/reservations/${id}`, { headers: bearer(ann.token) }), 400, 'bad_request');
      for (const id of ['', '/', `${held.id}/`, `${held.id}/Confirm`, `${held.id}/confirm/x`])
        assertProblem(await server.call('POST', `/reservations/${id}`, { headers: bearer(ann.token) }), 404, 'not_found');
    }));

  test('a method: 405, with those that are', () =>
    changesNothing(async () => {
      for (const [method, target, allowed] of [
        ['PUT', '/reservations', /GET.*POST|POST.*GET/],
        ['DELETE', `/reservations/${held.id}`, /GET/],
        ['POST', `/reservations/${held.id}`, /GET/],
        ['GET', `/reservations/${held.id}/confirm`, /POST/],
        ['DELETE', `/reservations/${held.id}/cancel`, /POST/],
        ['GET', '/api/v1/optimistic', /POST/],
      ]) {
        const answer = await server.call(method, target, { headers: bearer(ann.token) });
        assertProblem(answer, 405, 'method_not_allowed');
        assert.match(answer.headers.allow, allowed);
      }
    }));
});

describe('confirm, cancel and lists', () => {
  test('a body that is not { userId } is refused', () =>
    changesNothing(async () => {
      for (const what of ['confirm', 'cancel']) {
        const target = `/reservations/${held.id}/${what}`;
        for (const userId of ['', null, true, 1.5, [], {}, 'x'.repeat(65), 'a\nb']) assertProblem(await post(target, { userId }), 422, 'invalid_field');
        for (const field of ['id', 'status', 'code', 'UserId']) assertProblem(await post(target, { [field]: 'ann' }), 422, 'unknown_field');
        for (const text of [' ', '{', '[]', 'null', '"ann"', '{"userId":"a","userId":"a"}', '{"userId":"\\u0000"}', Buffer.from([0x7b, 0xff, 0x7d])])
          assertProblem(await post(target, text), 400, 'bad_json');
        assertProblem(await post(target, '{}', { 'content-type': 'text/plain' }), 415, 'unsupported_media_type');
        assertProblem(await post(target, { userId: 'ben' }), 403, 'user_mismatch');
      }
    }));

  test('a name in the query that is none is 400', async () => {
    for (const target of ['/reservations', `/reservations/${held.id}`]) {
      const named = (userId) => server.call('GET', `${target}?userId=${userId}`);
      for (const userId of ['', 'x'.repeat(65), 'a%0ab', '%7f', '%ff', '%c3']) assertProblem(await named(userId), 400, 'invalid_parameter');
      for (const userId of ['%00', '%', '%zz']) assertProblem(await named(userId), 400, 'bad_request');
    }
  });
});

test('and after all of it the same user still buys', async () => {
  assert.equal(sale.rows().length, 1);
  await sale.confirmed(ann, held.id);
  assert.equal((await sale.map('S')).seats, `AAC${'A'.repeat(97)}`);
});
