// The first page in Chromium: what is on sale, and both boards, live.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';

import { WaitingRoom, bearer } from '../e2e/support/queue.mjs';
import { start, test } from '../e2e/support/server.mjs';
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

describe('home', () => {
  for (const [language, size] of [['en', DESKTOP], ['ko', PHONE]])
    test(`events and boards follow what is sold (${language})`, async () => {
      const say = speaker(language);
      const name = `HOME/${language}`;
      const title = `Winter tour ${language}`;
      const room = await WaitingRoom.open(server, name, {}, { title, sections: [{ id: 'A', capacity: 2, price: 150000 }] });
      const visitor = await visit(browser, server.url, { language, size });
      const page = await visitor.open('/');
      const row = page.locator(`.events a[href="/e/${name}"]`);
      await row.getByText(say('home.seatsLeft', { count: 2 })).waitFor();
      assert.match(await row.textContent(), /₩150,000/);
      await assertAccessible(page, 'home');

      const { entryToken } = await room.enter('ann');
      const body = { eventType: 'HOME', eventId: language, section: 'A', quantity: 2 };
      const held = await server.call('POST', '/reservations', { headers: bearer(entryToken), body });
      assert.equal(held.status, 201, held.text);
      await row.getByText(say('home.state.allHeld')).waitFor();
      for (const board of ['soldout', 'popular']) await page.locator(`#${board} a[href="/e/${name}"]`).waitFor();
      await page.getByRole('button', { name: say('home.weekly') }).click();
      await page.locator(`#popular a[href="/e/${name}"]`).waitFor();
      await assertFits(page, 'home');
      await assertAccessible(page, 'home with boards');
      await shoot(page, `home-${language}`);
      await row.click();
      await page.getByRole('heading', { name: title }).waitFor();
      await visitor.close();
    });

  test('without JavaScript it says so, and does not seem to load', async () => {
    const say = speaker('en');
    const visitor = await visit(browser, server.url, { size: PHONE, context: { javaScriptEnabled: false } });
    const page = await visitor.open('/');
    const shown = await page.locator('main').innerText();
    assert.ok(shown.includes(say('common.scripts')), shown);
    assert.ok(!shown.includes(say('home.loading')), shown);
    await visitor.close();
  });
});
