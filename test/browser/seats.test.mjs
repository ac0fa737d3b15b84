// Choosing, holding, confirming and cancelling seats in Chromium; what the page says when somebody
// else was faster or the time is over; and the whole way with the keyboard alone.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';

import { WaitingRoom, bearer } from '../e2e/support/queue.mjs';
import { start, test, until } from '../e2e/support/server.mjs';
import { DESKTOP, PHONE, assertAccessible, assertFits, launchBrowser, seatPoint, shoot, speaker, visit } from './support/browser.mjs';

let browser;
let server;

before(async () => {
  browser = await launchBrowser();
  server = await start({ args: ['--users-auth', 'anonymous'] });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const SALE = {
  sections: [
    { id: 'A', name: 'Floor', capacity: 20, price: 150000 },
    { id: 'B', name: 'Balcony', capacity: 30, price: 80000, mode: 'seat' },
  ],
  confirmBy: 'user',
  cancelConfirmed: true,
  reholdSeconds: 0,
};

const openRoom = (name, more = {}) => WaitingRoom.open(server, name, { maxActive: 50, ...more.queue }, { ...SALE, ...more.event });

// A visitor who has been admitted and sees the map.
async function admitted(name, options = {}) {
  const say = speaker(options.language ?? 'en');
  const visitor = await visit(browser, server.url, options);
  const page = await visitor.open(`/e/${name}${options.query ?? ''}`);
  await page.getByRole('button', { name: say('event.enter.button') }).click();
  await mapIsThere(page);
  return { say, visitor, page };
}

const mapIsThere = (page) => page.locator('canvas[aria-label]').waitFor();

// As seats.js lays out 20 seats: 8 or 5 columns without a rest are 10, 5 or 4.
const layout = (size) => (size === PHONE ? [4, 5] : [10, 2]);

async function clickSeat(page, seat, size = DESKTOP) {
  await page.locator('canvas').click({ position: await seatPoint(page, seat, ...layout(size)) });
}

const card = (page, status) => page.locator(`.card.${status}`);

// The seats of the section that are not available, as the API shows them.
async function takenSeats(name, section = 'A') {
  const { json } = await server.call('GET', `/events/${name}/sections/${section}/seats`);
  return [...json.seats].flatMap((letter, index) => (letter === 'A' ? [] : [`${index + 1}${letter}`]));
}

describe('a purchase', () => {
  for (const [language, size, sizeName] of [['en', DESKTOP, 'desktop'], ['ko', PHONE, 'phone']])
    test(`choose, be told of a seat taken by a second browser, hold, confirm, cancel (${language}, ${sizeName})`, async () => {
      const name = `BUY/${language}`;
      await openRoom(name);
      const { say, visitor, page } = await admitted(name, { language, size });
      const look = async (state) => {
        await assertFits(page, state);
        await assertAccessible(page, state);
        await shoot(page, `${state}-${language}-${sizeName}`);
      };
      await look('seats');
      await clickSeat(page, 6, size);
      await clickSeat(page, 7, size);
      await page.getByText(say('seats.chosen', { count: 2, seats: '6, 7' }), { exact: true }).waitFor();
      await look('chosen');

      const rival = await admitted(name, { language, size });
      await clickSeat(rival.page, 7, size);
      await rival.page.getByRole('button', { name: say('seats.holdNamed', { count: 1 }) }).click();
      await card(rival.page, 'held').waitFor();

      await page.getByText(say('seats.taken', { count: 1, seats: 7 })).waitFor();
      await look('taken');
      await page.getByRole('button', { name: say('seats.takeInstead', { seats: 5 }) }).or(page.getByRole('button', { name: say('seats.takeInstead', { seats: 8 }) })).click();
      await page.getByRole('button', { name: say('seats.holdNamed', { count: 2 }) }).click();
      await card(page, 'held').waitFor();
      await look('held');
      assert.match(await card(page, 'held').locator('[role=timer]').textContent(), /^(4:\d\d|5:00)$/);
      await page.reload();
      await card(page, 'held').waitFor();

      await page.getByRole('button', { name: say('seats.card.confirm') }).click();
      await card(page, 'confirmed').waitFor();
      assert.match(await card(page, 'confirmed').locator('.code strong').textContent(), /^[0-9A-Z]{10}$/);
      await page.getByRole('heading', { name: say('event.completed.title') }).waitFor();
      await look('confirmed');
      assert.equal((await takenSeats(name)).filter((seat) => seat.endsWith('C')).length, 2);

      await page.getByRole('button', { name: say('seats.card.cancel') }).click();
      await page.getByRole('button', { name: say('seats.cancel.yes'), exact: true }).last().click();
      await card(page, 'cancelled').waitFor();
      await page.getByRole('heading', { name: say('event.completedNone.title') }).waitFor();
      assert.deepEqual(await takenSeats(name), ['7H'], 'only the seat of the second browser');
      await rival.visitor.close();
      await visitor.close();
    });

  test('the best seats together, given back, and the next in another section', async () => {
    await openRoom('BEST/1');
    const { say, visitor, page } = await admitted('BEST/1');
    await page.getByRole('button', { name: say('seats.more') }).click();
    await page.getByRole('button', { name: say('seats.holdBest', { count: 3 }) }).click();
    await card(page, 'held').getByText(say('seats.card.seats', { count: 3, seats: '1, 2, 3' })).waitFor();
    await page.getByRole('button', { name: say('seats.card.giveBack') }).click();
    await card(page, 'cancelled').waitFor();
    await page.getByRole('radio', { name: /Balcony/ }).check({ force: true });
    await page.getByRole('button', { name: say('seats.holdBest', { count: 3 }) }).click();
    await card(page, 'held').waitFor();
    assert.deepEqual(await takenSeats('BEST/1'), []);
    assert.equal((await takenSeats('BEST/1', 'B')).length, 3);
    await visitor.close();
  });

  test('an asynchronous request: sent, and its result is pushed', async () => {
    await openRoom('LATER/1');
    const { say, visitor, page } = await admitted('LATER/1', { query: '?strategy=queue' });
    const asked = page.waitForRequest('**/api/v4/queue');
    await page.getByRole('button', { name: say('seats.holdBest', { count: 2 }) }).click();
    await asked;
    await card(page, 'held').waitFor();
    assert.equal(await card(page, 'pending').count(), 0);
    await visitor.close();
  });

  test('where the shop confirms, the page says so, and shows when it has', async () => {
    await openRoom('SHOP/1', { event: { confirmBy: 'shop' } });
    const { say, visitor, page } = await admitted('SHOP/1');
    await page.getByRole('button', { name: say('seats.holdBest', { count: 2 }) }).click();
    await card(page, 'held').waitFor();
    assert.equal(await page.getByRole('button', { name: say('seats.card.confirm') }).count(), 0);
    await assertAccessible(page, 'the shop confirms');
    const id = await card(page, 'held').locator('[data-reservation]').getAttribute('data-reservation');
    const { status, text } = await server.call('POST', `/reservations/${id}/confirm`, { headers: bearer(server.adminKey) });
    assert.equal(status, 200, text);
    await card(page, 'confirmed').waitFor();
    await visitor.close();
  });
});

describe('time', () => {
  test('a hold that has ended is explained, and the seats can be chosen again', async () => {
    await openRoom('ENDS/1', { event: { holdSeconds: 1 } });
    const { say, visitor, page } = await admitted('ENDS/1', { size: PHONE });
    await page.getByRole('button', { name: say('seats.holdBest', { count: 2 }) }).click();
    await card(page, 'expired').getByRole('heading', { name: say('seats.card.expired') }).waitFor();
    await assertAccessible(page, 'an expired hold');
    await shoot(page, 'expired-hold-en-phone');
    await page.getByRole('button', { name: say('seats.holdBest', { count: 2 }) }).waitFor();
    await visitor.close();
  });

  test('a stay that is over is explained; seats that are held can still be confirmed', async () => {
    await openRoom('STAY/1', { queue: { activeTtlSeconds: 8 } });
    const { say, visitor, page } = await admitted('STAY/1');
    await page.getByRole('button', { name: say('seats.holdBest', { count: 2 }) }).click();
    await page.getByRole('heading', { name: say('event.stayOver.title') }).waitFor();
    await assertAccessible(page, 'the stay is over');
    await shoot(page, 'stay-over-en-desktop');
    await page.getByRole('button', { name: say('seats.card.confirm') }).click();
    await card(page, 'confirmed').waitFor();
    await visitor.close();
  });
});

describe('the keyboard alone', () => {
  // Presses Tab until that element has the focus.
  async function tabTo(page, locator) {
    await locator.waitFor({ state: 'attached' });
    for (let presses = 0; presses < 60; presses++) {
      if (await locator.evaluate((node) => node === document.activeElement)) return;
      await page.keyboard.press('Tab');
    }
    assert.fail(`Tab does not reach ${locator}`);
  }

  test('from the first page to a confirmed seat', async () => {
    await openRoom('KEYS/1');
    const say = speaker('en');
    const visitor = await visit(browser, server.url);
    const page = await visitor.open('/');
    await tabTo(page, page.locator('a[href="/e/KEYS/1"]').first());
    await page.keyboard.press('Enter');
    const enter = page.getByRole('button', { name: say('event.enter.button') });
    await tabTo(page, enter);
    await page.keyboard.press('Enter');
    await mapIsThere(page);
    await tabTo(page, page.locator('input[type=radio][value=A]'));
    await page.keyboard.press('ArrowDown');
    await page.getByRole('application', { name: say('seats.map.label', { section: 'Balcony' }) }).waitFor();
    await tabTo(page, page.locator('canvas'));
    for (const key of ['End', 'ArrowLeft', 'Space', 'ArrowLeft', 'Space', '+', '+', 'ArrowUp', 'Enter', 'Enter', 'n', '0']) await page.keyboard.press(key);
    await page.getByText(say('seats.chosen', { count: 2, seats: '28, 29' }), { exact: true }).waitFor();
    await page.keyboard.press('Home');
    assert.match(await page.locator('#announcer').textContent(), /^Seat 1 · Free · ₩80,000$/);
    await tabTo(page, page.getByRole('button', { name: say('seats.holdNamed', { count: 2 }) }));
    await page.keyboard.press('Enter');
    await tabTo(page, page.getByRole('button', { name: say('seats.card.confirm') }));
    await page.keyboard.press('Enter');
    await card(page, 'confirmed').waitFor();
    await visitor.close();
  });
});

describe('the map', () => {
  test('what gets the focus is not covered by the bar that stays on the screen', async () => {
    await openRoom('COVER/1');
    const { say, visitor, page } = await admitted('COVER/1', { size: { width: 390, height: 640 } });
    for (const key of ['seats.map.closer', 'seats.map.whole']) {
      const button = page.getByRole('button', { name: say(key), exact: true });
      await page.evaluate(() => scrollTo(0, 0));
      await button.focus();
      const isOnTop = () => button.evaluate((node) => {
        const { x, y, width, height } = node.getBoundingClientRect();
        return document.elementFromPoint(x + width / 2, y + height / 2) === node;
      });
      await until(`${key} is in sight`, isOnTop);
    }
    await visitor.close();
  });

  test('a large hall is zoomed and moved, and follows what others take', async () => {
    await openRoom('HALL/1', { event: { sections: [{ id: 'A', name: 'Hall', capacity: 20000, price: 100 }], currency: 'EUR' } });
    const { say, visitor, page } = await admitted('HALL/1');
    const canvas = page.locator('canvas');
    const box = await canvas.boundingBox();
    const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    const seatUnder = async (x, y) => {
      await page.mouse.move(x + 1, y);
      await page.mouse.move(x, y);
      return Number(/^Seat ([\d,]+) · Free · €1\.00$/.exec(await page.locator('#seat-now').textContent())[1].replace(',', ''));
    };
    await canvas.focus();
    await page.mouse.move(middle.x, middle.y);
    for (let turn = 0; turn < 8; turn++) await page.mouse.wheel(0, -400);
    const first = await seatUnder(middle.x, middle.y);
    assert.equal(await seatUnder(middle.x + 48, middle.y), first + 1, 'as near as it gets');
    await page.mouse.move(middle.x, middle.y);
    await page.mouse.down();
    await page.mouse.move(middle.x - 96, middle.y, { steps: 4 });
    await page.mouse.up();
    assert.equal(await seatUnder(middle.x, middle.y), first + 2, 'moved by two seats');
    await page.mouse.click(middle.x, middle.y);
    await page.getByText(say('seats.chosen', { count: 1, seats: (first + 2).toLocaleString('en') }), { exact: true }).waitFor();

    const rival = await admitted('HALL/1');
    await rival.page.evaluate((seat) => fetch('/reservations', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ eventType: 'HALL', eventId: '1', section: 'A', seats: [seat] }) }), first + 2);
    await page.getByText(say('seats.taken', { count: 1, seats: (first + 2).toLocaleString('en') })).waitFor();
    await rival.visitor.close();
    await visitor.close();
  });

  test('two fingers zoom; a tap on a seat that is too small comes nearer first', async () => {
    await openRoom('TOUCH/1', { event: { sections: [{ id: 'A', name: 'Hall', capacity: 2000, price: 100 }] } });
    const { say, visitor, page } = await admitted('TOUCH/1', { size: PHONE, context: { hasTouch: true, isMobile: true } });
    const canvas = page.locator('canvas');
    await canvas.tap();
    assert.equal(await canvas.evaluate((node) => node.classList.contains('is-near')), true);
    assert.equal(await page.getByRole('button', { name: say('seats.clear') }).isVisible(), false, 'nothing is chosen yet');
    await canvas.tap();
    await page.getByRole('button', { name: say('seats.clear') }).waitFor();
    await page.getByRole('button', { name: say('seats.map.whole') }).tap();
    const box = await canvas.boundingBox();
    const session = await visitor.context.newCDPSession(page);
    const touch = (type, apart) => session.send('Input.dispatchTouchEvent', { type, touchPoints: apart === null ? [] : [-1, 1].map((side, id) => ({ id, x: box.x + box.width / 2 + side * apart, y: box.y + box.height / 2 })) });
    await touch('touchStart', 20);
    for (const apart of [40, 60, 80]) await touch('touchMove', apart);
    await touch('touchEnd', null);
    await until('zoomed', () => canvas.evaluate((node) => node.classList.contains('is-near')));
    await visitor.close();
  });
});
