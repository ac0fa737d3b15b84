// The waiting room in Chromium: taking a place, waiting, coming back, being admitted, and what it
// says in every other state.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';

import { freePort } from '../e2e/support/nginx.mjs';
import { startSigned, jwt } from '../e2e/support/jwt.mjs';
import { WaitingRoom, bearer } from '../e2e/support/queue.mjs';
import { isCluster, removeFolder, start, tempFolder, test, until } from '../e2e/support/server.mjs';
import { DESKTOP, PHONE, assertAccessible, assertFits, launchBrowser, shoot, speaker, visit } from './support/browser.mjs';

let browser;
let server;

before(async () => {
  browser = await launchBrowser();
  server = await start();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const SALE = { sections: [{ id: 'A', name: 'Floor', capacity: 40, price: 150000 }], confirmBy: 'user' };
const position = async (page) => Number(await page.locator('[data-part=position]').textContent());
const progress = async (page) => Number(await page.locator('[role=progressbar]').getAttribute('aria-valuenow'));
const headline = (page, what) => page.getByRole('heading', { name: what, exact: true }).waitFor();

// A room with so many people before the visitor; the first of them is admitted.
async function crowdedRoom(name, count, more = {}, at = server) {
  const room = await WaitingRoom.open(at, name, { maxActive: 1, ...more.queue }, { ...SALE, ...more.event });
  const others = [];
  for (let i = 0; i < count; i++) others.push((await room.enter(`other-${i}`)).entryToken);
  return { room, others };
}

async function takePlace(page, say) {
  await page.getByRole('button', { name: say('event.enter.button') }).click();
  await page.locator('[data-part=position]').waitFor();
}

describe('waiting', () => {
  for (const [language, size, sizeName] of [['en', DESKTOP, 'desktop'], ['ko', PHONE, 'phone']])
    test(`the place falls until it is this person's turn (${language}, ${sizeName})`, async () => {
      const say = speaker(language);
      const name = `FALLS/${language}`;
      const { room, others } = await crowdedRoom(name, 3);
      const visitor = await visit(browser, server.url, { language, size });
      const page = await visitor.open(`/e/${name}`);
      const at = async (state) => {
        await assertFits(page, state);
        await assertAccessible(page, state);
        await shoot(page, `${state}-${language}-${sizeName}`);
      };
      assert.equal(await page.getAttribute('html', 'lang'), language);
      await at('enter');
      await takePlace(page, say);
      assert.equal(await position(page), 3);
      assert.equal(await page.locator('[data-part=ahead]').textContent(), say('event.waiting.ahead', { count: 2 }));
      assert.equal(await page.locator('[data-part=wait]').textContent(), say('event.wait.unknown'), 'a lower bound of a second is no estimate');
      await at('waiting');
      const bars = [await progress(page)];
      for (const [index, expected] of [[0, 2], [1, 1]]) {
        await room.leave(others[index]);
        await until(`position ${expected}`, async () => (await position(page)) === expected);
        bars.push(await progress(page));
        assert.match(await page.title(), new RegExp(`^${expected} `));
      }
      assert.equal(await page.locator('[data-part=ahead]').textContent(), say('event.waiting.next'));
      assert.deepEqual(bars, bars.toSorted((a, b) => a - b), 'the bar never goes back');
      assert.ok(bars[2] > bars[0]);
      await room.leave(others[2]);
      await headline(page, say('seats.title'));
      assert.ok((await page.title()).startsWith(say('event.turn.mark')));
      assert.equal(await page.locator('#alarm').textContent(), say('event.turn.title'));
      await visitor.close();
    });

  test('reload, back and a closed tab keep the place, and the bar as far as it was', async () => {
    const say = speaker('en');
    const { room, others } = await crowdedRoom('KEEPS/1', 4);
    const visitor = await visit(browser, server.url);
    let page = await visitor.open('/e/KEEPS/1');
    await takePlace(page, say);
    await room.leave(others[0]);
    await until('position 3', async () => (await position(page)) === 3);
    const bar = await progress(page);
    assert.equal(bar, 50, 'one of three people ahead has gone');
    const isKept = async () => {
      await until('the same place', async () => (await page.locator('[data-part=position]').count()) === 1 && (await position(page)) === 3);
      assert.ok((await progress(page)) >= bar);
    };
    await page.reload();
    await isKept();
    await page.goto('/');
    await page.goBack();
    await isKept();
    await page.close();
    page = await visitor.open('/e/KEEPS/1');
    await isKept();
    assert.equal((await room.numbers()).waiting, 3);
    await visitor.close();
  });

  test('the server restarts in the middle: the page recovers by itself', { skip: isCluster }, async () => {
    const say = speaker('en');
    const dataDir = tempFolder();
    const listen = `127.0.0.1:${await freePort()}`;
    const first = await start({ dataDir, listen });
    const { others } = await crowdedRoom('RESTART/1', 2, {}, first);
    const visitor = await visit(browser, first.url, { lost: true });
    const page = await visitor.open('/e/RESTART/1');
    await takePlace(page, say);
    await first.stop();
    await page.getByText(say('event.connection.lostKept')).waitFor();
    assert.equal(await position(page), 2, 'the last known place stays in sight');
    const second = await start({ dataDir, listen });
    await page.getByText(say('event.connection.back')).waitFor();
    const room = new WaitingRoom(second, 'RESTART/1');
    await room.leave(others[0]);
    await until('position 1', async () => (await position(page)) === 1);
    await room.leave(others[1]);
    await headline(page, say('seats.title'));
    await visitor.close();
    await second.stop();
    removeFolder(dataDir);
  });

  test('where streams do not get through, the page asks', async () => {
    const say = speaker('en');
    const { room, others } = await crowdedRoom('POLLS/1', 2);
    const visitor = await visit(browser, server.url, { lost: true });
    await visitor.context.route('**/subscribe/**', (route) => route.abort('connectionreset'));
    const page = await visitor.open('/e/POLLS/1');
    await takePlace(page, say);
    await room.leave(others[0]);
    await until('position 1', async () => (await position(page)) === 1);
    await visitor.close();
  });

  test('a live notice, a pause, and leaving', async () => {
    const say = speaker('en');
    const { room } = await crowdedRoom('NOTICE/1', 2);
    const visitor = await visit(browser, server.url, { size: PHONE });
    const page = await visitor.open('/e/NOTICE/1');
    await takePlace(page, say);
    const notice = 'Doors open at <b>8</b>';
    await room.patch({ notice });
    await page.getByText(notice).waitFor();
    await room.did('pause');
    await page.getByText(say('event.state.paused')).waitFor();
    await shoot(page, 'paused-en-phone');
    await assertAccessible(page, 'paused');
    await room.patch({ notice: null });
    await page.getByText(notice).waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: say('event.leave.button') }).click();
    await page.getByRole('button', { name: say('event.leave.no') }).click();
    assert.equal(await position(page), 2);
    await page.getByRole('button', { name: say('event.leave.button') }).click();
    await assertAccessible(page, 'the question before leaving');
    await page.getByRole('button', { name: say('event.leave.yes'), exact: true }).click();
    await headline(page, say('event.left.title'));
    assert.equal((await room.numbers()).waiting, 1);
    await visitor.close();
  });

  test('a place that was given up for silence is explained, and a new one is a click away', async () => {
    const say = speaker('en');
    await crowdedRoom('SILENT/1', 2, { queue: { graceSeconds: 1 } });
    const visitor = await visit(browser, server.url);
    let page = await visitor.open('/e/SILENT/1');
    await takePlace(page, say);
    await page.close();
    const room = new WaitingRoom(server, 'SILENT/1');
    await until('the place has ended', async () => (await room.numbers()).waiting === 0);
    page = await visitor.open('/e/SILENT/1');
    await headline(page, say('event.expired.title'));
    await assertAccessible(page, 'expired');
    await page.getByRole('button', { name: say('event.enter.again') }).click();
    await until('a new place, or admitted', async () => (await page.locator('[data-part=position], canvas').count()) > 0);
    await visitor.close();
  });

  test('sound and notification are asked for by a button, never at once', async () => {
    const say = speaker('en');
    const { room, others } = await crowdedRoom('ALERT/1', 1);
    const visitor = await visit(browser, server.url, { context: { permissions: ['notifications'] } });
    await visitor.context.addInitScript(() => {
      window.told = [];
      window.Notification = class extends EventTarget {
        static permission = 'default';
        static async requestPermission() {
          window.told.push('asked');
          return (this.permission = 'granted');
        }
        constructor(title) {
          super();
          window.told.push(title);
        }
      };
      const { start } = OscillatorNode.prototype;
      OscillatorNode.prototype.start = function (...when) {
        window.told.push('tone');
        return start.apply(this, when);
      };
    });
    const page = await visitor.open('/e/ALERT/1');
    await takePlace(page, say);
    const told = () => page.evaluate(() => window.told);
    assert.deepEqual(await told(), []);
    await page.getByRole('button', { name: say('event.alert.button') }).click();
    await page.getByText(say('event.alert.both')).waitFor();
    assert.deepEqual(await told(), ['asked']);
    await room.leave(others[0]);
    await headline(page, say('seats.title'));
    assert.deepEqual((await told()).toSorted(), ['asked', say('event.turn.title'), 'tone', 'tone'].toSorted());
    await visitor.close();
  });
});

describe('states', () => {
  test('a countdown, which takes the place at the opening', async () => {
    const say = speaker('en');
    const room = await WaitingRoom.open(server, 'SOON/1', { maxActive: 1 }, { ...SALE, opensAt: new Date(Date.now() + 3600000).toISOString() });
    const visitor = await visit(browser, server.url, { size: PHONE });
    const page = await visitor.open('/e/SOON/1');
    await page.getByText(say('event.before.opensIn')).waitFor();
    assert.match(await page.locator('[data-part=countdown]').textContent(), /^(59:\d\d|1:00:00)$/);
    await assertAccessible(page, 'countdown');
    await shoot(page, 'countdown-en-phone');
    const { status } = await server.admin('PATCH', '/admin/events/SOON/1', { opensAt: new Date(Date.now() + 4000).toISOString() });
    assert.equal(status, 200);
    await page.reload();
    await headline(page, say('seats.title'));
    assert.equal((await room.numbers()).active, 1);
    await visitor.close();
  });

  test('a moved opening: the countdown and its date follow; a long one stays on one line', async () => {
    const hours = (count) => new Date(Date.now() + count * 3600000).toISOString();
    await WaitingRoom.open(server, 'MOVED/1', {}, { ...SALE, opensAt: hours(20) });
    const visitor = await visit(browser, server.url, { size: { width: 320, height: 700 } });
    await visitor.context.clock.install();
    const page = await visitor.open('/e/MOVED/1');
    const countdown = page.locator('[data-part=countdown]');
    await page.waitForFunction(() => /^(19:59|20:00):\d\d$/.test(document.querySelector('[data-part=countdown]')?.textContent));
    const { height, line } = await countdown.evaluate((node) => ({ height: node.clientHeight, line: parseFloat(getComputedStyle(node).lineHeight) }));
    assert.ok(height < 1.5 * line, 'one line');
    const before = await page.locator('[data-part=opensAt]').textContent();
    const { status } = await server.admin('PATCH', '/admin/events/MOVED/1', { opensAt: hours(100) });
    assert.equal(status, 200);
    await page.clock.fastForward(61000);
    await page.waitForFunction(() => document.querySelector('[data-part=countdown]').textContent === '4 days');
    assert.notEqual(await page.locator('[data-part=opensAt]').textContent(), before);
    await visitor.close();
  });

  test('before a place is taken, the page says that nobody is admitted or no seat is free', async () => {
    const say = speaker('en');
    const room = await WaitingRoom.open(server, 'NONE/1', {}, { ...SALE, sections: [{ id: 'A', capacity: 2, price: 10 }] });
    const { entryToken } = await room.enter('ann');
    const visitor = await visit(browser, server.url);
    const page = await visitor.open('/e/NONE/1');
    await headline(page, say('event.enter.open.title'));
    const body = { eventType: 'NONE', eventId: '1', section: 'A', quantity: 2 };
    const { json } = await server.call('POST', '/reservations', { headers: bearer(entryToken), body });
    await page.reload();
    await headline(page, say('event.enter.allHeld.title'));
    await server.call('POST', `/reservations/${json.id}/confirm`, { headers: bearer(entryToken), body: {} });
    await page.reload();
    await headline(page, say('event.enter.soldOut.title'));
    await assertAccessible(page, 'sold out');
    await room.did('pause');
    await page.reload();
    await headline(page, say('event.enter.paused.title'));
    await visitor.close();
  });

  test('an answer about the event that comes after the place does not hide the place', async () => {
    const say = speaker('en');
    await crowdedRoom('LATE/1', 2);
    const visitor = await visit(browser, server.url);
    await visitor.context.clock.install();
    const page = await visitor.open('/e/LATE/1');
    const enter = page.getByRole('button', { name: say('event.enter.button') });
    await enter.waitFor();
    const held = [];
    await page.route('**/events/LATE/1', (route) => void held.push(route));
    await page.clock.fastForward(16000);
    await until('the page has asked', () => held.length > 0);
    await takePlace(page, say);
    const answered = page.waitForResponse('**/events/LATE/1');
    for (const route of held) await route.continue();
    await (await answered).finished();
    await page.evaluate(() => fetch('/health')); // what comes after it in the page has been done, too
    assert.equal(await position(page), 2);
    await visitor.close();
  });

  test('full, closed, draining, sold out and unknown events', async () => {
    const say = speaker('ko');
    await crowdedRoom('FULL/1', 2, { queue: { maxWaiting: 1 } });
    await WaitingRoom.open(server, 'CLOSED/1', {}, { ...SALE, state: 'CLOSED' });
    await WaitingRoom.open(server, 'DRAINING/1', {}, { ...SALE, state: 'DRAINING' });
    const visitor = await visit(browser, server.url, { language: 'ko', size: { width: 320, height: 700 } });
    const page = await visitor.open('/e/FULL/1');
    await page.getByRole('button', { name: say('event.enter.button') }).click();
    for (const [path, title] of [[null, 'full'], ['/e/CLOSED/1', 'closed'], ['/e/DRAINING/1', 'draining'], ['/e/NOBODY/1', 'notFound']]) {
      if (path) await page.goto(path);
      await headline(page, say(`event.${title}.title`));
      await assertFits(page, title);
      await assertAccessible(page, title);
      await shoot(page, `${title}-ko-320`);
    }
    await visitor.close();
  });

  test('a full queue: the page tries again by itself', async () => {
    const say = speaker('en');
    const { room, others } = await crowdedRoom('FULLAGAIN/1', 2, { queue: { maxWaiting: 1 } });
    const visitor = await visit(browser, server.url);
    const page = await visitor.open('/e/FULLAGAIN/1');
    await page.getByRole('button', { name: say('event.enter.button') }).click();
    await headline(page, say('event.full.title'));
    await room.leave(others[1]);
    await page.locator('[data-part=position]').waitFor();
    await visitor.close();
  });

  test('admitted in front of another site: the page goes on only where the event allows', async () => {
    const say = speaker('en');
    await WaitingRoom.open(server, 'RETURN/1', {}, { sections: [], returnHosts: ['shop.example'] });
    const visitor = await visit(browser, server.url);
    await visitor.context.route('https://shop.example/**', (route) => route.fulfill({ contentType: 'text/html', body: '<title>the shop</title>' }));
    for (const address of ['https://evil.example/', '//evil.example/', 'https://shop.example@evil.example/', 'javascript:alert(1)', 'https://shop.example:8443/']) {
      const page = await visitor.open(`/e/RETURN/1?rd=${encodeURIComponent(address)}`);
      await page.getByText(say('event.turn.notAllowed')).waitFor();
      if (address === '//evil.example/') await assertAccessible(page, 'turn');
      assert.equal(await page.locator('a[data-part=go]').isVisible(), false, address);
      await page.close();
    }
    for (const address of ['', '#top']) {
      const page = await visitor.open(`/e/RETURN/1?rd=${encodeURIComponent(address)}`);
      const enter = page.getByRole('button', { name: say('event.enter.button') });
      await enter.or(page.locator('.admitted')).waitFor();
      if (await enter.isVisible()) await enter.click();
      await headline(page, say('event.turn.title'));
      assert.equal(await page.locator('a[data-part=go]').isVisible(), false, 'no way that leads to this page again');
      await page.close();
    }
    const page = await visitor.open(`/e/RETURN/1?rd=${encodeURIComponent('https://shop.example/cart?id=1')}`);
    await page.getByRole('link', { name: say('event.turn.go') }).waitFor();
    await page.waitForURL('https://shop.example/cart?id=1');
    await visitor.close();
  });

  test('hostile titles, names and texts show as text', async () => {
    const hostile = ['<script>window.bad=1</script><img src=x onerror="window.bad=1">', '"quoted" \'single\' & {title} ${1}', 'שלום ‏עולם مرحبا', 'W'.repeat(200)];
    const visitor = await visit(browser, server.url, { size: { width: 320, height: 700 } });
    for (const [index, title] of hostile.entries()) {
      const name = `HOSTILE/${index}`;
      const page_ = { name: title.slice(0, 60), accent: '#ffee00', texts: { en: { 'event.enter.open.title': title } } };
      await WaitingRoom.open(server, name, { maxActive: 5 }, { title, notice: title, page: page_, sections: [{ id: 'A', name: title.slice(0, 50), capacity: 20, price: 10 ** 12 }, { id: 'B', name: 'B', capacity: 5 }] });
      const page = await visitor.open(`/e/${name}`);
      await page.locator('[data-part=enter]').waitFor();
      assert.equal(await page.locator('h1').textContent(), title);
      assert.equal(await page.locator('h2').textContent(), title);
      assert.equal(await page.locator('#notice p').textContent(), title);
      assert.equal(await page.locator('#brand').textContent(), title.slice(0, 60));
      await assertFits(page, `${name} before`);
      await page.locator('[data-part=enter]').click();
      await page.locator('canvas').waitFor();
      assert.equal(await page.locator('.section .name').first().textContent(), title.slice(0, 50));
      await assertFits(page, name);
      await assertAccessible(page, name);
      await shoot(page, `hostile-${index}-en-320`);
      assert.equal(await page.evaluate(() => window.bad), undefined);
      await page.close();
    }
    const home = await visitor.open('/');
    await home.getByText(hostile[0]).first().waitFor();
    await assertFits(home, 'home');
    assert.equal(await home.evaluate(() => window.bad), undefined);
    await visitor.close();
  });
});

// axe needs JavaScript, and a page that does not reload meanwhile.
async function assertStillAccessible(page, where) {
  const html = await page.content();
  const context = await browser.newContext();
  const copy = await context.newPage();
  await copy.route(page.url(), (route) => route.fulfill({ contentType: 'text/html; charset=utf-8', body: html }));
  await copy.goto(page.url());
  await assertAccessible(copy, where);
  await context.close();
}

describe('without JavaScript', () => {
  for (const language of ['en', 'ko'])
    test(`a person waits, is admitted, holds and confirms seats (${language})`, async () => {
      const say = speaker(language);
      const name = `NOSCRIPT/${language}`;
      const sections = [{ id: 'A', name: 'The best seats in the middle of the hall', capacity: 40, price: 1500000 }];
      const { room, others } = await crowdedRoom(name, 1, { event: { sections } });
      const visitor = await visit(browser, server.url, { language, size: { width: 320, height: 700 }, context: { javaScriptEnabled: false } });
      const page = await visitor.open(`/e/${name}`);
      const look = async (state) => {
        await assertFits(page, state);
        await assertStillAccessible(page, `plain ${state}`);
        await shoot(page, `plain-${state}-${language}-320`);
      };
      const press = (key) => page.getByRole('button', { name: say(key), exact: true }).click();
      await press('plain.enter');
      await page.getByText(say('plain.place', { position: 1 })).waitFor();
      await look('waiting');
      await room.leave(others[0]);
      await page.getByRole('heading', { name: say('plain.active') }).waitFor();
      await look('active');
      await page.locator('select[name=quantity]').selectOption('2');
      await press('plain.hold.button');
      const headings = page.getByRole('heading', { level: 2 });
      await page.getByRole('heading', { name: say('plain.reservations') }).waitFor();
      assert.deepEqual(await headings.allTextContents(), ['plain.active', 'plain.reservations', 'plain.hold.title'].map((key) => say(key)), 'what is held comes before choosing more');
      await look('held');
      await press('plain.reservation.confirm');
      await page.getByText(say('plain.completed')).waitFor();
      await look('confirmed');
      await visitor.close();
    });
});

describe('who the user is', () => {
  test('signed: without the shop the page says what to do, with its assertion the person waits', { skip: isCluster }, async () => {
    const say = speaker('en');
    const key = 'k'.repeat(40);
    const signed = await startSigned(key);
    const { status } = await signed.admin('PUT', '/admin/events/SIGNED/1', { title: 'Signed', ...SALE });
    assert.equal(status, 201);
    const visitor = await visit(browser, signed.url);
    const page = await visitor.open('/e/SIGNED/1');
    await page.getByRole('button', { name: say('event.enter.button') }).click();
    await headline(page, say('event.signIn.title'));
    await assertAccessible(page, 'sign in');
    await page.goto('/');
    await page.goto(`/e/SIGNED/1#assertion=${jwt(key, { sub: 'ann' })}`);
    await page.getByRole('button', { name: say('event.enter.button') }).click();
    await headline(page, say('seats.title'));
    assert.equal(new URL(page.url()).hash, '', 'the assertion is not kept in the address');
    await visitor.close();
    await signed.stop();
  });
});

describe('languages', () => {
  test('the switch changes the language, keeps the address, and the server remembers it', async () => {
    await crowdedRoom('LANGUAGE/1', 1);
    const visitor = await visit(browser, server.url, { language: 'en' });
    const page = await visitor.open('/e/LANGUAGE/1?rd=/x');
    await page.getByRole('link', { name: '한국어' }).click();
    await page.waitForFunction(() => document.documentElement.lang === 'ko');
    assert.equal(new URL(page.url()).searchParams.get('rd'), '/x');
    await page.goto('/');
    assert.equal(await page.getAttribute('html', 'lang'), 'ko');
    await visitor.close();
  });
});
