// /openapi.json, the router and docs/api.md describe the same paths.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { start } from './support/server.mjs';

const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

/** "GET /events/{type}/{id}" for every row of the router's table. */
function routes() {
  const rows = [...read('src/api/router.c').matchAll(/\{HTTP_(\w+), (\w+), "([^"]+)"/g)];
  return rows.map(([, method, key, path]) => ({ key: `${method} ${path}`, admin: key.startsWith('NEEDS_'), ignored: key === 'KEYLESS' }));
}

test('the document, the router and docs/api.md list the same paths', async () => {
  const server = await start();
  try {
    const document = await (await fetch(`${server.url}/openapi.json`)).json();
    const documented = [];
    for (const [path, item] of Object.entries(document.paths))
      for (const method of ['get', 'put', 'post', 'patch', 'delete'])
        if (item[method]) documented.push(`${method.toUpperCase()} ${path}`);
    const routed = routes();
    assert.ok(routed.length >= 12);
    assert.deepEqual(documented.sort(), routed.map((r) => r.key).sort());
    const prose = read('docs/api.md');
    for (const { key } of routed) {
      const [method, path] = key.split(' ');
      const row = new RegExp(`\\| ${method} \`${path.replace(/[{}.]/g, '\\$&')}[?\`]`);
      assert.match(prose, row, `${key} is not in docs/api.md`);
    }
  } finally {
    await server.stop();
  }
});

test('admin paths, and only they, ask for the key in document and program', async () => {
  // Streams end, too, before long.
  const server = await start({ args: ['--sse-max-seconds', '1', '--sse-heartbeat-seconds', '1'] });
  try {
    const document = await (await fetch(`${server.url}/openapi.json`)).json();
    for (const { key, admin, ignored } of routes()) {
      const [method, path] = key.split(' ');
      const item = document.paths[path][method.toLowerCase()];
      assert.equal(item.security?.every((way) => 'adminKey' in way) ?? false, admin, key);
      const real = path.replace('{type}', 'CONCERT').replace('{id}', '1').replace('{section}', 'A');
      const answer = await fetch(server.url + real, { method });
      const refused = (await answer.text()).includes('"admin_key_required"');
      assert.equal(refused, admin, `${key} answered ${answer.status}`);
      // Other roles, and an address that has sent wrong keys.
      if (admin) assert.deepEqual(['403' in item.responses, '429' in item.responses], [true, true], key);
      if (ignored) assert.ok(!item.security?.some((way) => 'adminKey' in way), key);
    }
  } finally {
    await server.stop();
  }
});

test('every operation that is limited by address says that it may be answered with 429', () => {
  const { paths } = JSON.parse(read('docs/openapi.json'));
  for (const [path, item] of Object.entries(paths)) {
    const isFree = /^\/(gate\/|health|ready)/.test(path);
    for (const method of ['get', 'put', 'post', 'patch', 'delete'])
      if (item[method]) assert.equal('429' in item[method].responses, !isFree, `${method} ${path}`);
  }
});

test('every operation says that it may be answered with 503, and when to ask again', () => {
  const { paths, components } = JSON.parse(read('docs/openapi.json'));
  for (const { key } of routes()) {
    const [method, path] = key.split(' ');
    const answer = paths[path][method.toLowerCase()].responses['503'];
    assert.ok(answer, key);
    const { headers } = components.responses[answer.$ref?.split('/').at(-1)] ?? answer;
    assert.ok(headers?.['Retry-After'], `${key}: Retry-After`);
  }
});

test('the limits in the document are those of the source', () => {
  const document = JSON.parse(read('docs/openapi.json'));
  const limits = read('src/core/limits.h');
  const limit = (name) => Number(limits.match(new RegExp(`${name} (?:INT64_C\\()?(\\d+)`))[1]);
  const { Queue, Section, NewEvent, NewPage, Page, Hold } = document.components.schemas;
  assert.equal(Queue.properties.maxWaiting.maximum, limit('MAX_WAITING_MAX'));
  assert.equal(Queue.properties.maxActive.maximum, limit('MAX_ACTIVE_MAX'));
  assert.equal(Queue.properties.entryBatchSize.maximum, limit('ENTRY_BATCH_MAX'));
  assert.equal(Queue.properties.entryIntervalSeconds.maximum, limit('ENTRY_INTERVAL_S_MAX'));
  assert.equal(Queue.properties.activeTtlSeconds.maximum, limit('ACTIVE_TTL_S_MAX'));
  assert.equal(Queue.properties.graceSeconds.maximum, limit('GRACE_S_MAX'));
  assert.equal(Queue.properties.tokenTtlSeconds.maximum, limit('TOKEN_TTL_S_MAX'));
  assert.equal(Section.properties.capacity.maximum, limit('SECTION_CAPACITY_MAX'));
  assert.equal(Section.properties.price.maximum, limit('PRICE_MAX'));
  assert.equal(NewEvent.properties.holdSeconds.maximum, limit('HOLD_S_MAX'));
  assert.equal(NewEvent.properties.maxPerUser.maximum, limit('PER_USER_MAX'));
  assert.equal(NewEvent.properties.reholdSeconds.maximum, limit('REHOLD_S_MAX'));
  assert.equal(NewEvent.properties.maxHoldsPerStay.maximum, limit('HOLDS_PER_STAY_MAX'));
  for (const { properties } of [Page, NewPage]) {
    const { texts } = properties;
    assert.equal(properties.name.maxLength, limit('PAGE_NAME_CHARS_MAX'));
    assert.equal(properties.logo.maxLength, limit('PAGE_LOGO_BYTES_MAX'));
    assert.equal(texts.maxProperties, limit('PAGE_LANGUAGES_MAX'));
    assert.equal(texts.additionalProperties.maxProperties, limit('PAGE_TEXTS_MAX'));
    assert.equal(texts.additionalProperties.propertyNames.maxLength, limit('PAGE_TEXT_KEY_BYTES_MAX'));
    assert.equal(texts.additionalProperties.additionalProperties.maxLength, limit('PAGE_TEXT_CHARS_MAX'));
  }
  assert.equal(NewEvent.properties.returnHosts.maxItems, limit('RETURN_HOSTS_MAX'));
  assert.equal(NewEvent.properties.returnHosts.items.maxLength, limit('RETURN_HOST_BYTES_MAX'));
  assert.equal(NewEvent.properties.notice.maxLength, limit('NOTICE_CHARS_MAX'));
  assert.equal(NewEvent.properties.sections.maxItems, limit('EVENT_SECTIONS_MAX'));
  assert.equal(Hold.properties.quantity.maximum, limit('PER_USER_MAX'));
  assert.equal(Hold.properties.seats.maxItems, limit('PER_USER_MAX'));
  assert.equal(Hold.properties.seats.items.maximum, limit('SECTION_CAPACITY_MAX'));
});
