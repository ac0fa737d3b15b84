// Events: what an admin may set, what users see, and the audit trail.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { assertProblemWith } from './support/queue.mjs';
import { Raw, adminRequest, ask } from './support/raw.mjs';
import { assertProblem, call, concert, isCluster, lasting, run, start, storeFlags, test, until } from './support/server.mjs';

let server;
before(async () => (server = await start({ args: ['--users-auth', 'trusted', '--net-trusted-proxies', '127.0.0.1/32'] })));
after(() => server.stop());

const put = (name, body, options) => server.admin('PUT', `/admin/events/${name}`, body, options);
const patch = (name, body) => server.admin('PATCH', `/admin/events/${name}`, body);
const get = (name) => server.call('GET', `/events/${name}`);
const adminGet = async (name) => (await server.admin('GET', `/admin/events/${name}`)).json;

describe('one event', () => {
  test('PUT creates with 201, then changes with 200, and answers with what is stored', async () => {
    const created = await put('CONCERT/1', concert());
    assert.equal(created.status, 201);
    assert.equal(created.json.version, 1);
    const changed = await put('CONCERT/1', concert({ title: 'Summer tour' }));
    assert.equal(changed.status, 200);
    assert.equal(changed.json.title, 'Summer tour');
    assert.equal(changed.json.version, 2);
    assert.equal(changed.json.createdAt, created.json.createdAt);
    assert.deepEqual(lasting(await adminGet('CONCERT/1')), lasting(changed.json));
  });

  test('what a PUT does not say has the defaults of the design', async () => {
    const { json } = await put('DEFAULTS/1', { title: 'Winter tour', sections: [{ id: 'A', capacity: 100 }] });
    const { version, createdAt, updatedAt, ...rest } = lasting(json);
    assert.deepEqual(rest, {
      eventType: 'DEFAULTS',
      eventId: '1',
      title: 'Winter tour',
      state: 'OPEN',
      opensAt: null,
      closesAt: null,
      startsAt: null,
      autoEnter: false,
      queue: {
        maxWaiting: 1000000,
        maxActive: 100,
        entryBatchSize: 50,
        entryIntervalSeconds: 1,
        activeTtlSeconds: 600,
        graceSeconds: 300,
        tokenTtlSeconds: 0,
      },
      holdSeconds: 300,
      maxPerUser: 4,
      reholdSeconds: 60,
      maxHoldsPerStay: 0,
      confirmBy: null,
      cancelConfirmed: false,
      currency: 'KRW',
      page: null,
      returnHosts: [],
      notice: null,
      sections: [
        { id: 'A', name: 'A', capacity: 100, available: 100, held: 0, confirmed: 0, price: 0, mode: 'slot', strategy: 'slot', status: 'open' },
      ],
    });
  });

  test('the example of the design is taken as it stands, and a PUT forgets what it does not repeat', async () => {
    const example = {
      title: 'Winter tour',
      state: 'OPEN',
      opensAt: null,
      closesAt: '2031-01-01T00:00:00.000Z',
      startsAt: '2026-12-25T10:00:00Z',
      autoEnter: true,
      queue: { maxWaiting: 5, maxActive: 6, entryBatchSize: 7, entryIntervalSeconds: 8, activeTtlSeconds: 9, graceSeconds: 10, tokenTtlSeconds: 11 },
      holdSeconds: 12,
      maxPerUser: 13,
      reholdSeconds: 14,
      maxHoldsPerStay: 15,
      confirmBy: 'shop',
      cancelConfirmed: true,
      currency: 'EUR',
      page: { name: 'The shop', accent: '#c2185b', logo: 'https://cdn.example/logo.svg', texts: { ko: { 'event.waiting.title': '잠시만 기다려 주세요' } } },
      returnHosts: ['shop.example', 'shop.example:8443'],
      notice: 'The doors open later.\nPlease wait.',
      sections: [{ id: 'A', name: 'Floor A', capacity: 100, price: 150000, mode: 'seat', status: 'closed' }],
    };
    const { json } = await put('EXAMPLE/1', example);
    assert.equal(json.startsAt, '2026-12-25T10:00:00.000Z');
    assert.deepEqual(json.queue, example.queue);
    const { available, held, confirmed, strategy, ...section } = json.sections[0];
    assert.deepEqual(section, example.sections[0]);
    for (const key of ['title', 'state', 'opensAt', 'closesAt', 'autoEnter', 'holdSeconds', 'maxPerUser', 'reholdSeconds', 'maxHoldsPerStay', 'confirmBy', 'cancelConfirmed', 'currency', 'page', 'returnHosts', 'notice'])
      assert.deepEqual(json[key], example[key], key);
    const plain = (await put('EXAMPLE/1', concert())).json;
    assert.deepEqual([plain.page, plain.returnHosts], [null, []]);
    assert.equal(plain.holdSeconds, 300);
    assert.equal(plain.queue.maxWaiting, 1000000);
    assert.equal(plain.startsAt, null);
  });

  test('a draft is seen by the admin alone, in no list, map or ranking; an announced event by all', async () => {
    const soon = (ms) => new Date(Date.now() + ms).toISOString();
    const key = { headers: { authorization: `Bearer ${server.adminKey}` } };
    const names = async (query, options) => (await server.call('GET', `/events?type=DRAFTS${query}`, options)).json.events.map((e) => e.eventId);
    const opensAt = soon(3600_000);
    await put('DRAFTS/0', concert({ state: 'DRAFT' }));
    await put('DRAFTS/1', concert({ state: 'OPEN', opensAt }));
    await put('DRAFTS/2', concert({ state: 'DRAFT', opensAt }));
    await put('DRAFTS/3', concert({ state: 'DRAFT', opensAt: '2000-01-01T00:00:00Z' }));
    await put('DRAFTS/4', concert({ state: 'CLOSED' }));
    await put('DRAFTS/5', concert({ state: 'DRAFT' }));
    assert.deepEqual(await names(''), ['1', '3', '4']);
    assert.deepEqual(await names('', key), ['0', '1', '2', '3', '4', '5']);
    assert.deepEqual(await names('&limit=1'), ['1'], 'drafts use up no page');
    const second = await server.call('GET', '/events?type=DRAFTS&limit=1&after=DRAFTS/1');
    assert.deepEqual([second.json.events[0].eventId, second.json.next], ['3', 'DRAFTS/3']);
    const last = await server.call('GET', '/events?type=DRAFTS&limit=1&after=DRAFTS/3');
    assert.deepEqual([last.json.events[0].eventId, last.json.next], ['4', null], 'nothing says that there is a draft behind it');
    assert.deepEqual([(await get('DRAFTS/1')).json.state, (await get('DRAFTS/1')).json.opensAt], ['OPEN', opensAt], 'for a countdown');

    const paths = (id) => [`/events/DRAFTS/${id}`, `/events/DRAFTS/${id}/sections/A/seats`, `/rankings/soldout/DRAFTS/${id}`, `/rankings/daily/DRAFTS/${id}`];
    for (const id of ['0', '2', '5'])
      for (const path of paths(id)) {
        assertProblem(await server.call('GET', path), 404, 'event_not_found');
        assert.equal((await server.call('GET', path, key)).status, 200, path);
      }
    for (const id of ['1', '3', '4']) for (const path of paths(id)) assert.equal((await server.call('GET', path)).status, 200, path);
    // Neither do requests for seats show which sections, seats and strategies there are.
    const { firstSeatId } = (await server.call('GET', paths('0')[1], key)).json;
    const hold = (id, wish) => server.call('POST', '/reservations', { body: { eventType: 'DRAFTS', eventId: id, section: 'A', quantity: 1, ...wish } });
    for (const wish of [{}, { section: 'B' }, { strategy: 'lock' }, { quantity: undefined, seats: [1000] }, { userId: 'ann' }]) assertProblem(await hold('0', wish), 403, 'closed');
    for (const seatId of [firstSeatId, 2 ** 50]) assert.equal((await server.call('POST', '/reservations', { body: { seatId } })).json.code, 'seat_not_found');
    assertProblem(await hold('1', { section: 'B' }), 404, 'section_not_found');
    const labels = async (options) => {
      const { text } = await server.nodes[0].call('GET', '/metrics', options);
      return [...new Set([...text.matchAll(/event="DRAFTS\/(\d)"/g)].map(([, id]) => id))].sort();
    };
    assert.deepEqual(await labels(), ['1', '3', '4']);
    await until('the admin sees all metrics', async () => (await labels(key)).length === 6);

    await patch('DRAFTS/0', { state: 'OPEN' });
    assert.equal((await get('DRAFTS/0')).status, 200);
    const { entryToken } = (await server.call('POST', '/queue/DRAFTS/0/enter', { body: { userId: 'ann' } })).json;
    await patch('DRAFTS/0', { state: 'DRAFT' });
    assertProblem(await get('DRAFTS/0'), 404, 'event_not_found');
    const again = { headers: { 'x-queue-token': entryToken }, body: { eventType: 'DRAFTS', eventId: '0', section: 'B', quantity: 1 } };
    assertProblem(await server.call('POST', '/reservations', again), 404, 'section_not_found');
  });

  test('everybody sees what is sold, only the admin how it is run', async () => {
    await put('SEEN/1', concert());
    const open = (await get('SEEN/1')).json;
    const admin = await adminGet('SEEN/1');
    const { queue, version, createdAt, updatedAt, ...shared } = lasting(admin);
    assert.deepEqual(lasting(open), { ...shared, confirmBy: 'user', graceSeconds: queue.graceSeconds });
    assert.ok(queue && version && createdAt && updatedAt);
    assertProblem(await get('SEEN/2'), 404, 'event_not_found');
    assertProblem(await server.admin('GET', '/admin/events/SEEN/2'), 404, 'event_not_found');
  });

  test('what GET shows may be sent back: nothing changes but the version', async () => {
    await put('ROUND/1', concert({ startsAt: '2026-12-25T10:00:00+09:00', title: 'Ünï "quoted" \\ 😀', queue: { maxActive: 7 } }));
    const before = await adminGet('ROUND/1');
    assert.equal(before.startsAt, '2026-12-25T01:00:00.000Z');
    assert.equal((await put('ROUND/1', before)).status, 200);
    const after = await adminGet('ROUND/1');
    assert.deepEqual({ ...lasting(after), version: 0, updatedAt: 0 }, { ...lasting(before), version: 0, updatedAt: 0 });
    assert.equal((await patch('ROUND/1', after)).status, 200, 'and as a PATCH');
    assert.equal((await put('ROUND/1', (await get('ROUND/1')).json)).status, 200, 'the public shape too');
  });

  test('a PUT without state keeps the state; a new event is OPEN', async () => {
    assert.equal((await put('STATE/1', concert())).json.state, 'OPEN');
    for (const state of ['PAUSED', 'CLOSED', 'DRAFT', 'DRAINING']) {
      assert.equal((await put('STATE/1', concert({ state }))).json.state, state);
      assert.equal((await put('STATE/1', concert({ title: `Still ${state}` }))).json.state, state);
      assert.equal((await adminGet('STATE/1')).state, state);
    }
    assert.equal((await put('STATE/1', concert({ state: 'OPEN' }))).json.state, 'OPEN');
    await server.admin('DELETE', '/admin/events/STATE/1');
    assert.equal((await put('STATE/1', concert())).json.state, 'OPEN', 'a new event of the name');
  });

  test('a change that names another version than the event has is refused with 412 and both', async () => {
    const created = await put('VERSION/1', concert());
    const first = created.json.version;
    assert.equal(created.headers.etag, `"${first}"`);
    const changed = await patch('VERSION/1', { title: 'Second', version: first });
    const second = changed.json.version;
    assert.equal(changed.headers.etag, `"${second}"`);
    assert.equal((await server.admin('GET', '/admin/events/VERSION/1')).headers.etag, `"${second}"`);
    const ifMatch = (etag) => ({ headers: { 'if-match': etag } });
    const section = '/admin/events/VERSION/1/sections/A';
    const late = {
      'PUT, version': await put('VERSION/1', concert({ version: first })),
      'PUT, If-Match': await put('VERSION/1', concert(), ifMatch(`"${first}"`)),
      'PATCH, version': await patch('VERSION/1', { title: 'Late', version: first }),
      'PATCH, If-Match': await server.admin('PATCH', '/admin/events/VERSION/1', { title: 'Late' }, ifMatch(`"${first}"`)),
      'section, If-Match': await server.admin('PATCH', section, { price: 1 }, ifMatch(`"${first}"`)),
      'DELETE, If-Match': await server.admin('DELETE', '/admin/events/VERSION/1', undefined, ifMatch(`"${first}"`)),
      'pause, If-Match': await server.admin('POST', '/admin/queue/VERSION/1/pause', undefined, ifMatch(`"${first}"`)),
    };
    for (const [how, answer] of Object.entries(late)) {
      const { detail } = assertProblemWith(answer, 412, 'version_mismatch', { sentVersion: first, presentVersion: second });
      assert.match(detail, new RegExp(`version ${second}, .* version ${first}`), how);
    }
    assert.equal((await adminGet('VERSION/1')).version, second, 'nothing has changed');

    const third = await put('VERSION/1', concert({ title: 'Third', version: second }), ifMatch(`"${second}"`));
    assert.equal(third.status, 200);
    const fourth = await server.admin('PATCH', section, { price: 1 }, ifMatch(`W/${third.headers.etag}`));
    assert.equal(fourth.status, 200, 'as a proxy that compresses makes it');
    assert.equal((await put('VERSION/1', concert(), ifMatch('*'))).status, 200);
    assert.equal((await put('VERSION/1', concert())).status, 200, 'without a version the last change wins');

    assertProblemWith(await put('VERSION/2', concert({ version: 1 })), 412, 'version_mismatch', { sentVersion: 1, presentVersion: null });
    assertProblemWith(await put('VERSION/2', concert(), ifMatch('*')), 412, 'version_mismatch', { sentVersion: null, presentVersion: null });
    assertProblem(await server.admin('GET', '/admin/events/VERSION/2'), 404, 'event_not_found');
    assertProblem(await patch('VERSION/2', { version: 1 }), 404, 'event_not_found');
    for (const version of [0, -1, 1.5, '1', null])
      assert.match(assertProblem(await patch('VERSION/1', { version }), 422, 'invalid_field').detail, /^version /);
    assert.match(assertProblem(await patch('VERSION/1', { version: [1] }), 422, 'invalid_field').detail, /^version /);
    assertProblem(await put('VERSION/1', concert({ version: 1 }), ifMatch('"2"')), 422, 'invalid_field');
    const remove = (etag) => server.admin('DELETE', '/admin/events/VERSION/1', undefined, ifMatch(etag));
    for (const etag of ['1', '"x"', '"-1"', '"1', '""', '"1", "2"']) {
      assertProblem(await put('VERSION/1', concert(), ifMatch(etag)), 400, 'bad_request');
      assertProblem(await remove(etag), 400, 'bad_request');
    }
    assert.equal((await remove((await server.admin('GET', '/admin/events/VERSION/1')).headers.etag)).status, 204);
    assertProblem(await remove('*'), 404, 'event_not_found');
  });

  test('PATCH sets what it names and leaves the rest, inside queue too', async () => {
    await put('PATCH/1', concert({ holdSeconds: 60, queue: { maxActive: 5, maxWaiting: 10 } }));
    const before = await adminGet('PATCH/1');
    const { json } = await patch('PATCH/1', { maxPerUser: 2, queue: { maxActive: 6 }, opensAt: '2030-01-01T00:00:00Z' });
    assert.deepEqual(lasting(json), {
      ...lasting(before),
      maxPerUser: 2,
      opensAt: '2030-01-01T00:00:00.000Z',
      queue: { ...before.queue, maxActive: 6 },
      version: before.version + 1,
      updatedAt: json.updatedAt,
    });
    assert.equal((await patch('PATCH/1', { opensAt: null })).json.opensAt, null);
    assert.equal((await patch('PATCH/1', {})).status, 200);
    const two = await patch('PATCH/1', { sections: [{ id: 'B', capacity: 5 }, { id: 'A', capacity: 7 }] });
    assert.deepEqual(two.json.sections.map((s) => [s.id, s.capacity]), [['B', 5], ['A', 7]]);
    assertProblem(await patch('PATCH/none', { maxPerUser: 1 }), 404, 'event_not_found');
  });

  test('PATCH of a section changes that one', async () => {
    await put('SECTION/1', concert({ sections: [{ id: 'A', capacity: 10 }, { id: 'B', capacity: 20, price: 5 }] }));
    const section = (id, body) => server.admin('PATCH', `/admin/events/SECTION/1/sections/${id}`, body);
    const { status, json } = await section('B', { status: 'maintenance', price: 7, capacity: 30 });
    assert.equal(status, 200);
    assert.deepEqual(json.sections[1], {
      id: 'B', name: 'B', capacity: 30, available: 30, held: 0, confirmed: 0, price: 7, mode: 'slot', strategy: 'slot', status: 'maintenance',
    });
    assert.equal(json.sections[0].capacity, 10);
    assert.equal((await section('B', { id: 'B', name: 'Balcony' })).json.sections[1].name, 'Balcony');
    assert.match(assertProblem(await section('B', { id: 'C' }), 422, 'invalid_field').detail, /\bid\b/);
    assert.match(assertProblem(await section('B', { capacity: 0 }), 422, 'invalid_field').detail, /capacity/);
    assert.match(assertProblem(await section('C', { price: 1 }), 404, 'section_not_found').detail, /"C"/);
    assertProblem(await server.admin('PATCH', '/admin/events/SECTION/2/sections/A', {}), 404, 'event_not_found');
  });

  test('DELETE is 204, then 404; a new one of the name starts afresh with a higher version', async () => {
    await put('GONE/1', concert({ title: 'First' }));
    await patch('GONE/1', { maxPerUser: 1 });
    const before = await adminGet('GONE/1');
    const gone = await server.admin('DELETE', '/admin/events/GONE/1');
    assert.equal(gone.status, 204);
    assert.equal(gone.text, '');
    assertProblem(await server.admin('DELETE', '/admin/events/GONE/1'), 404, 'event_not_found');
    assertProblem(await get('GONE/1'), 404, 'event_not_found');
    assertProblem(await patch('GONE/1', { maxPerUser: 1 }), 404, 'event_not_found');
    const again = await put('GONE/1', concert({ title: 'Second' }));
    assert.equal(again.status, 201);
    assert.equal(again.json.title, 'Second');
    assert.equal(again.json.maxPerUser, 4);
    assert.ok(again.json.version > before.version, `${again.json.version}`);
  });

  test('every word of state, mode and status is taken, and no other', async () => {
    for (const state of ['DRAFT', 'OPEN', 'PAUSED', 'DRAINING', 'CLOSED'])
      assert.equal((await put('WORDS/1', concert({ state }))).json.state, state);
    for (const state of ['open', 'ENDED', '', 1, null]) {
      const { detail } = assertProblem(await put('WORDS/1', concert({ state })), 422, 'invalid_field');
      assert.match(detail, /state must be one of "DRAFT", "OPEN", "PAUSED", "DRAINING", "CLOSED"/);
    }
    for (const mode of ['slot', 'lock', 'adaptive', 'seat'])
      assert.equal((await put('WORDS/1', concert({ sections: [{ id: 'A', capacity: 1, mode }] }))).json.sections[0].mode, mode);
    for (const status of ['open', 'closed', 'maintenance'])
      assert.equal((await put('WORDS/1', concert({ sections: [{ id: 'A', capacity: 1, status }] }))).json.sections[0].status, status);
  });

  test('the outermost values that are allowed are allowed', async () => {
    const body = concert({
      title: 'é'.repeat(100),
      queue: { maxWaiting: 10000000, maxActive: 1000000, entryBatchSize: 100000, entryIntervalSeconds: 3600, activeTtlSeconds: 86400, graceSeconds: 86400, tokenTtlSeconds: 2592000 },
      holdSeconds: 86400,
      maxPerUser: 1000,
      opensAt: '0000-01-01T00:00:00Z',
      startsAt: '9999-12-31T23:59:59.999Z',
      sections: Array.from({ length: 200 }, (_, i) => ({ id: `${'s'.repeat(29)}${String(i).padStart(3, '0')}`, name: 'n'.repeat(100), capacity: 1, price: 1000000000000 })),
    });
    const { status, json } = await put(`${'T'.repeat(32)}/${'i'.repeat(64)}`, body);
    assert.equal(status, 201);
    assert.deepEqual(json.queue, body.queue);
    assert.equal(json.title, body.title);
    assert.equal(json.sections.length, 200);
    assert.equal(json.startsAt, '9999-12-31T23:59:59.999Z');
  });

  // PostgreSQL has a row for each seat of mode `seat`, to be locked.
  test('a section of 1,000,000 seats is made at once, in every mode', async (t) => {
    for (const mode of ['slot', 'lock', 'adaptive', 'seat']) {
      const began = performance.now();
      const { status, json } = await put(`MILLION/${mode}`, concert({ sections: [{ id: 'A', capacity: 1000000, mode }] }));
      const took = performance.now() - began;
      assert.equal(status, 201);
      assert.equal(json.sections[0].available, 1000000);
      t.diagnostic(`${mode}: ${took.toFixed(1)} ms`);
    }
  });
});

describe('the waiting room of an event', () => {
  const PAGE = { name: 'The shop', accent: '#c2185b', logo: '/logo.svg', texts: { en: { 'event.title': 'Please wait' } } };
  const HOSTILE = ['<script>alert(1)</script>', '"\'`\\ & </title> ${x} {{t}} %s', 'שלום \u202eמהעולם\u202c עולם', '😀é\u0301한'];
  const show = async (name) => {
    const { page, returnHosts, notice } = (await get(name)).json;
    return { page, returnHosts, notice };
  };
  const patchQueue = (name, body) => server.admin('PATCH', `/admin/queue/${name}`, body);

  test('shows titles and texts as they were sent, whatever they contain', async () => {
    const long = '긴'.repeat(200);
    const texts = Object.fromEntries([...HOSTILE, long, 'two\nlines', ''].map((text, i) => [`event.text.${i}`, text]));
    const page = { ...PAGE, name: `"<b>${'ש'.repeat(50)}'`, texts: { ko: texts, 'pt-BR': {}, en: { a: 'ü'.repeat(1000) } } };
    for (const [i, title] of [...HOSTILE, 'x'.repeat(200)].entries()) {
      const notice = i < HOSTILE.length ? `${HOSTILE[i]}\n${long}` : '공'.repeat(500);
      const { status, json } = await put(`TEXTS/${i}`, concert({ title, page, notice }));
      assert.equal(status, 201);
      assert.deepEqual([json.title, json.page, json.notice], [title, page, notice]);
      assert.deepEqual(await show(`TEXTS/${i}`), { page, returnHosts: [], notice });
      assert.equal((await get(`TEXTS/${i}`)).json.title, title);
      assert.equal((await patchQueue(`TEXTS/${i}`, { maxActive: 5 })).json.notice, notice);
    }
  });

  test('is in the answers about one event, not in the list', async () => {
    await put('LISTED/1', concert({ page: PAGE, returnHosts: ['shop.example'], notice: 'Soon' }));
    const [listed] = (await server.call('GET', '/events?type=LISTED')).json.events;
    for (const name of ['page', 'returnHosts', 'notice']) assert.ok(!(name in listed), name);
    assert.deepEqual(await show('LISTED/1'), { page: PAGE, returnHosts: ['shop.example'], notice: 'Soon' });
    const { page, returnHosts, notice } = await adminGet('LISTED/1');
    assert.deepEqual({ page, returnHosts, notice }, await show('LISTED/1'));
  });

  test('PATCH changes what it names, also inside page; null sets it back', async () => {
    const full = { page: PAGE, returnHosts: ['a.example', 'b.example:8443'], notice: 'Soon' };
    await put('ROOM/1', concert(full));
    const after = async (body, expected) => {
      const { status, json, text } = await patch('ROOM/1', body);
      assert.equal(status, 200, text);
      const { page, returnHosts, notice } = json;
      assert.deepEqual({ page, returnHosts, notice }, expected);
      assert.deepEqual(await show('ROOM/1'), expected);
    };
    await after({ maxPerUser: 3, sections: [{ id: 'B', capacity: 5 }, { id: 'C', capacity: 5 }] }, full);
    await after({ page: { accent: '#000000' } }, { ...full, page: { ...PAGE, accent: '#000000' } });
    await after({ page: { texts: { ko: {} }, accent: null } }, { ...full, page: { name: PAGE.name, logo: PAGE.logo, texts: { ko: {} } } });
    await after({ page: {} }, { ...full, page: { name: PAGE.name, logo: PAGE.logo, texts: { ko: {} } } });
    await after({ page: { name: null, logo: null, texts: null } }, { ...full, page: null });
    await after({ page: { name: '' }, returnHosts: [] }, { page: { name: '' }, returnHosts: [], notice: 'Soon' });
    await after({ page: null, returnHosts: ['a.example'], notice: '' }, { page: null, returnHosts: ['a.example'], notice: null });
    await after({ returnHosts: null, notice: 'Now' }, { page: null, returnHosts: [], notice: 'Now' });
  });

  test('a PUT forgets page and returnHosts that it does not repeat, and keeps the notice', async () => {
    await put('ROOM/2', concert({ page: PAGE, returnHosts: ['a.example'], notice: 'Soon' }));
    await put('ROOM/2', concert());
    assert.deepEqual(await show('ROOM/2'), { page: null, returnHosts: [], notice: 'Soon' });
    await put('ROOM/2', concert({ notice: null, page: { accent: null } }));
    assert.deepEqual(await show('ROOM/2'), { page: null, returnHosts: [], notice: null });
  });

  test('PATCH of the queue sets the notice, and nothing else of the room', async () => {
    await put('ROOM/3', concert({ page: PAGE, returnHosts: ['a.example'] }));
    const before = await adminGet('ROOM/3');
    for (const notice of ['Two more minutes', '"', null, 'x\ny']) {
      const { status, json } = await patchQueue('ROOM/3', { notice });
      assert.deepEqual([status, json.notice], [200, notice]);
      assert.equal((await server.admin('GET', '/admin/queue/ROOM/3')).json.notice, notice);
      assert.deepEqual(await show('ROOM/3'), { page: PAGE, returnHosts: ['a.example'], notice });
    }
    assert.equal((await server.admin('POST', '/admin/queue/ROOM/3/activate', { notice: 'Open', maxActive: 7 })).json.notice, 'Open');
    const now = await adminGet('ROOM/3');
    assert.equal(now.version, before.version + 5);
    const [row] = (await server.admin('GET', '/admin/audit?limit=1')).json.audit;
    assert.deepEqual([row.act, row.subject, row.detail], ['queue.activate', 'ROOM/3', { notice: 'Open', maxActive: 7 }]);
    assert.equal(now.queue.maxActive, 7);
    assertProblem(await patchQueue('ROOM/3', { page: null }), 422, 'unknown_field');
    assertProblem(await patch('ROOM/3', { queue: { notice: 'x' } }), 422, 'unknown_field');
    assertProblem(await patchQueue('ROOM/none', { notice: 'x' }), 404, 'event_not_found');
  });

  test('what is not allowed is refused with its place, and changes nothing', async () => {
    const full = { page: PAGE, returnHosts: ['a.example'], notice: 'Soon' };
    await put('BAD/1', concert(full));
    const { version } = await adminGet('BAD/1');
    const hosts = (count) => Array.from({ length: count }, (_, i) => `h${i}.example`);
    const many = (count, value) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, value]));
    const languages = Object.fromEntries(Array.from({ length: 21 }, (_, i) => [`a${String.fromCharCode(97 + i)}`, {}]));
    const bad = [
      ...[1, 'x', true, []].map((page) => [{ page }, /^page must be null or an object/]),
      [{ page: { title: 'x' } }, /^page\.title is not a field/, 'unknown_field'],
      ...[1, {}, 'x\n', 'x\u0007', 'ü'.repeat(61)].map((name) => [{ page: { name } }, /^page\.name must be .*60 characters/]),
      ...[1, '', 'red', '#fff', '#c2185b;', '#gggggg', 'c2185b#'].map((accent) => [{ page: { accent } }, /^page\.accent must be .*"#c2185b"/]),
      ...['', 1, 'logo.png', '//evil.example/x', 'http://cdn.example/x', 'javascript:alert(1)', 'data:image/svg+xml,x', '/x"y', "/x'y", '/x y', '/x\\y', '/\n', 'https://', 'https://u:p@cdn.example/', `/${'x'.repeat(500)}`]
        .map((logo) => [{ page: { logo } }, /^page\.logo must be /]),
      ...[1, [], languages].map((texts) => [{ page: { texts } }, /^page\.texts must be .*20 languages/]),
      ...['', 'x', 'ko_KR', '<script>', 'ko-'].map((code) => [{ page: { texts: { [code]: {} } } }, /^page\.texts: ".*" is no language/]),
      ...[1, null, 'x', many(201, 'x')].map((texts) => [{ page: { texts: { ko: texts } } }, /^page\.texts\.ko must be an object of at most 200/]),
      ...['', 'a b', '<b>', 'x'.repeat(65), 'é'].map((key) => [{ page: { texts: { ko: { [key]: 'x' } } } }, /^page\.texts\.ko: ".*" is no key/]),
      ...[1, null, {}, 'x\t', 'x\r\n', 'x'.repeat(1001)].map((text) => [{ page: { texts: { ko: { ok: 'x', 'event.a': text } } } }, /^page\.texts\.ko: event\.a must be .*1000 characters/]),
      [{ page: { texts: { ko: many(20, 'x'.repeat(900)) } } }, /^page would have \d+ bytes of JSON; it can have 16384/],
      ...[1, 'a.example', {}, hosts(17)].map((returnHosts) => [{ returnHosts }, /^returnHosts must be null or an array of 0 to 16/]),
      ...['', 1, null, 'A.example', 'https://a.example', 'a.example/', 'a.example:0', 'a,b', '*.example', '..', 'a b', 'u@a.example', '[::1]']
        .map((host) => [{ returnHosts: ['a.example', host] }, /^returnHosts\[1\] must be a host name in lower case/]),
      ...[1, {}, [], false, 'x\t', 'x\r\ny', '\u0085', 'x'.repeat(501)].map((notice) => [{ notice }, /^notice must be null or a string of 0 to 500 characters/]),
    ];
    for (const [body, detail, code = 'invalid_field'] of bad) {
      const what = JSON.stringify(body).slice(0, 200);
      assert.match(assertProblem(await patch('BAD/1', body), 422, code).detail, detail, what);
      assert.match(assertProblem(await put('BAD/2', concert(body)), 422, code).detail, detail, what);
      if ('notice' in body) assert.match(assertProblem(await patchQueue('BAD/1', body), 422, code).detail, detail, what);
    }
    // A good field beside a bad one has no effect either.
    assertProblem(await patch('BAD/1', { title: 'Changed', notice: 'Changed', page: { accent: 'red' } }), 422, 'invalid_field');
    assertProblem(await patchQueue('BAD/1', { notice: 'Changed', maxActive: 0 }), 422, 'invalid_field');
    assert.deepEqual(await show('BAD/1'), full);
    assert.equal((await adminGet('BAD/1')).version, version);
    assertProblem(await get('BAD/2'), 404, 'event_not_found');
  });

  test('the largest that is allowed is allowed, and survives a PATCH of something else', async () => {
    const texts = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`a${String.fromCharCode(97 + i)}`, { 'event.text': 'é'.repeat(370) }]));
    const page = { name: 'é'.repeat(60), accent: '#FFFFFF', logo: `/${'x'.repeat(499)}`, texts };
    const bytes = Buffer.byteLength(JSON.stringify(page));
    const left = 16384 - bytes;
    assert.ok(left > 0 && left < 1000, `${left}`);
    texts.ab['event.text'] += 'x'.repeat(left);
    assert.equal(Buffer.byteLength(JSON.stringify(page)), 16384);
    const returnHosts = Array.from({ length: 16 }, (_, i) => `${'a.'.repeat(126)}${'abcdefghijklmnop'[i]}:65535`);
    const sections = Array.from({ length: 200 }, (_, i) => ({ id: `S${i}`, capacity: 1 }));
    const { status, text } = await put('LARGE/1', concert({ page, returnHosts, notice: '"'.repeat(500), sections }));
    assert.equal(status, 201, text);
    await patch('LARGE/1', { title: 'Another' });
    assert.deepEqual(await show('LARGE/1'), { page, returnHosts, notice: '"'.repeat(500) });
    texts.ab['event.text'] += 'x';
    assert.match(assertProblem(await patch('LARGE/1', { page }), 422, 'invalid_field').detail, /16385 bytes/);
  });
});

describe('the number of seats', () => {
  const seats = (capacity) => concert({ sections: [{ id: 'A', capacity }] });

  test('one event has at most 5,000,000, however they get there', async () => {
    const sections = Array.from({ length: 5 }, (_, i) => ({ id: `S${i}`, capacity: 1000000 }));
    const more = [...sections, { id: 'more', capacity: 1 }];
    const detail = /^The event would have 5000001 seats; one event can have 5000000\.$/;
    assert.match(assertProblem(await put('VAST/1', concert({ sections: more })), 422, 'too_many_seats').detail, detail);
    assertProblem(await server.admin('GET', '/admin/events/VAST/1'), 404, 'event_not_found');
    await put('VAST/1', concert({ sections: [...sections.slice(0, 4), { id: 'S4', capacity: 1 }] }));
    assert.match(assertProblem(await patch('VAST/1', { sections: more }), 422, 'too_many_seats').detail, detail);
    assert.equal((await server.admin('DELETE', '/admin/events/VAST/1')).status, 204);
  });

  test('all events together have at most limits.seats, also when they are made at the same time', async () => {
    const own = await start({ args: ['--limits-seats', '1000'] });
    const putSeats = (name, body) => own.admin('PUT', `/admin/events/${name}`, body);
    const all = async () => (await own.call('GET', '/events?limit=1000')).json.events.flatMap((e) => e.sections).reduce((sum, s) => sum + s.capacity, 0);
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => putSeats(`SUM/${i}`, seats(100))));
    const made = answers.flatMap(({ status }, i) => (status === 201 ? [`SUM/${i}`] : []));
    assert.equal(made.length, 10);
    for (const answer of answers.filter(({ status }) => status !== 201))
      assert.match(
        assertProblem(answer, 422, 'too_many_seats').detail,
        /^The event would have 100 seats, and all other events have 1000: together more than limits\.seats, which is 1000\.$/,
      );
    assert.equal(await all(), 1000);
    const [first, second] = made;
    assertProblem(await own.admin('PATCH', `/admin/events/${first}/sections/A`, { capacity: 101 }), 422, 'too_many_seats');
    assertProblem(await putSeats('SUM/new', concert({ sections: [{ id: 'A', capacity: 1, mode: 'seat' }] })), 422, 'too_many_seats');
    assertProblem(await own.admin('GET', '/admin/events/SUM/new'), 404, 'event_not_found');
    assert.equal((await putSeats(first, seats(40))).status, 200, 'fewer');
    assert.equal((await putSeats(second, seats(160))).status, 200, 'as many as that has given up');
    assert.equal((await own.admin('DELETE', `/admin/events/${first}`)).status, 204);
    assert.equal((await putSeats('SUM/new', seats(40))).status, 201, 'those of a deleted event are free');
    assert.equal(await all(), 1000);

    const lower = ['--limits-seats', '999'];
    if (isCluster) {
      const node = await own.join(lower);
      assert.match(node.stderr, /level=warn msg="the events have more seats than limits.seats; no event can get more" seats=1000 limits_seats=999/);
      assert.equal((await node.admin('PATCH', `/admin/events/${second}`, { title: 'Still changeable' })).status, 200);
      await own.stop();
      return;
    }
    await own.kill9();
    const { status, stderr } = run(['serve', '--listen', '127.0.0.1:0', ...storeFlags(own.dataDir), ...lower]);
    assert.equal(status, 1, stderr);
    assert.match(stderr, /^admitone: the events have 1000 seats together, more than limits\.seats, which is 999; .* start with --limits-seats 1000/m);
  });
});

describe('what is refused', () => {
  const section = (more) => concert({ sections: [{ id: 'A', capacity: 10, ...more }] });
  const queue = (more) => concert({ queue: more });
  const invalid = (detail) => [422, 'invalid_field', detail];
  const unknown = (detail) => [422, 'unknown_field', detail];
  const broken = (detail = /Line \d+, column \d+/) => [400, 'bad_json', detail];
  const good = JSON.stringify(concert());
  const many = Array.from({ length: 201 }, (_, i) => ({ id: `S${i}`, capacity: 1 }));

  // name, body, [status, code, what the detail says]
  const bodies = [
    ['nothing', '', broken()],
    ['only white space', ' \n ', broken()],
    ['no JSON', 'title=x', broken()],
    ['half a JSON', good.slice(0, -1), broken()],
    ['JSON with something behind', `${good}x`, broken()],
    ['two JSONs', `${good}${good}`, broken()],
    ['a comma too many', '{"title":"x",}', broken()],
    ['single quotes', "{'title':'x'}", broken()],
    ['NaN', '{"title":"x","holdSeconds":NaN}', broken()],
    ['an array', '[]', broken(/must be a JSON object/)],
    ['a string', '"x"', broken(/object|Line/)],
    ['null', 'null', broken(/object|Line/)],
    ['invalid UTF-8', Buffer.concat([Buffer.from('{"title":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]), broken()],
    ['an overlong encoding', Buffer.concat([Buffer.from('{"title":"'), Buffer.from([0xc0, 0xaf]), Buffer.from('"}')]), broken()],
    ['half a surrogate pair', '{"title":"\\ud800"}', broken()],
    ['an escaped NUL', '{"title":"a\\u0000b"}', broken()],
    ['a raw line end in a string', '{"title":"a\nb"}', broken()],
    ['duplicate keys', '{"title":"a","title":"b","sections":[{"id":"A","capacity":1}]}', broken(/duplicate/)],
    ['duplicate keys inside', '{"title":"a","sections":[{"id":"A","capacity":1,"capacity":2}]}', broken(/duplicate/)],
    ['nesting without an end', `{"title":${'['.repeat(5000)}`, broken()],
    ['an integer beyond 64 bits', '{"title":"x","holdSeconds":99999999999999999999}', broken()],
    ['a number beyond all bounds', '{"title":"x","holdSeconds":1e999}', broken()],

    ['no title', { sections: [{ id: 'A', capacity: 1 }] }, invalid(/^title is required/)],
    ['an empty title', concert({ title: '' }), invalid(/^title must be/)],
    ['a title that is a number', concert({ title: 1 }), invalid(/^title must be/)],
    ['a title of null', concert({ title: null }), invalid(/^title must be/)],
    ['a title of 201 bytes', concert({ title: 'x'.repeat(201) }), invalid(/^title must be a string of 1 to 200 bytes/)],
    ['a title of 101 letters of two bytes', concert({ title: 'é'.repeat(101) }), invalid(/^title must be/)],
    ['a title with a line end', concert({ title: 'a\nb' }), invalid(/^title.*control/)],
    ['a title with DEL', concert({ title: 'a\u007f' }), invalid(/^title.*control/)],
    ['a title with a C1 control', concert({ title: 'a\u0085' }), invalid(/^title.*control/)],
    ['an unknown field', concert({ colour: 'red' }), unknown(/^colour is not a field/)],
    ['a field in another case', concert({ Title: 'x' }), unknown(/^Title/)],
    ['an unknown field of the queue', queue({ maxactive: 1 }), unknown(/^queue\.maxactive/)],
    ['an unknown field of a section', section({ seats: 1 }), unknown(/^sections\[0\]\.seats/)],
    ['a queue that is a list', concert({ queue: [] }), invalid(/^queue must be an object/)],
    ['autoEnter as a string', concert({ autoEnter: 'true' }), invalid(/^autoEnter must be true or false/)],
    ['a time without a zone', concert({ opensAt: '2026-12-25T10:00:00' }), invalid(/^opensAt must be null or a time/)],
    ['a day that does not exist', concert({ startsAt: '2026-02-29T10:00:00Z' }), invalid(/^startsAt/)],
    ['a time as a number', concert({ startsAt: 1766656800 }), invalid(/^startsAt/)],
    ['a year of five digits', concert({ startsAt: '12026-01-01T00:00:00Z' }), invalid(/^startsAt/)],
    ['maxWaiting -1', queue({ maxWaiting: -1 }), invalid(/^queue\.maxWaiting must be a whole number from 0 to 10000000/)],
    ['maxWaiting too large', queue({ maxWaiting: 10000001 }), invalid(/^queue\.maxWaiting/)],
    ['maxActive 0', queue({ maxActive: 0 }), invalid(/^queue\.maxActive/)],
    ['maxActive 1.5', queue({ maxActive: 1.5 }), invalid(/^queue\.maxActive/)],
    ['maxActive 1.0', '{"title":"x","queue":{"maxActive":1.0},"sections":[{"id":"A","capacity":1}]}', invalid(/^queue\.maxActive/)],
    ['entryBatchSize 0', queue({ entryBatchSize: 0 }), invalid(/^queue\.entryBatchSize/)],
    ['entryIntervalSeconds 3601', queue({ entryIntervalSeconds: 3601 }), invalid(/^queue\.entryIntervalSeconds/)],
    ['activeTtlSeconds as a string', queue({ activeTtlSeconds: '600' }), invalid(/^queue\.activeTtlSeconds/)],
    ['graceSeconds null', queue({ graceSeconds: null }), invalid(/^queue\.graceSeconds/)],
    ['tokenTtlSeconds -9223372036854775808', '{"title":"x","queue":{"tokenTtlSeconds":-9223372036854775808},"sections":[{"id":"A","capacity":1}]}', invalid(/^queue\.tokenTtlSeconds/)],
    ['holdSeconds 0', concert({ holdSeconds: 0 }), invalid(/^holdSeconds/)],
    ['holdSeconds 86401', concert({ holdSeconds: 86401 }), invalid(/^holdSeconds/)],
    ['maxPerUser 0', concert({ maxPerUser: 0 }), invalid(/^maxPerUser/)],
    ['maxPerUser 1001', concert({ maxPerUser: 1001 }), invalid(/^maxPerUser must be a whole number from 1 to 1000/)],
    ['a currency in small letters', concert({ currency: 'krw' }), invalid(/^currency must be three capital letters/)],
    ['a currency of four letters', concert({ currency: 'EURO' }), invalid(/^currency/)],
    ['no sections', { title: 'x' }, invalid(/^sections must be an array of 0 to 200/)],
    ['sections that are no list', concert({ sections: {} }), invalid(/^sections must be/)],
    ['sections as an object', concert({ sections: {} }), invalid(/^sections must be/)],
    ['201 sections', concert({ sections: many }), invalid(/^sections must be/)],
    ['a section that is a string', concert({ sections: ['A'] }), invalid(/^sections\[0\] must be an object/)],
    ['two sections of one id', concert({ sections: [{ id: 'A', capacity: 1 }, { id: 'A', capacity: 2 }] }), invalid(/^sections\[1\]\.id.*"A" is used twice/)],
    ['a section without an id', concert({ sections: [{ capacity: 1 }] }), invalid(/^sections\[0\]\.id is required/)],
    ['a section without a capacity', concert({ sections: [{ id: 'A', capacity: 1 }, { id: 'B' }] }), invalid(/^sections\[1\]\.capacity is required/)],
    ['a section id with a slash', section({ id: 'A/B' }), invalid(/^sections\[0\]\.id/)],
    ['a section id of dots', section({ id: '..' }), invalid(/^sections\[0\]\.id/)],
    ['a section id of 33 letters', section({ id: 'x'.repeat(33) }), invalid(/^sections\[0\]\.id must be 1 to 32/)],
    ['a section id with a space', section({ id: 'A 1' }), invalid(/^sections\[0\]\.id/)],
    ['a section name of 101 bytes', section({ name: 'x'.repeat(101) }), invalid(/^sections\[0\]\.name/)],
    ['an empty section name', section({ name: '' }), invalid(/^sections\[0\]\.name/)],
    ['capacity 0', section({ capacity: 0 }), invalid(/^sections\[0\]\.capacity/)],
    ['capacity 1,000,001', section({ capacity: 1000001 }), invalid(/^sections\[0\]\.capacity must be a whole number from 1 to 1000000/)],
    ['a negative price', section({ price: -1 }), invalid(/^sections\[0\]\.price/)],
    ['a price with a fraction', section({ price: 0.5 }), invalid(/^sections\[0\]\.price/)],
    ['an unknown mode', section({ mode: 'none' }), invalid(/^sections\[0\]\.mode must be one of "slot"/)],
    ['an unknown status', section({ status: 'OPEN' }), invalid(/^sections\[0\]\.status must be one of "open"/)],
  ];

  test(`${bodies.length} bodies that make no sense change nothing, and the answer says which field and why`, async () => {
    await put('BAD/1', concert({ title: 'Untouched' }));
    const before = lasting(await adminGet('BAD/1'));
    const trail = await server.newestAudit();
    for (const [name, body, [status, code, detail]] of bodies) {
      for (const target of ['BAD/1', 'BAD/new']) {
        const problem = assertProblem(await put(target, body), status, code);
        assert.match(problem.detail, detail, name);
      }
      assert.deepEqual(lasting(await adminGet('BAD/1')), before, name);
    }
    assertProblem(await get('BAD/new'), 404, 'event_not_found');
    assert.equal(await server.newestAudit(), trail, 'a refusal leaves no trail');
  });

  test('a PATCH that makes no sense changes nothing, not even what it named before the fault', async () => {
    await put('BAD/2', concert());
    const before = lasting(await adminGet('BAD/2'));
    const trail = await server.newestAudit();
    const faults = bodies.filter(([, body]) => typeof body === 'object' && !Buffer.isBuffer(body));
    for (const [name, body, [status, code, detail]] of faults) {
      if (/^no (title|sections)/.test(name)) continue;
      const problem = assertProblem(await patch('BAD/2', { maxPerUser: 9, autoEnter: true, ...body }), status, code);
      assert.match(problem.detail, detail, name);
    }
    assert.deepEqual(lasting(await adminGet('BAD/2')), before);
    assert.equal(await server.newestAudit(), trail);
  });

  test('names of events are letters, digits, _ - and . , of bounded length', async () => {
    const trail = await server.newestAudit();
    for (const name of ['a%20b/1', 'a/b%2Fc', 'a/%C3%A9', 'a/%2e%2e', `${'T'.repeat(33)}/1`, `T/${'i'.repeat(65)}`, 'a:b/1', 'a/b%22'])
      assertProblem(await put(name, concert()), 422, 'invalid_field');
    for (const name of ['a/..', './1', '../1'])
      assertProblem(await ask(server, adminRequest(server, 'PUT', `/admin/events/${name}`, concert())), 422, 'invalid_field');
    for (const name of ['a%20b/1', 'a/%C3%A9', `T/${'i'.repeat(65)}`]) {
      assertProblem(await get(name), 404, 'event_not_found');
      assertProblem(await patch(name, {}), 404, 'event_not_found');
      assertProblem(await server.admin('DELETE', `/admin/events/${name}`), 404, 'event_not_found');
    }
    assert.equal(await server.newestAudit(), trail);
    assert.equal((await put('a.b-c_D/0.1-2_x', concert())).status, 201);
  });

  test('without the admin key, or with a wrong one, every admin path is 401 and nothing happens', async () => {
    await put('KEY/1', concert());
    const before = lasting(await adminGet('KEY/1'));
    const key = server.adminKey;
    const wrong = [
      undefined, '', 'Bearer', 'Bearer ', `Bearer ${key}x`, `Bearer ${key.slice(0, -1)}`, `Bearer ${key.toUpperCase()}`,
      `Basic ${Buffer.from(`admin:${key}`).toString('base64')}`, key, `Token ${key}`, `Bearer ${'0'.repeat(key.length)}`, `Bearer: ${key}`,
    ];
    const trail = await server.newestAudit();
    let clients = 0;
    for (const authorization of wrong) {
      for (const [method, target, body] of [
        ['PUT', '/admin/events/KEY/1', concert({ title: 'Intruder' })],
        ['PUT', '/admin/events/KEY/2', concert()],
        ['GET', '/admin/events/KEY/1'],
        ['PATCH', '/admin/events/KEY/1', { title: 'Intruder' }],
        ['DELETE', '/admin/events/KEY/1'],
        ['PATCH', '/admin/events/KEY/1/sections/A', { capacity: 1 }],
        ['GET', '/admin/audit'],
      ]) {
        // Each from another address, of which none has to wait.
        const headers = { 'x-forwarded-for': `198.51.100.${++clients}`, ...(authorization === undefined ? {} : { authorization }) };
        const answer = await server.call(method, target, { body, headers });
        assertProblem(answer, 401, 'admin_key_required');
        assert.match(answer.headers['www-authenticate'], /^Bearer/);
      }
    }
    assert.deepEqual(lasting(await adminGet('KEY/1')), before);
    assert.equal(await server.newestAudit(), trail);
    const lower = await server.call('GET', '/admin/events/KEY/1', { headers: { authorization: `bearer ${key}` } });
    assert.equal(lower.status, 200, 'the scheme is spelled in any case');
  });
});

describe('many at once', () => {
  test('50 changes of one event at the same time all land', async () => {
    const sections = Array.from({ length: 43 }, (_, i) => ({ id: `S${i}`, capacity: 1 }));
    await put('RACE/1', concert({ sections }));
    const before = await adminGet('RACE/1');
    const fields = [
      { title: 'Landed' }, { holdSeconds: 77 }, { maxPerUser: 77 }, { currency: 'USD' }, { autoEnter: true },
      { queue: { maxActive: 77 } }, { queue: { maxWaiting: 77 } },
    ];
    const answers = await Promise.all([
      ...fields.map((body) => patch('RACE/1', body)),
      ...sections.map(({ id }, i) => server.admin('PATCH', `/admin/events/RACE/1/sections/${id}`, { price: 1000 + i })),
    ]);
    assert.deepEqual(answers.map((a) => a.status), Array(50).fill(200));
    const after = await adminGet('RACE/1');
    assert.equal(after.version, before.version + 50);
    assert.deepEqual(after.sections.map((s) => s.price), sections.map((_, i) => 1000 + i));
    assert.deepEqual(
      [after.title, after.holdSeconds, after.maxPerUser, after.currency, after.autoEnter, after.queue.maxActive, after.queue.maxWaiting],
      ['Landed', 77, 77, 'USD', true, 77, 77],
    );
    assert.equal(new Set(answers.map((a) => a.json.version)).size, 50, 'each had its own version');
  });

  test('of changes that are based on one version, one succeeds', async () => {
    const { version } = (await put('BASED/1', concert())).json;
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        i % 2 === 0
          ? put('BASED/1', concert({ title: `${i}`, version }), { races: true })
          : server.admin('PATCH', '/admin/events/BASED/1', { title: `${i}`, version }, { races: true }),
      ),
    );
    const [won, ...more] = answers.filter((a) => a.status === 200);
    assert.deepEqual(more, []);
    for (const answer of answers.filter((a) => a !== won))
      assertProblemWith(answer, 412, 'version_mismatch', { sentVersion: version, presentVersion: won.json.version });
    assert.deepEqual(lasting(await adminGet('BASED/1')), lasting(won.json));
  });

  test('200 events created at the same time are all there, on every list that is asked for later', async () => {
    const done = new Set();
    const lists = [];
    const listed = async () => {
      const all = [];
      for (let after = ''; after !== null; ) {
        const { json } = await server.call('GET', `/events?type=MANY&limit=1000${after && `&after=${after}`}`);
        all.push(...json.events);
        after = json.next;
      }
      return all;
    };
    const creating = Array.from({ length: 200 }, async (_, i) => {
      const { status } = await put(`MANY/${i}`, concert({ title: `${i}` }));
      assert.equal(status, 201);
      done.add(String(i));
      if (i % 10 !== 0) return;
      const known = [...done];
      lists.push([known, new Set((await listed()).map((e) => e.eventId))]);
    });
    await Promise.all(creating);
    assert.ok(lists.length >= 20);
    for (const [known, seen] of lists) for (const id of known) assert.ok(seen.has(id), `MANY/${id} was acknowledged`);
    const all = await listed();
    assert.equal(all.length, 200);
    for (const event of all) assert.equal(event.title, event.eventId);
  });

  test('a client that was answered sees the change on every connection and every worker', async () => {
    const others = await Promise.all(Array.from({ length: 16 }, () => Raw.connect(server)));
    const look = adminRequest(server, 'GET', '/admin/events/EVERY/1');
    for (let round = 0; round < 15; round++) {
      const title = `round ${round}`;
      await put('EVERY/1', concert({ title }));
      const seen = await Promise.all([
        ...others.map((raw) => raw.write(look).answer()),
        ...Array.from({ length: 8 }, () => get('EVERY/1')),
      ]);
      for (const answer of seen) assert.equal(answer.json.title, title);
      if (round % 5 !== 4) continue;
      await server.admin('DELETE', '/admin/events/EVERY/1');
      for (const raw of others) assert.equal((await raw.write(look).answer()).status, 404);
    }
    for (const raw of others) raw.destroy();
  });

  test('PUT, PATCH and DELETE of one event at the same time leave one consistent event or none', async () => {
    const STORM = '/admin/events/STORM/1';
    for (let round = 0; round < 5; round++) {
      const acts = Array.from({ length: 30 }, (_, i) =>
        server.admin(...(i % 3 === 0 ? ['PUT', STORM, concert({ title: `put ${i}` })] : i % 3 === 1 ? ['PATCH', STORM, { maxPerUser: i }] : ['DELETE', STORM, undefined]), { races: true }),
      );
      for (const { status, text } of await Promise.all(acts)) assert.ok([200, 201, 204, 404, 409].includes(status), text);
      const now = await Promise.all(Array.from({ length: 10 }, () => server.admin('GET', STORM)));
      assert.equal(new Set(now.map((a) => (a.status === 200 ? JSON.stringify(lasting(a.json)) : a.status))).size, 1);
    }
  });
});

describe('the list', () => {
  let shop;
  before(async () => {
    shop = await start();
    for (const name of ['B/2', 'A/10', 'A/9', 'B/1', 'a/1', 'A/1', 'C/1']) await shop.admin('PUT', `/admin/events/${name}`, concert());
  });
  after(() => shop.stop());
  const list = async (query = '') => (await shop.call('GET', `/events${query}`)).json;
  const names = ({ events }) => events.map((e) => `${e.eventType}/${e.eventId}`);
  const ALL = ['A/1', 'A/10', 'A/9', 'B/1', 'B/2', 'C/1', 'a/1'];

  test('is in the order of names, each event as GET shows it, without the texts of its room', async () => {
    const all = await list();
    assert.deepEqual(names(all), ALL);
    assert.equal(all.next, null);
    const { page, returnHosts, notice, ...rest } = lasting((await shop.call('GET', '/events/A/1')).json);
    assert.deepEqual(lasting(all.events[0]), rest);
  });

  test('shows one type when asked to', async () => {
    assert.deepEqual(names(await list('?type=B')), ['B/1', 'B/2']);
    assert.deepEqual(names(await list('?type=%42')), ['B/1', 'B/2']);
    assert.deepEqual(await list('?type=NONE'), { events: [], next: null });
  });

  test('comes in pages that together are the whole, whatever their size', async () => {
    for (const limit of [1, 2, 3, 6, 7, 8, 1000]) {
      const seen = [];
      let next = '';
      do {
        const page = await list(`?limit=${limit}${next && `&after=${encodeURIComponent(next)}`}`);
        assert.ok(page.events.length <= limit);
        assert.ok(page.next === null || page.events.length === limit);
        seen.push(...names(page));
        next = page.next;
      } while (next);
      assert.deepEqual(seen, ALL, `limit ${limit}`);
    }
    assert.deepEqual(names(await list('?type=A&limit=2&after=A/1')), ['A/10', 'A/9']);
    assert.deepEqual(names(await list('?after=B/15')), ['B/2', 'C/1', 'a/1'], 'what is named need not exist');
  });

  test('says what is wrong with its parameters', async () => {
    for (const query of ['limit=0', 'limit=1001', 'limit=-1', 'limit=x', 'limit=', 'limit', 'limit=1.5', 'limit=%31%30x', 'limit=99999999999999999999'])
      assert.match(assertProblem(await shop.call('GET', `/events?${query}`), 400, 'invalid_parameter').detail, /^limit must be/, query);
    for (const query of ['after=', 'after=A', 'after=%ff', 'type=%ff', 'type=%0a'])
      assert.match(assertProblem(await shop.call('GET', `/events?${query}`), 400, 'invalid_parameter').detail, /after|type/, query);
    assert.equal((await shop.call('GET', '/events?limit=%31')).json.events.length, 1);
  });
});

describe('the audit trail', () => {
  let kept;
  before(async () => (kept = await start()));
  after(() => kept.stop());
  const page = async (query = '') => (await kept.admin('GET', `/admin/audit${query}`)).json;

  test('has every act, newest first, with actor, act, subject and the requested change', async () => {
    assert.deepEqual(await page(), { audit: [], next: null });
    const body = concert();
    await kept.admin('PUT', '/admin/events/A/1', body);
    await kept.admin('PATCH', '/admin/events/A/1', { maxPerUser: 1 });
    await kept.admin('PATCH', '/admin/events/A/1/sections/A', { price: 5 });
    await kept.admin('PUT', '/admin/events/A/1', `  ${JSON.stringify(body)}\n`);
    await kept.admin('DELETE', '/admin/events/A/1');
    await kept.admin('DELETE', '/admin/events/A/1');
    const { audit, next } = await page();
    assert.equal(next, null);
    assert.deepEqual(
      audit.map((row) => [row.actor, row.act, row.subject]),
      [
        ['admin', 'event.delete', 'A/1'],
        ['admin', 'event.put', 'A/1'],
        ['admin', 'section.patch', 'A/1/sections/A'],
        ['admin', 'event.patch', 'A/1'],
        ['admin', 'event.put', 'A/1'],
      ],
    );
    assert.deepEqual(audit.map((row) => row.detail), [{}, body, { price: 5 }, { maxPerUser: 1 }, body]);
    for (let i = 1; i < audit.length; i++) {
      assert.ok(audit[i - 1].id > audit[i].id);
      assert.ok(audit[i - 1].at >= audit[i].at);
    }
    assert.ok(Math.abs(Date.parse(audit[0].at) - Date.now()) < 60000);
  });

  test('comes in pages that together are the whole, also when rows are added between pages', async () => {
    for (let i = 0; i < 25; i++) await kept.admin('PUT', `/admin/events/P/${i}`, concert());
    const whole = (await page('?limit=1000')).audit.map((row) => row.id);
    for (const limit of [1, 7, 10]) {
      const seen = [];
      let next = 0;
      do {
        const part = await page(`?limit=${limit}${next ? `&before=${next}` : ''}`);
        assert.ok(part.audit.length <= limit);
        seen.push(...part.audit.map((row) => row.id));
        next = part.next;
        if (seen.length === limit) await kept.admin('PUT', '/admin/events/P/new', concert());
      } while (next);
      assert.deepEqual(seen.filter((id) => id <= whole[0]), whole, `limit ${limit}`);
    }
    assert.ok((await page(`?before=${whole[3]}`)).audit.every((row) => row.id < whole[3]));
  });

  test('says what is wrong with its parameters', async () => {
    for (const query of ['limit=0', 'limit=1001', 'limit=x', 'before=0', 'before=-1', 'before=x', 'before='])
      assert.match(assertProblem(await kept.admin('GET', `/admin/audit?${query}`), 400, 'invalid_parameter').detail, new RegExp(`^${query.split('=')[0]} must be`));
  });
});

describe('other origins and other listeners', () => {
  const cors = (answer) => Object.keys(answer.headers).filter((name) => name.startsWith('access-control'));

  test('CORS: an allowed origin may read answers and ask ahead; no other may', async () => {
    const open = await start({ args: ['--cors-origins', 'https://shop.example, https://www.shop.example'] });
    try {
      await open.admin('PUT', '/admin/events/A/1', concert());
      for (const origin of ['https://shop.example', 'https://www.shop.example']) {
        for (const target of ['/events/A/1', '/nothing', '/admin/audit']) {
          const answer = await open.call('GET', target, { headers: { origin } });
          assert.equal(answer.headers['access-control-allow-origin'], origin, target);
          for (const name of ['X-Request-Id', 'X-Queue-Token', 'Retry-After', 'Location', 'Idempotency-Replayed'])
            assert.ok(answer.headers['access-control-expose-headers'].split(', ').includes(name), name);
          assert.equal(answer.headers['access-control-allow-credentials'], 'true', 'cookies are sent along');
          assert.match(answer.headers.vary, /Origin/);
        }
        const ahead = await open.call('OPTIONS', '/admin/events/A/1', {
          headers: { origin, 'access-control-request-method': 'PATCH', 'access-control-request-headers': 'authorization' },
        });
        assert.equal(ahead.status, 204);
        assert.match(ahead.headers['access-control-allow-methods'], /PATCH/);
        assert.match(ahead.headers['access-control-allow-headers'], /Authorization/);
        assert.ok(Number(ahead.headers['access-control-max-age']) > 0);
        assert.equal(ahead.headers['access-control-allow-credentials'], 'true');
      }
      for (const origin of ['https://evil.example', 'http://shop.example', 'https://shop.example.evil', 'null', 'https://shop.example, https://www.shop.example', '*']) {
        for (const method of ['GET', 'OPTIONS']) {
          const answer = await open.call(method, '/events/A/1', { headers: { origin } });
          assert.deepEqual(cors(answer), [], origin);
          assert.match(answer.headers.vary, /Origin/, 'a cache must keep them apart');
        }
      }
      assert.match((await open.call('GET', '/events/A/1')).headers.vary, /Origin/);
    } finally {
      await open.stop();
    }
  });

  test('CORS: * allows every origin; by default none is', async () => {
    const any = await start({ args: ['--cors-origins', '*'] });
    try {
      const answer = await any.call('GET', '/health', { headers: { origin: 'https://any.example' } });
      assert.equal(answer.headers['access-control-allow-origin'], 'https://any.example');
      assert.equal(answer.headers['access-control-allow-credentials'], undefined, 'never for every page of the world');
      const none = await server.call('GET', '/health', { headers: { origin: 'https://any.example' } });
      assert.deepEqual(cors(none), []);
      assert.equal(none.headers.vary, undefined);
    } finally {
      await any.stop();
    }
  });

  test('with --admin-listen the admin paths are there, and only there', async () => {
    const two = await start({ args: ['--admin-listen', '127.0.0.1:0'] });
    try {
      const port = Number(/listening for the admin" addr=127\.0\.0\.1:(\d+)/.exec(two.stderr)[1]);
      assert.notEqual(port, two.port);
      const headers = { authorization: `Bearer ${two.adminKey}` };
      const admin = { port };
      for (const [method, target, body] of [
        ['PUT', '/admin/events/A/1', concert()],
        ['GET', '/admin/events/A/1'],
        ['PATCH', '/admin/events/A/1', {}],
        ['GET', '/admin/audit'],
        ['OPTIONS', '/admin/audit'],
        ['DELETE', '/admin/events/A/2'],
      ]) {
        assertProblem(await two.call(method, target, { body, headers }), 404, 'not_found');
        assertProblem(await two.call(method, target, { body }), 404, 'not_found');
      }
      assert.equal((await call(admin, 'PUT', '/admin/events/A/1', { body: concert(), headers })).status, 201);
      assertProblem(await call(admin, 'GET', '/admin/audit'), 401, 'admin_key_required');
      for (const node of two.nodes) await until('it is known', async () => (await node.call('GET', '/events/A/1')).status === 200);
      assert.equal((await call(admin, 'GET', '/health')).status, 200);
    } finally {
      await two.stop();
    }
  });

  test('a key of one’s own is used, and none is made', async () => {
    const folder = fs.mkdtempSync(path.join(path.dirname(server.dataDir), 'key-'));
    const file = path.join(folder, 'key');
    fs.writeFileSync(file, 'my own admin key 1234\n', { mode: 0o600 });
    const own = await start({ args: ['--admin-key-file', file] });
    try {
      assert.equal(own.adminKey, null);
      const withKey = (key) => own.call('GET', '/admin/audit', { headers: { authorization: `Bearer ${key}` } });
      assert.equal((await withKey('my own admin key 1234')).status, 200);
      assert.equal((await withKey('my own admin key 1235')).status, 401);
    } finally {
      await own.stop();
    }
  });
});
