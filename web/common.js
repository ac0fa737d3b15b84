// common.js: what the scripts of all pages share: texts, numbers and times, requests, the server's
// clock, live streams, dialogs. The server puts this file in front of each page's own script, so that
// a page loads one script.
'use strict';

// ---------------------------------------------------------------------------------------- texts

const readJson = (id) => JSON.parse(document.getElementById(id).textContent);
const language = document.documentElement.lang;
const texts = readJson('texts');
const pluralRules = new Intl.PluralRules(language);
const numberFormat = new Intl.NumberFormat(language);

// The text of a key in the page's language, with {name} replaced by values.name. If the texts have
// KEY.one, that is used where values.count is singular in this language.
function text(key, values = {}) {
  const isOne = 'count' in values && pluralRules.select(values.count) === 'one';
  const template = (isOne && texts[`${key}.one`]) || texts[key] || key;
  return template.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? asText(values[name]) : whole));
}

const asText = (value) => (typeof value === 'number' ? numberFormat.format(value) : String(value));

// ------------------------------------------------------------------------------------- elements

const byId = (id) => document.getElementById(id);

// Makes an element. `text` becomes its text, never markup; a function is a listener (`click`).
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'text') made.textContent = value;
    else if (typeof value === 'function') made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Fills the elements that name their text: <p data-text="event.loading">.
function fillTexts(root) {
  for (const one of root.querySelectorAll('[data-text]')) one.textContent = text(one.dataset.text);
}

// A copy of a <template> and its parts: <p data-part="ahead"> is parts.ahead.
function fromTemplate(id) {
  const root = byId(id).content.firstElementChild.cloneNode(true);
  fillTexts(root);
  const parts = { root };
  for (const one of root.querySelectorAll('[data-part]')) parts[one.dataset.part] = one;
  return parts;
}

// Writes only what has changed, so that screen readers and selections are not disturbed.
function setText(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// Says something to people who use a screen reader. `urgent` interrupts what is being read.
function announce(what, urgent = false) {
  const region = byId(urgent ? 'alarm' : 'announcer');
  if (region) setText(region, what);
}

// Asks a question in a dialog. Resolves to whether the answer is yes.
function ask({ title, detail, yes, no }) {
  return new Promise((resolve) => {
    const dialog = element('dialog', { class: 'dialog', 'aria-labelledby': 'dialog-title' });
    const answer = (value) => () => dialog.close(value);
    dialog.append(
      element('h2', { id: 'dialog-title', text: title }),
      element('p', { text: detail }),
      element(
        'div',
        { class: 'actions' },
        element('button', { type: 'button', class: 'button', text: no, click: answer('no') }),
        element('button', { type: 'button', class: 'button primary', text: yes, click: answer('yes') }),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// The links to the same page in other languages.
function showLanguages() {
  const links = readJson('languages').map(({ code, name }) => {
    const address = new URL(location.href);
    address.searchParams.set('lang', code);
    const isThis = code === language;
    return element('a', { href: address.href, lang: code, hreflang: code, 'aria-current': isThis && 'true', text: name });
  });
  byId('languages-nav').append(...links);
}

// --------------------------------------------------------------------------------------- brand

// The name, logo and colour of the site, or of the shop whose event this is.
function showBrand({ name, logo, accent }) {
  const brand = byId('brand');
  if (!logo) setText(brand, name);
  else if (brand.dataset.logo !== logo) {
    brand.dataset.logo = logo;
    const image = element('img', { src: logo, alt: name, class: 'logo' });
    image.addEventListener('error', () => setText(brand, name));
    brand.replaceChildren(image);
  }
  if (accent) applyAccent(accent);
}

// The shop's colour, made darker or lighter until text in it can be read on the page's background.
function applyAccent(hex) {
  const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  if (wanted.some(Number.isNaN)) return;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const [background, towards] = dark.matches ? [[27, 26, 24], 255] : [[255, 255, 255], 0];
    let colour = wanted;
    for (let step = 0; step < 10 && contrast(colour, background) < 5; step++)
      colour = colour.map((part) => part + (towards - part) * 0.15);
    const onIt = contrast(colour, [255, 255, 255]) >= contrast(colour, [20, 19, 18]) ? '#fff' : '#141312';
    const { style } = document.documentElement;
    style.setProperty('--accent', `rgb(${colour.map(Math.round).join(' ')})`);
    style.setProperty('--accent-fg', onIt);
  };
  if (applyAccent.applied === hex) return;
  applyAccent.applied = hex;
  dark.addEventListener('change', apply);
  apply();
}

// The contrast of two colours, as WCAG defines it: 1 to 21.
function contrast(one, other) {
  const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const [darker, lighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
}

// ---------------------------------------------------------------------------- numbers and times

const number = (value) => numberFormat.format(value);

// Amounts are whole numbers of the currency's smallest unit: won, cents.
function money(amount, currency) {
  const format = new Intl.NumberFormat(language, { style: 'currency', currency });
  return format.format(amount / 10 ** format.resolvedOptions().maximumFractionDigits);
}

// A time that runs: 4:05, 1:04:05.
function clockText(ms) {
  const total = Math.max(0, Math.ceil(ms / 1000));
  const two = (value) => String(value).padStart(2, '0');
  const [hours, minutes, seconds] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}

const unit = (value, name) =>
  new Intl.NumberFormat(language, { style: 'unit', unit: name, unitDisplay: 'long', maximumFractionDigits: 0 }).format(value);

// A length of time in words, as exact as people would say it.
function lengthText(seconds) {
  if (seconds < 60) return unit(Math.max(1, Math.round(seconds)), 'second');
  if (seconds < 90 * 60) return unit(Math.round(seconds / 60), 'minute');
  if (seconds < 36 * 3600) return unit(Math.round(seconds / 3600), 'hour');
  return unit(Math.round(seconds / 86400), 'day');
}

const timeOfDay = (time) => new Intl.DateTimeFormat(language, { timeStyle: 'short' }).format(new Date(time));
const dateAndTime = (time) =>
  new Intl.DateTimeFormat(language, { dateStyle: 'full', timeStyle: 'short' }).format(new Date(time));

// The server's clock, because the browser's may be wrong. The answer with the shortest way tells it
// best. performance.now() stands still while some computers sleep, so what was learnt before counts
// less after a minute, and not at all when the page is shown again.
const serverClock = { aheadMs: Date.now() - performance.now(), wayMs: Infinity, learntAt: -Infinity };

const serverNow = () => performance.now() + serverClock.aheadMs;

function learnTime(serverTime, sentAt, receivedAt) {
  const wayMs = receivedAt - sentAt;
  if (wayMs >= serverClock.wayMs && receivedAt - serverClock.learntAt < 60000) return;
  Object.assign(serverClock, { aheadMs: Date.parse(serverTime) - (sentAt + receivedAt) / 2, wayMs, learntAt: receivedAt });
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) serverClock.wayMs = Infinity;
});

const untilServer = (time) => Date.parse(time) - serverNow();

// ------------------------------------------------------------------------------------- requests

// An id that nobody can guess, also on pages without HTTPS, where crypto.randomUUID does not exist.
function randomUuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

// Sends a request. Never throws: { ok, status, code, body, retryAfterMs }; status 0 says that there
// was no answer. A body is sent as JSON.
async function send(method, path, { body, headers = {}, timeoutMs = 20000 } = {}) {
  const sentAt = performance.now();
  const options = { method, headers: { Accept: 'application/json', ...headers }, signal: AbortSignal.timeout(timeoutMs) };
  if (body !== undefined) {
    options.headers['Content-Type'] = 'application/json';
    options.body = JSON.stringify(body);
  }
  try {
    const response = await fetch(path, options);
    const answer = await response.text();
    const json = /json/.test(response.headers.get('Content-Type')) ? JSON.parse(answer) : null;
    if (json?.serverTime) learnTime(json.serverTime, sentAt, performance.now());
    return {
      ok: response.ok,
      status: response.status,
      code: json?.code ?? null,
      body: json,
      retryAfterMs: Number(response.headers.get('Retry-After') ?? 0) * 1000,
    };
  } catch {
    return { ok: false, status: 0, code: null, body: null, retryAfterMs: 0 };
  }
}

// Whether the same request may succeed later without anyone doing something about it.
const isPassing = ({ status }) => status === 0 || status === 429 || status >= 500;

// How long to wait before the next attempt: what the server asked for, or longer each time; and not
// the same for all who wait, or they would all come back at once.
function retryDelay(attempt, retryAfterMs = 0) {
  const base = retryAfterMs > 0 ? retryAfterMs : Math.min(1000 * 1.6 ** attempt, 15000);
  return base * (1 + Math.random() / 4);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// --------------------------------------------------------------------------------- live streams

// Follows a stream of server-sent events, and opens it again whenever it is lost. EventSource itself
// reconnects after a broken connection, but gives up on any answer other than 200, such as the 502 of
// a proxy while the server restarts; so this opens a new one then.
//   url        a function, because the address may change (a new token)
//   handlers   { name of the stream event: function of its data }
//   onLost     called with the number of failures in a row; false: do not reconnect
//   onLive     called when there is a connection
function followStream({ url, handlers, onLost = () => true, onLive = () => {} }) {
  let source = null;
  let timer = null;
  let failures = 0;
  const open = () => {
    source = new EventSource(url());
    source.addEventListener('open', onLive);
    for (const [name, handle] of Object.entries(handlers))
      source.addEventListener(name, ({ data }) => {
        failures = 0;
        handle(JSON.parse(data));
      });
    source.addEventListener('error', lost);
  };
  const lost = async () => {
    const failed = source;
    const isGivenUp = failed.readyState === EventSource.CLOSED;
    failures++;
    const again = await onLost(failures);
    if (source !== failed) return; // stopped meanwhile
    if (!again) return stop();
    if (isGivenUp) timer = setTimeout(open, retryDelay(failures));
  };
  const stop = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  open();
  return { stop };
}
