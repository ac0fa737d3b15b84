// Chromium for the tests of the pages: one browser per test file, because a start costs much CPU time,
// and one context per visitor, as if each had a browser of their own.
//
// A visitor's page must not log an error. What Chromium logs for an answer such as 409 is none: these
// answers are part of the API.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { chromium } from 'playwright-core';

import { isCluster } from '../../e2e/support/server.mjs';

const UNTIL_MS = 60000;
const AXE = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const REFUSAL = /^Failed to load resource: the server responded with a status of (401|403|404|409|410|429|503)/;
const LOST = /^Failed to load resource: net::ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING|INTERNET_DISCONNECTED)/;

const LANG = new URL('../../../web/lang/', import.meta.url);

// The texts of the pages: say('seats.holdBest', { count: 2 }), with the form KEY.one for one.
export function speaker(language) {
  const texts = JSON.parse(fs.readFileSync(new URL(`${language}.json`, LANG), 'utf8'));
  return (key, values = {}) => {
    const template = (values.count === 1 && language === 'en' && texts[`${key}.one`]) || texts[key];
    assert.ok(template, `there is no text ${key}`);
    return template.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  };
}

export const PHONE = { width: 390, height: 844 };
export const DESKTOP = { width: 1280, height: 900 };

export const launchBrowser = () => chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });

// A new visitor: { page, context, errors, go, close }. Options:
//   language   'en', 'ko'
//   size       PHONE, DESKTOP, or another viewport
//   lost       the test breaks connections: what Chromium logs about that is no error
//   context    further options of the browser's context
export async function visit(browser, url, { language = 'en', size = DESKTOP, lost = false, context: more = {} } = {}) {
  const context = await browser.newContext({ baseURL: url, locale: language, viewport: size, reducedMotion: 'reduce', ...more });
  context.setDefaultTimeout(UNTIL_MS);
  const visitor = { context, errors: [] };
  visitor.open = async (address) => {
    const page = await context.newPage();
    page.on('pageerror', (error) => visitor.errors.push(error.stack));
    page.on('console', (message) => {
      const isExpected = REFUSAL.test(message.text()) || (lost && LOST.test(message.text()));
      if (['error', 'warning'].includes(message.type()) && !isExpected) visitor.errors.push(`${message.text()} ${message.location().url}`);
    });
    await page.goto(address);
    return page;
  };
  // Ends the visit, and fails if a page has logged an error.
  visitor.close = async () => {
    await context.close();
    assert.deepEqual(visitor.errors, []);
  };
  return visitor;
}

// No violation that axe calls serious or critical, in light and in dark. On a cluster the pages are the
// same, so looking at them again would only cost time.
export async function assertAccessible(page, where, { schemes = ['light', 'dark'] } = {}) {
  if (isCluster) return;
  for (const colorScheme of schemes) {
    await page.emulateMedia({ colorScheme });
    // The page learns of it before it draws the next frame.
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    const shown = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html}\n${failureSummary}`).join('\n')}`);
    assert.deepEqual(shown, [], `${where}, ${colorScheme}`);
  }
}

// The map of seats is a canvas. A seat's middle in it, as seats.js lays them out while all are shown:
// `columns` seats in a row.
export async function seatPoint(page, seat, columns, rows) {
  const box = await page.locator('canvas').boundingBox();
  const side = Math.min((box.width - 16) / columns, (box.height - 16) / rows, 38.4);
  const left = (box.width - columns * side) / 2;
  const top = (box.height - rows * side) / 2;
  return { x: left + (((seat - 1) % columns) + 0.5) * side, y: top + (Math.floor((seat - 1) / columns) + 0.5) * side };
}

// Nothing is wider than the page, so there is no scrolling to the side.
export async function assertFits(page, where) {
  const [content, view] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(content <= view, `${where}: ${content} pixels wide on a screen of ${view}`);
}

// A screenshot as an artefact of the run, if a folder for them is named.
export async function shoot(page, name) {
  const folder = process.env.SCREENSHOTS;
  if (!folder) return;
  await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true, animations: 'disabled' });
}
