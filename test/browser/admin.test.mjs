// The admin page in a browser: signing in, creating and changing events, charts, controls, roles.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import path from 'node:path';
import { WaitingRoom, eachOf, keepAlive, users } from '../e2e/support/queue.mjs';
import { concert, isCluster, removeFolder, run, start, tempFolder, test, times, until } from '../e2e/support/server.mjs';
import { Stream } from '../e2e/support/sse.mjs';
import { DESKTOP, PHONE, assertAccessible, assertFits, launchBrowser, shoot, visit } from './support/browser.mjs';

let server;
let browser;
let folder;
const keys = {}; // by role

before(async () => {
  folder = tempFolder();
  const file = path.join(folder, 'keys');
  for (const role of ['read', 'operate', 'shop']) keys[role] = run(['keys', 'add', `the-${role}`, role, '--keys-file', file]).stdout.trim();
  server = await start({ args: ['--keys-file', file, '--users-auth', 'trusted'] });
  browser = await launchBrowser();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  removeFolder(folder);
});

async function signIn(page, key) {
  await page.locator('#key').fill(key);
  await page.locator('#sign-in-form button').click();
}

async function inside(options = {}, key = server.adminKey, hash = '') {
  const visitor = await visit(browser, server.url, options);
  visitor.page = await visitor.open(`/admin?lang=${options.language ?? 'en'}${hash}`);
  await signIn(visitor.page, key);
  await visitor.page.locator('#inside').waitFor();
  return visitor;
}

// A refused change is part of the API, too, though Chromium logs it.
function leave(visitor) {
  visitor.errors = visitor.errors.filter((one) => !/status of 4(12|22) /.test(one));
  return visitor.close();
}

const field = (page, label, within = page) => within.getByLabel(label, { exact: true });
// The text of the error that belongs to an input.
const errorOf = async (page, input) => page.locator(`#${(await input.getAttribute('aria-describedby')).split(' ').at(-1)}`).textContent();
// The number in the figure with that label.
const figureOf = async (page, label) => {
  const shown = page.locator('.figures > div').filter({ has: page.getByText(label, { exact: true }) }).locator('dd');
  return Number((await shown.textContent()).replace(/\D/g, ''));
};
const put = async (name, more = {}) => assert.equal((await server.admin('PUT', `/admin/events/${name}`, concert(more))).status, 201);
const get = async (name) => (await server.admin('GET', `/admin/events/${name}`)).json;

test('a wrong key is refused where it was entered; the right one is kept in memory only', async () => {
  const visitor = await visit(browser, server.url, { size: PHONE });
  const page = await visitor.open('/admin');
  await assertAccessible(page, 'signing in');
  await assertFits(page, 'signing in');
  await shoot(page, 'admin-sign-in-phone');
  for (const wrong of ['', 'wrong', 'schlüssel']) {
    await signIn(page, wrong);
    await until('the error is shown', async () => (await page.locator('#key-error').textContent()) !== '');
    assert.equal(await page.locator('#key').getAttribute('aria-invalid'), 'true');
    assert.ok(await page.evaluate(() => document.activeElement.id === 'key'));
  }
  await until('the address may send a key again', async () => {
    await signIn(page, server.adminKey);
    await page.locator('#inside:not([hidden]), #key-error:not(:empty)').waitFor();
    return page.locator('#inside').isVisible();
  });
  const kept = await page.evaluate(() => JSON.stringify([location.href, { ...localStorage }, { ...sessionStorage }, document.cookie, document.documentElement.outerHTML]));
  assert.ok(!kept.includes(server.adminKey), 'the key is nowhere in the page');
  await page.locator('#sign-out').click();
  assert.ok(await page.locator('#sign-in').isVisible());
  await page.reload();
  assert.ok(await page.locator('#sign-in').isVisible());
  await leave(visitor);
});

for (const [language, size] of [['en', DESKTOP], ['ko', PHONE]]) {
  const on = `${language}-${size === PHONE ? 'phone' : 'desktop'}`;
  test(`an event is created and edited by the form, and mistakes are shown at their fields (${on})`, async () => {
    const id = `made-${on}`;
    const visitor = await inside({ language, size });
    const { page } = visitor;
    const labels = JSON.parse(await page.locator('#texts').textContent());
    await page.getByRole('button', { name: labels['admin.events.new'] }).click();
    const the = (name) => field(page, labels[`admin.field.${name}`]);
    const submit = () => page.locator('.event-form [type=submit]').click();
    await page.locator('.event-form').waitFor();
    await submit();
    const idField = field(page, labels['admin.field.eventId'], page.locator('.group').first());
    assert.equal(await errorOf(page, idField), labels['admin.form.required']);
    await idField.fill(id);
    await the('title').fill('<b>"Night" & día</b> של לילה');
    await field(page, labels['admin.field.section.id'], page.locator('.section-row')).fill('A');
    await the('section.capacity').fill('50');
    await the('queue.maxActive').fill('0');
    await submit();
    await until('the field is marked', async () => (await errorOf(page, the('queue.maxActive'))) !== '');
    assert.match(await errorOf(page, the('queue.maxActive')), /queue\.maxActive must be a whole number from 1 to/);
    await assertAccessible(page, 'a form with a mistake');
    await assertFits(page, 'the form');
    await shoot(page, `admin-form-mistake-${on}`);
    await the('queue.maxActive').fill('5');
    await the('section.capacity').fill('many');
    await submit();
    await until('the section is marked', async () => /sections\[0\]\.capacity/.test(await errorOf(page, the('section.capacity'))));
    await the('section.capacity').fill('50');
    await submit();
    await page.locator('.one-event .panel').first().waitFor();
    assert.equal(await page.locator('.one-event h2').textContent(), '<b>"Night" & día</b> של לילה');
    const made = await get(`CONCERT/${id}`);
    assert.deepEqual([made.queue.maxActive, made.sections[0].capacity, made.state], [5, 50, 'OPEN']);

    await page.getByRole('button', { name: labels['admin.event.edit'] }).click();
    await page.locator('.event-form').waitFor();
    await the('title').fill('Another title');
    await the('opensAt').fill('2026-01-01T10:00:00');
    await submit();
    await page.locator('.one-event .panel').first().waitFor();
    const edited = await get(`CONCERT/${id}`);
    assert.equal(edited.title, 'Another title');
    assert.ok(edited.opensAt.startsWith('2026-01-01T') || edited.opensAt.startsWith('2025-12-31T'), edited.opensAt);
    assert.equal(edited.queue.maxActive, 5, 'what was not edited stays');

    await page.evaluate(() => (location.hash = '#/new'));
    await page.locator('.event-form').waitFor();
    await idField.fill(id);
    await the('title').fill('Twice');
    await field(page, labels['admin.field.section.id'], page.locator('.section-row')).fill('A');
    await the('section.capacity').fill('1');
    await submit();
    await until('it exists already', async () => (await errorOf(page, idField)) !== '');
    assert.equal((await get(`CONCERT/${id}`)).title, 'Another title', 'an event is not overwritten by creating it');
    await leave(visitor);
  });

  test(`charts move while users come, and the controls do what they say (${on})`, async () => {
    const id = `LIVE/${on}`;
    await put(id, { queue: { maxActive: 3, entryBatchSize: 1 }, confirmBy: 'user', sections: [{ id: 'A', name: 'Floor', capacity: 60, price: 90000 }, { id: 'B', capacity: 20 }] });
    const room = new WaitingRoom(server, id);
    const visitor = await inside({ language, size });
    const { page } = visitor;
    const labels = JSON.parse(await page.locator('#texts').textContent());
    await page.locator(`a[href="#/event/${id}"]`).click();
    await page.locator('.panel').first().waitFor();
    const drawn = () => page.locator('.chart path').evaluateAll((paths) => paths.map((one) => one.getAttribute('d')));
    const numbers = () => page.locator('.chart').first().locator('.chart-number').allTextContents();
    await until('the charts begin', async () => (await drawn())[0]?.length > 0);
    const before = await drawn();
    await room.enterAll(users(12));
    await until('the users are shown', async () => (await numbers()).join() === '9,3');
    await until('the line has moved', async () => (await drawn())[0] !== before[0] && (await drawn())[0].split('L').length > 3);
    await assertAccessible(page, 'one event');
    await assertFits(page, 'one event');
    await shoot(page, `admin-event-${on}`);

    const action = (verb) => page.getByRole('button', { name: labels[`admin.action.${verb}`], exact: true });
    await action('pause').click();
    await until('it is paused', async () => (await get(id)).state === 'PAUSED');
    await until('the page shows it', async () => (await page.locator('.one-event .badge').textContent()) === labels['admin.state.PAUSED']);
    assert.ok(await action('pause').isDisabled());
    await action('resume').click();
    await until('it is open', async () => (await get(id)).state === 'OPEN');

    const batch = field(page, labels['admin.field.queue.entryBatchSize']);
    const save = page.locator('.panel form').filter({ has: batch }).locator('[type=submit]');
    await batch.fill('0');
    await save.click();
    await until('the mistake is shown', async () => /entryBatchSize must be/.test(await errorOf(page, batch)));
    await batch.fill('7');
    await save.click();
    await until('the batch is changed', async () => (await get(id)).queue.entryBatchSize === 7);
    await until('the mistake is gone', async () => (await errorOf(page, batch)) === '');

    await action('deactivate').click();
    await page.locator('dialog').waitFor();
    await assertAccessible(page, 'a question', { schemes: ['light'] });
    await page.getByRole('button', { name: labels['admin.no'] }).click();
    assert.equal((await get(id)).state, 'OPEN', 'nothing is done before the answer');
    await action('deactivate').click();
    await page.locator('dialog').getByRole('button', { name: labels['admin.action.deactivate'] }).click();
    await until('it is closed', async () => (await get(id)).state === 'CLOSED');

    const status = page.getByLabel(`${labels['admin.field.section.status']}: Floor`);
    await status.selectOption('maintenance');
    await page.locator('dialog').getByRole('button', { name: labels['admin.yes'] }).click();
    await until('the section is closed', async () => (await get(id)).sections[0].status === 'maintenance');

    const notice = field(page, labels['admin.field.notice']);
    await notice.fill('Five more minutes, please. <script>alert(1)</script>');
    await page.getByRole('button', { name: labels['admin.notice.send'] }).click();
    await until('the notice is answered', async () => (await page.locator('.panel').filter({ has: notice }).locator('.outcome').textContent()) !== '');
    if ('notice' in (await get(id))) assert.equal((await get(id)).notice, 'Five more minutes, please. <script>alert(1)</script>');
    await shoot(page, `admin-controls-${on}`);

    await page.getByRole('link', { name: labels['admin.nav.audit'] }).click();
    await page.locator('.audit-table tbody tr').first().waitFor();
    const acts = await page.locator('.audit-table tbody tr').allTextContents();
    for (const act of ['queue.pause', 'queue.resume', 'queue.deactivate', 'queue.patch', 'section.patch']) assert.ok(acts.some((row) => row.includes(act) && row.includes(id)), act);
    await assertAccessible(page, 'the audit trail');
    await assertFits(page, 'the audit trail');
    await shoot(page, `admin-audit-${on}`);

    await page.getByRole('link', { name: labels['admin.nav.events'] }).click();
    await page.locator('.events-table').waitFor();
    await assertAccessible(page, 'the list');
    await assertFits(page, 'the list');
    await shoot(page, `admin-events-${on}`);
    await leave(visitor);
  });
}

test('the audit trail is read page by page', async () => {
  await put('PAGES/1');
  await eachOf(Array.from({ length: 60 }), 1, (_, i) => server.admin('PATCH', '/admin/queue/PAGES/1', { maxWaiting: 100 + i }));
  const visitor = await inside({}, server.adminKey, '#/audit');
  const rows = visitor.page.locator('.audit-table tbody tr');
  await until('the first page', async () => (await rows.count()) === 50);
  await visitor.page.getByRole('button', { name: 'Show older' }).click();
  await until('the second page', async () => (await rows.count()) > 50);
  await leave(visitor);
});

test('what a key may not do is disabled, with the reason', async () => {
  await put('ROLE/1');
  const reader = await inside({}, keys.read, '#/event/ROLE/1');
  await reader.page.locator('.panel').first().waitFor();
  assert.ok(await reader.page.getByRole('button', { name: 'Pause' }).isDisabled());
  assert.ok(await reader.page.getByRole('button', { name: 'Edit' }).isDisabled());
  assert.match(await reader.page.locator('#operate-why').textContent(), /role “read”.*role “operate”/);
  assert.equal(await reader.page.getByRole('button', { name: 'Delete' }).count(), 0);
  await assertAccessible(reader.page, 'an event for a reader');
  await shoot(reader.page, 'admin-reader');
  await leave(reader);

  const operator = await inside({}, keys.operate, '#/event/ROLE/1');
  await operator.page.locator('.panel').first().waitFor();
  assert.ok(await operator.page.getByRole('button', { name: 'Pause' }).isEnabled());
  assert.ok(await operator.page.getByLabel('Mode: A').isDisabled());
  assert.ok(await operator.page.getByLabel('Status: A').isEnabled());
  await leave(operator);

  const shop = await visit(browser, server.url);
  const page = await shop.open('/admin');
  await signIn(page, keys.shop);
  await until('it is refused', async () => /has the role shop/.test(await page.locator('#key-error').textContent()));
  await shop.close();
});

test('a demo server sends a crowd, which is seen to wait and buy; other servers do not show the panel', async () => {
  const plain = await inside();
  assert.ok(await plain.page.locator('#nav-simulator').isHidden());
  await leave(plain);
  const own = await start({ args: ['--demo'] });
  const visitor = await visit(browser, own.url);
  const page = await visitor.open('/admin?lang=en');
  await signIn(page, own.adminKey);
  await page.locator('#nav-simulator').click();
  const start_ = page.getByRole('button', { name: 'Send the crowd' });
  const stop = page.getByRole('button', { name: 'Stop' });
  await until('no crowd is there', () => stop.isDisabled());
  await page.getByLabel('Event', { exact: true }).selectOption('CONCERT/1');
  for (const [label, value] of [['Arrivals per second', 40], ['People', 150], ['Time to think, seconds', 0], ['Buyers, percent', 100]])
    await page.getByLabel(label, { exact: true }).fill(String(value));
  await assertAccessible(page, 'the simulator');
  await assertFits(page, 'the simulator');
  await start_.click();
  await until('somebody has bought', async () => (await figureOf(page, 'Bought')) > 0);
  assert.ok(await start_.isDisabled() && (await page.getByLabel('People', { exact: true }).isDisabled()));
  await shoot(page, 'admin-simulator');
  const slider = page.getByLabel('Arrivals per second', { exact: true });
  await slider.fill('100');
  await slider.dispatchEvent('change');
  await until('the server has it', async () => (await own.admin('GET', '/admin/simulator')).json.arrivalsPerSecond === 100);
  await page.getByRole('link', { name: 'Watch the event' }).click();
  await until('the seats are seen to be sold', async () => Number((await page.locator('.chart').last().locator('.chart-number').allTextContents())[0]?.replace(/\D/g, '')) > 60);
  const seats = page.locator('.chart svg').last();
  await seats.scrollIntoViewIfNeeded();
  const lowest = await seats.evaluate((chart) => {
    const { right, bottom } = chart.getBoundingClientRect();
    return document.elementFromPoint(right - 3, bottom - 3).getAttribute('class');
  });
  assert.equal(lowest, 'area confirmed', 'the seats that are sold, below the others');
  await shoot(page, 'admin-crowd');
  await page.locator('#nav-simulator').click();
  await until('the crowd is shown', () => stop.isEnabled());
  await stop.click();
  await until('the crowd has gone', async () => (await own.admin('GET', '/admin/simulator')).json.running === false);
  await until('the page shows it', () => start_.isEnabled());
  await leave(visitor);
  await own.stop();
});

const STREAMS = times(5000);
test(`${STREAMS} streams of people who wait are open while the page shows the event`, async () => {
  const others = (await server.admin('GET', '/admin/stats')).json.totals.waiting;
  const room = await WaitingRoom.open(server, 'CROWD/1', { maxActive: 1, graceSeconds: 3600 });
  const agent = keepAlive(32);
  const first = await room.enter('first');
  const waiting = await eachOf(users(STREAMS, 'crowd'), 32, (user) => room.enter(user, { agent }));
  agent.release();
  const visitor = await inside({ size: DESKTOP }, keys.read);
  const page = visitor.page;
  const { nodes } = server;
  const streams = await eachOf(waiting, 64, (place, i) => Stream.at(nodes[i % nodes.length], `/queue/${room.name}/subscribe/${place.entryToken}`));
  const ofNode = Math.floor(STREAMS / nodes.length);
  await until('the page counts the streams of its node', async () => (await figureOf(page, 'Live streams')) >= ofNode);
  await until('the page counts the people', async () => (await figureOf(page, 'Waiting')) === others + STREAMS);
  assert.equal((await room.leave(first.entryToken)).status, 204);
  await until('the next one is told', () => streams.some(({ last }) => last?.data.status === 'ACTIVE'));
  await until('the page shows one less', async () => (await figureOf(page, 'Waiting')) === others + STREAMS - 1);
  for (const stream of streams) stream.destroy();
  await until('the page counts them out', async () => (await figureOf(page, 'Live streams')) < ofNode);
  await leave(visitor);
});

test('many events with long titles and large numbers fit; the page survives a restart of the server', async () => {
  const own = await start({ dataDir: path.join(folder, 'long') });
  await eachOf(Array.from({ length: 120 }), 4, (_, i) => own.admin('PUT', `/admin/events/LONG/${i}`, concert({ title: `${'A very long title of a concert '.repeat(6)}${i}`.slice(0, 180), sections: [{ id: 'A', capacity: i < 3 ? 900000 : 7 }] })));
  const visitor = await visit(browser, own.url, { lost: true });
  const page = await visitor.open('/admin');
  await signIn(page, own.adminKey);
  await until('a hundred rows', async () => (await page.locator('.events-table tbody tr').count()) === 100);
  await assertAccessible(page, 'many events', { schemes: ['light'] });
  for (const width of [320, 768, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    await assertFits(page, `many events at ${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  await shoot(page, 'admin-many');
  if (isCluster) {
    // A node has its port for itself, so the test can't start two on the one that the page knows.
    await leave(visitor);
    await own.stop();
    return;
  }
  await own.stop();
  await until('the loss is shown', () => page.locator('#connection').isVisible());
  const again = await start({ dataDir: path.join(folder, 'long'), listen: `127.0.0.1:${own.port}` });
  await until('it is connected again', async () => !(await page.locator('#connection').isVisible()));
  await leave(visitor);
  await again.stop();
});
