// event.js: the waiting room of one event, /e/{type}/{id}. It shows one view at a time: a countdown,
// a button that takes a place, the place in the queue, that it is this person's turn, or a message.
// Who has been admitted chooses seats: seats.js is loaded then.
//
// The place belongs to a cookie, which scripts cannot read. So a reload, another tab or a restarted
// server change nothing: the page asks for the place again.

const [, , eventType, eventId] = location.pathname.split('/');
const eventPath = `/events/${eventType}/${eventId}`;
const queuePath = `/queue/${eventType}/${eventId}`;
const returnTo = new URLSearchParams(location.search).get('rd') || null;

const POLL_MS = 5000; // while streams do not work
const SILENCE_MS = 90000; // a stream that says nothing for longer may be dead
const STAY_CHECK_MS = 15000; // while ACTIVE: the stay may have ended elsewhere
const EVENT_CHECK_MS = 15000; // while there is no place: the event may have changed
const COUNTDOWN_CHECK_MS = 60000; // the same, for the many who wait for the opening
const RETURN_MS = 4000; // time to read that it is one's turn before the page goes on
const PACE_SECONDS = 15; // before that, how fast a place moves is not known
const BOUND_SECONDS = 60; // the server's lower bound is shown until then, if it is not shorter
const LONG_TITLE = 60; // characters; a longer one is set smaller
const LONG_FIGURE = 6; // the same of a position or countdown
const ANNOUNCE_MS = 20000; // a screen reader is told a new position at most this often

const room = {
  event: null, // of GET /events/{type}/{id}
  place: null, // the last answer of the queue
  heardAt: 0, // when that was, by performance.now()
  assertion: takeAssertion(), // the shop's word on who this is, if the shop gave one
  enterKey: randomUuid(), // a lost answer to "enter" is asked for again with the same key
};

// --------------------------------------------------------------------------------- remembering
// What a reload should still know: that this browser has a place here, at which position it began,
// and how far the progress bar had come. Nothing in it proves anything.

const memoryName = `admitone.place.${eventType}/${eventId}`;

function recall() {
  try {
    return JSON.parse(localStorage.getItem(memoryName)) ?? {};
  } catch {
    return {}; // no storage, or not ours: the page works without
  }
}

function remember(changes) {
  try {
    localStorage.setItem(memoryName, JSON.stringify({ ...recall(), ...changes }));
  } catch {
    // See above.
  }
}

function forget() {
  try {
    localStorage.removeItem(memoryName);
  } catch {
    // See above.
  }
}

// A shop that signs its users in (users.auth = signed) links here with #assertion=JWT. What follows
// the # is sent to no server and is in no log; it is removed from the address at once.
function takeAssertion() {
  const found = /^#assertion=([\w.-]+)$/.exec(location.hash);
  if (found) history.replaceState(null, '', location.pathname + location.search);
  return found?.[1] ?? null;
}

// ---------------------------------------------------------------------------------------- views

const view = { name: null, parts: null, stop: () => {} };

// Shows a view, unless it is shown already. `begin` gets its parts, and returns what ends it.
function showView(name, begin = () => {}, template = name) {
  if (view.name === name) return view.parts;
  view.stop();
  const hadFocus = byId('view').contains(document.activeElement);
  view.name = name;
  view.parts = fromTemplate(`view-${template}`);
  byId('view').replaceChildren(view.parts.root);
  view.stop = begin(view.parts) ?? (() => {});
  if (hadFocus) byId('main').focus({ preventScroll: true });
  return view.parts;
}

// Calls `tick` now and every quarter of a second, until the returned function is called.
function ticking(tick) {
  tick();
  const timer = setInterval(tick, 250);
  return () => clearInterval(timer);
}

// Calls `work` after each `ms`, until the returned function is called.
function repeating(ms, work) {
  let timer = null;
  const again = () => (timer = setTimeout(async () => (await work(), timer !== null && again()), ms));
  again();
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}

// A message: what happened, what it means, and what can be done.
//   values    for the texts NAME.title and NAME.detail
//   action    { label, run, isMain }
//   retryMs   the page tries again by itself after this time: `retry`
function showMessage(name, { values = {}, action, retryMs, retry, key = name } = {}) {
  showView(
    `message ${key} ${retryMs ?? ''}`,
    (parts) => {
      parts.title.textContent = text(`event.${name}.title`, values);
      parts.detail.textContent = text(`event.${name}.detail`, values);
      if (action) parts.actions.append(element('button', { type: 'button', class: action.isMain ? 'button primary' : 'button', text: action.label, click: action.run }));
      setTitle(parts.title.textContent);
      announce(parts.title.textContent);
      if (!retry) return undefined;
      const at = performance.now() + retryMs;
      setHidden(parts.retry, false);
      return ticking(() => {
        const leftMs = at - performance.now();
        setText(parts.retry, text('event.retry', { time: clockText(leftMs) }));
        if (leftMs > 0) return;
        view.stop();
        retry();
      });
    },
    'message',
  );
}

const enterAgain = (isMain = true) => ({ label: text('event.enter.again'), run: enter, isMain });

function setTitle(start) {
  const title = room.event?.title ?? text('event.title');
  document.title = start ? `${start} · ${title}` : title;
}

// ----------------------------------------------------------------------------------- connection

const connection = { failures: 0 };

// A lost connection is said calmly, and only when it lasts: a short interruption is nothing to read.
function connectionLost() {
  connection.failures++;
  if (connection.failures < 2) return;
  const node = byId('connection');
  node.className = 'connection lost';
  setText(node, text(room.place ? 'event.connection.lostKept' : 'event.connection.lost'));
  setHidden(node, false);
}

function connectionWorks() {
  const wasShown = connection.failures >= 2;
  connection.failures = 0;
  if (!wasShown) return;
  const node = byId('connection');
  node.className = 'connection back';
  setText(node, text('event.connection.back'));
  setTimeout(() => connection.failures < 2 && setHidden(node, true), 4000);
}

// Sends a request again until the server has given an answer that is not about itself.
async function sendUntilAnswered(method, path, options) {
  for (let attempt = 0; ; attempt++) {
    const answer = await send(method, path, options);
    if (answer.status !== 0 && answer.status < 500) {
      connectionWorks();
      return answer;
    }
    connectionLost();
    await pause(retryDelay(attempt, answer.retryAfterMs));
  }
}

// ------------------------------------------------------------------------------------ the event

async function loadEvent() {
  const answer = await sendUntilAnswered('GET', eventPath);
  if (answer.status === 429) return pause(retryDelay(0, answer.retryAfterMs)).then(loadEvent);
  if (!answer.ok) return false;
  room.event = answer.body;
  showEvent();
  return true;
}

// The event's title, time, name, logo, colour and own texts.
function showEvent() {
  const { title, startsAt, page, notice } = room.event;
  Object.assign(texts, page?.texts?.[language]);
  setText(byId('title'), title);
  byId('title').classList.toggle('long', title.length > LONG_TITLE);
  const when = byId('when');
  setHidden(when, !startsAt);
  if (startsAt) setText(when, dateAndTime(startsAt));
  showBrand({ name: page?.name || texts['page.name'], logo: page?.logo || texts['page.logo'], accent: page?.accent || texts['page.accent'] });
  showNotice(room.place?.notice ?? notice ?? null);
  if (view.name === null) setTitle();
}

function showNotice(notice) {
  const said = notice?.text ?? notice;
  const node = byId('notice');
  setHidden(node, !said);
  if (said && node.dataset.said !== said) {
    node.dataset.said = said;
    node.replaceChildren(
      element('strong', { text: text('event.notice.title') }),
      element('p', { dir: 'auto', text: said }),
    );
  }
}

const hasStock = () => room.event.sections.length > 0;
const seatsLeft = () => room.event.sections.reduce((sum, { available }) => sum + available, 0);

// ---------------------------------------------------------------------------- without a place

// What somebody sees who has no place: it depends on the event.
function showWithoutPlace() {
  const { state, opensAt, closesAt } = room.event;
  const isOver = closesAt !== null && untilServer(closesAt) <= 0;
  if (opensAt !== null && untilServer(opensAt) > 0 && state !== 'CLOSED') return showCountdown();
  if (isOver || state === 'CLOSED') return showClosed('closed');
  if (state === 'DRAINING') return showClosed('draining');
  if (returnTo !== null) return enter(); // sent here by the shop, in order to wait
  return showEnter();
}

// The event may be opened again.
function showClosed(name) {
  showMessage(name);
  const stopMessage = view.stop;
  const stopAsking = repeating(EVENT_CHECK_MS, reloadWithoutPlace);
  view.stop = () => (stopMessage(), stopAsking());
}

async function reloadWithoutPlace() {
  if (document.hidden) return;
  const { name } = view;
  const isThere = await loadEvent();
  if (view.name !== name || isEntering) return; // a place was taken meanwhile
  if (isThere) showWithoutPlace();
  else showMessage('notFound');
}

function showCountdown() {
  const parts = showView('before', ({ countdown }) => {
    const stopTicking = ticking(() => {
      const leftMs = untilServer(room.event.opensAt);
      setFigure(countdown, countdownText(leftMs));
      setTitle(countdownText(leftMs));
      if (leftMs <= 0) enter();
    });
    const stopAsking = repeating(COUNTDOWN_CHECK_MS, reloadWithoutPlace); // it may be moved
    return () => (stopTicking(), stopAsking());
  });
  setText(parts.opensAt, text('event.before.opensAt', { time: dateAndTime(room.event.opensAt) }));
  setText(parts.seats, hasStock() ? number(seatsLeft()) : '–');
  setText(parts.perPerson, number(room.event.maxPerUser));
}

// Long countdowns in days, and then as a clock.
const countdownText = (ms) => (ms > 48 * 3600000 ? lengthText(ms / 1000) : clockText(ms));

function showEnter() {
  const parts = showView('enter', (made) => {
    made.enter.addEventListener('click', enter);
    setTitle();
    return repeating(EVENT_CHECK_MS, reloadWithoutPlace);
  });
  const name = enterName();
  setText(parts.title, text(`event.enter.${name}.title`));
  setText(parts.detail, text(`event.enter.${name}.detail`));
  setHidden(parts.seatsBox, !hasStock());
  setHidden(parts.perPersonBox, !hasStock());
  setText(parts.seats, number(seatsLeft()));
  setText(parts.perPerson, number(room.event.maxPerUser));
}

// The texts about a place that can be taken: there may be no seat for it now.
function enterName() {
  const { state, sections } = room.event;
  if (state === 'PAUSED') return 'paused';
  if (!hasStock() || seatsLeft() > 0) return 'open';
  return sections.some(({ held }) => held > 0) ? 'allHeld' : 'soldOut';
}

// ------------------------------------------------------------------------------- taking a place

let isEntering = false;

async function enter() {
  if (isEntering) return;
  isEntering = true;
  if (view.parts?.enter) view.parts.enter.disabled = true;
  const headers = { 'Idempotency-Key': room.enterKey };
  if (room.assertion) headers['X-User-Assertion'] = room.assertion;
  const answer = await sendUntilAnswered('POST', `${queuePath}/enter`, { body: {}, headers });
  isEntering = false;
  if (!answer.ok) return enterRefused(answer);
  room.enterKey = randomUuid();
  return onPlace(answer.body);
}

// Each refusal says what it means, and the page tries again by itself where that makes sense.
async function enterRefused({ status, code, body, retryAfterMs }) {
  const retryMs = retryDelay(3, retryAfterMs);
  const key = `${code} ${performance.now()}`;
  switch (code) {
    case 'queue_full':
      return showMessage('full', { values: { maxWaiting: body.maxWaiting }, retryMs, retry: enter, key });
    case 'not_open':
    case 'closed':
      if (!(await loadEvent())) return showMessage('notFound');
      if (code === 'closed') return showClosed(room.event.state === 'DRAINING' ? 'draining' : 'closed');
      if (room.event.opensAt === null) return showMessage('notFound');
      return showCountdown();
    case 'limit_exceeded':
      showMessage('limit', { values: { count: room.event.maxPerUser } });
      return openSeats(false);
    case 'assertion_required':
      return showMessage('signIn');
    case 'assertion_invalid':
    case 'user_mismatch':
      return showMessage('signInAgain');
    case 'event_not_found':
      return showMessage('notFound');
    default:
      if (status === 429) return showMessage('busy', { retryMs, retry: enter, key });
      return showMessage('refused', { values: { detail: body?.detail ?? body?.title ?? '' }, action: enterAgain() });
  }
}

// Asks for the place of the cookie. Also the way back after anything that went wrong, so it may be
// called from several sides at once: they share one request.
let lookingUp = null;

function lookUpPlace() {
  lookingUp ??= askForPlace().finally(() => (lookingUp = null));
  return lookingUp;
}

async function askForPlace() {
  const answer = await sendUntilAnswered('GET', `${queuePath}/status`);
  if (answer.ok) return onPlace(answer.body);
  if (answer.status === 429) return pause(retryDelay(0, answer.retryAfterMs)).then(askForPlace);
  stopFollowing();
  stopChecking();
  setHidden(byId('seats'), true);
  if (answer.code === 'token_expired') return enter(); // the same place, with a new token
  forget();
  room.place = null;
  if (!(await loadEvent())) return showMessage('notFound');
  return showWithoutPlace();
}

// ---------------------------------------------------------------------------------- with a place

function onPlace(place) {
  const before = room.place?.status ?? recall().status ?? null;
  room.place = place;
  room.heardAt = performance.now();
  connectionWorks();
  showNotice(place.notice ?? null);
  remember({ status: place.status });
  if (place.status === 'WAITING') return waiting(place);
  stopFollowing();
  if (place.status === 'ACTIVE') return admitted(place, before === 'WAITING');
  return ended(place, before);
}

function waiting(place) {
  showWaiting(place);
  follow();
}

const following = { stream: null, stopPolling: () => {}, stopWatching: () => {} };

// Follows the place by a stream. Where streams do not get through, it asks every few seconds.
function follow() {
  if (following.stream) return;
  following.stream = followStream({
    url: () => `${queuePath}/subscribe/${room.place.entryToken}`,
    handlers: { 'queue-status': onPlace, 'event-deleted': onDeleted },
    onLive: () => following.stopPolling(),
    onLost: async (failures) => {
      connectionLost();
      if (failures >= 3) poll();
      if (failures >= 2) await lookUpPlace(); // the token may be void, the place over
      return room.place?.status === 'WAITING';
    },
  });
  following.stopWatching = repeating(SILENCE_MS / 3, () => {
    if (performance.now() - room.heardAt > SILENCE_MS) return lookUpPlace();
    return undefined;
  });
}

function poll() {
  following.stopPolling();
  const stop = repeating(POLL_MS, lookUpPlace);
  following.stopPolling = () => (stop(), (following.stopPolling = () => {}));
}

function stopFollowing() {
  following.stream?.stop();
  following.stream = null;
  following.stopPolling();
  following.stopWatching();
}

function onDeleted() {
  stopFollowing();
  stopChecking();
  forget();
  room.place = null;
  showMessage('deleted');
}

// Back from another tab, from sleep or from no network: the place is asked for at once.
function comeBack() {
  if (!document.hidden && room.place && performance.now() - room.heardAt > 5000) lookUpPlace();
}
document.addEventListener('visibilitychange', comeBack);
addEventListener('online', comeBack);
addEventListener('pageshow', ({ persisted }) => persisted && comeBack());

// ------------------------------------------------------------------------------------- waiting

function showWaiting(place) {
  const parts = showView('waiting', (made) => {
    made.root.after(waitingActions());
    return () => made.rolling?.();
  });
  rollTo(parts, place.position);
  setText(parts.ahead, place.ahead === 0 ? text('event.waiting.next') : text('event.waiting.ahead', { count: place.ahead }));
  setText(parts.wait, waitText(place));
  setText(parts.waiting, number(place.totalWaiting));
  setText(parts.honest, honestText(place));
  setHidden(parts.honest, parts.honest.textContent === '');
  setHidden(parts.seatsBox, place.remainingSeats === null);
  if (place.remainingSeats !== null) setText(parts.seats, number(place.remainingSeats));
  setText(parts.comeBack, comeBackText());
  const state = stateText(place);
  setHidden(parts.state, state === null);
  if (state !== null) setText(parts.state, state);
  showProgress(parts, place.ahead);
  setTitle(`${number(place.position)}`);
  announcePosition(place, state);
}

// How long it may take. The server's estimate is a lower bound: it does not know how long those stay
// who are inside. So the page also measures how fast this place moves, and shows the longer time; and
// none while nothing moves.
const pace = { position: 0, since: 0 };

function waitText({ estimatedWaitSeconds, position }) {
  const now = performance.now();
  if (pace.position < position) Object.assign(pace, { position, since: now });
  if (estimatedWaitSeconds === null) return text('event.wait.unknown');
  const seconds = (now - pace.since) / 1000;
  if (seconds < PACE_SECONDS && estimatedWaitSeconds >= BOUND_SECONDS) return text('event.wait.atLeast', { time: lengthText(estimatedWaitSeconds) });
  if (seconds < PACE_SECONDS) return text('event.wait.unknown');
  const moved = pace.position - position;
  if (moved === 0) return text('event.wait.unknown');
  return text('event.wait.about', { time: lengthText(Math.max(estimatedWaitSeconds, (position * seconds) / moved)) });
}

// Whether the seats will last for the people ahead: said before they are gone, not after.
function honestText({ seatsAhead, remainingSeats, ahead }) {
  if (remainingSeats === null || remainingSeats === 0) return '';
  if (seatsAhead === null) return ahead > remainingSeats ? text('event.honest.moreThanSeats') : '';
  if (seatsAhead > remainingSeats) return text('event.honest.unlikely', { count: seatsAhead });
  return text('event.honest.likely', { count: seatsAhead });
}

// Why nobody moves, if that is so.
function stateText({ degraded, eventState, admitting, soldOut, heldSeats, remainingSeats }) {
  if (degraded) return text('event.state.degraded');
  if (eventState === 'PAUSED') return text('event.state.paused');
  if (eventState === 'CLOSED') return text('event.state.closed');
  if (soldOut) return text('event.state.soldOut');
  if (admitting === false && remainingSeats === 0) return text('event.state.allHeld', { count: heldSeats });
  if (admitting === false) return text('event.state.offered');
  if (eventState === 'DRAINING') return text('event.state.draining');
  return null;
}

function comeBackText() {
  const { graceSeconds } = room.event;
  return graceSeconds ? text('event.waiting.comeBack', { time: lengthText(graceSeconds) }) : text('event.waiting.comeBackSoon');
}

// The large number. One that is long is set smaller, so that it stays on one line of a phone.
function setFigure(node, value) {
  setText(node, value);
  node.classList.toggle('long', value.length > LONG_FIGURE);
}

// The number falls to its new value in steps that the eye can follow.
function rollTo(parts, position) {
  parts.rolling?.();
  const from = parts.shown ?? position;
  parts.shown = position;
  if (from <= position || matchMedia('(prefers-reduced-motion: reduce)').matches || document.hidden) {
    setFigure(parts.position, number(position));
    return;
  }
  const began = performance.now();
  let frame = 0;
  const step = (now) => {
    const part = Math.min(1, Math.max(0, (now - began) / 700));
    setFigure(parts.position, number(Math.round(from + (position - from) * (1 - (1 - part) ** 3))));
    if (part < 1) frame = requestAnimationFrame(step);
  };
  frame = requestAnimationFrame(step);
  parts.rolling = () => cancelAnimationFrame(frame);
}

// The bar is the way from the first position to the front. It never goes back: not after a reload,
// and not when people of a preferred lane enter in front.
function showProgress({ progress, bar }, ahead) {
  const { startAhead = ahead, best = 0 } = recall();
  const start = Math.max(startAhead, ahead);
  const done = Math.max(best, start === 0 ? 0.98 : Math.min(0.98, 1 - ahead / (start + 1)));
  remember({ startAhead: start, best: done });
  bar.style.setProperty('transform', `scaleX(${done})`);
  progress.setAttribute('aria-valuenow', String(Math.round(done * 100)));
  progress.setAttribute('aria-label', text('event.waiting.progress'));
}

let announcedAt = -Infinity;

function announcePosition(place, state) {
  if (performance.now() - announcedAt < ANNOUNCE_MS) return;
  announcedAt = performance.now();
  announce([text('event.waiting.announce', { position: place.position }), state].filter(Boolean).join(' '));
}

function waitingActions() {
  const parts = fromTemplate('waiting-actions');
  parts.alert.addEventListener('click', () => toggleAlert(parts));
  parts.leave.addEventListener('click', leave);
  showAlert(parts);
  return parts.root;
}

async function leave() {
  const isSure = await ask({
    title: text('event.leave.title'),
    detail: text(room.place?.status === 'ACTIVE' ? 'event.leave.detailActive' : 'event.leave.detail'),
    yes: text('event.leave.yes'),
    no: text('event.leave.no'),
  });
  if (!isSure || !room.place) return;
  const answer = await sendUntilAnswered('DELETE', `${queuePath}/leave`);
  if (answer.ok || answer.code === 'token_required') onPlace({ ...room.place, status: 'LEFT' });
  else await lookUpPlace();
}

// ---------------------------------------------------------------- "tell me when it is my turn"
// A sound needs a click before, and a notification a permission: so both begin with a button.

const alerting = { isOn: false, audio: null };

async function toggleAlert(parts) {
  alerting.isOn = !alerting.isOn;
  showAlert(parts);
  if (alerting.isOn) {
    const Audio = window.AudioContext ?? window.webkitAudioContext;
    if (Audio) alerting.audio ??= new Audio();
    alerting.audio?.resume();
    if (window.Notification?.permission === 'default') await Notification.requestPermission();
  }
  showAlert(parts);
}

function showAlert(parts) {
  parts.alert.setAttribute('aria-pressed', String(alerting.isOn));
  if (!alerting.isOn) return setText(parts.alertState, '');
  const both = window.Notification?.permission === 'granted';
  return setText(parts.alertState, text(both ? 'event.alert.both' : 'event.alert.soundOnly'));
}

function alertTurn() {
  announce(text('event.turn.title'), true);
  if (!alerting.isOn) return;
  playChime();
  if (window.Notification?.permission !== 'granted') return;
  try {
    const shown = new Notification(text('event.turn.title'), { body: room.event.title, tag: memoryName });
    shown.addEventListener('click', () => (window.focus(), shown.close()));
  } catch {
    // Some phones show notifications only for installed pages. The sound and the title remain.
  }
}

// Two soft tones.
function playChime() {
  const { audio } = alerting;
  if (!audio) return;
  for (const [index, frequency] of [660, 880].entries()) {
    const start = audio.currentTime + index * 0.22;
    const tone = audio.createOscillator();
    const loudness = audio.createGain();
    tone.frequency.value = frequency;
    loudness.gain.setValueAtTime(0, start);
    loudness.gain.linearRampToValueAtTime(0.2, start + 0.03);
    loudness.gain.exponentialRampToValueAtTime(0.001, start + 0.6);
    tone.connect(loudness).connect(audio.destination);
    tone.start(start);
    tone.stop(start + 0.65);
  }
}

// ------------------------------------------------------------------------------------- admitted

const stay = { stopChecking: null };

function admitted(place, isNews) {
  remember({ startAhead: undefined, best: undefined });
  setTitle(text('event.turn.mark'));
  if (isNews) alertTurn();
  stay.stopChecking ??= repeating(STAY_CHECK_MS, checkStay);
  const target = allowedReturn();
  if (target) return showTurn(target);
  if (hasStock()) return openSeats(true);
  return showTurn(null);
}

// The place may end while the person chooses: the time is over, or another tab has left the queue.
async function checkStay() {
  if (document.hidden && untilServer(room.place.activeExpiresAt) > 0) return;
  await lookUpPlace();
}

function stopChecking() {
  stay.stopChecking?.();
  stay.stopChecking = null;
}

// The address to go back to, if it may be: on this server, or on a host that the event names.
// Anything else would make this page a way to send people to any site.
function allowedReturn() {
  if (returnTo === null || !URL.canParse(returnTo, location.href)) return null;
  const url = new URL(returnTo, location.href);
  if (url.pathname + url.search === location.pathname + location.search) return null; // would load itself for ever
  if (!/^https?:$/.test(url.protocol) || url.username || url.password) return null;
  if (url.origin === location.origin) return url;
  return (room.event.returnHosts ?? []).includes(url.host) ? url : null;
}

function showTurn(target) {
  showView('turn', (parts) => {
    const began = performance.now();
    setHidden(parts.go, target === null);
    const where = target && target.origin !== location.origin ? target.host : room.event.page?.name || room.event.title;
    if (target) {
      parts.go.href = target.href;
      parts.go.textContent = text('event.turn.go');
      parts.detail.textContent = text('event.turn.detail', { host: where });
    } else parts.detail.textContent = text(returnTo === null ? 'event.turn.goBack' : 'event.turn.notAllowed');
    const actions = element('div', { class: 'below' }, element('button', { type: 'button', class: 'button quiet', text: text('event.leave.buttonActive'), click: leave }));
    parts.root.after(actions);
    let isGoing = false;
    return ticking(() => {
      setText(parts.stay, clockText(untilServer(room.place.activeExpiresAt)));
      if (!target || isGoing || performance.now() - began < RETURN_MS) return;
      isGoing = true;
      location.assign(target.href);
    });
  });
}

// ---------------------------------------------------------------------------------------- seats

let seats = null;

// Loads seats.js. `canChoose`: the stay is running; else only the person's reservations are shown.
async function openSeats(canChoose) {
  if (!seats) {
    try {
      seats = await import(byId('main').dataset.seats);
    } catch {
      connectionLost();
      await pause(retryDelay(2));
      return lookUpPlace();
    }
    connectionWorks();
  }
  if (canChoose && room.place?.status !== 'ACTIVE') return undefined;
  if (canChoose) {
    view.stop();
    Object.assign(view, { name: 'seats', parts: null, stop: () => {} });
    byId('view').replaceChildren();
  }
  setHidden(byId('seats'), false);
  return seats.show({ node: byId('seats'), room, canChoose, leave, lookUpPlace, onBookings, remember, recall });
}

// ------------------------------------------------------------------------------------- the end

function ended({ status, activeExpiresAt }, before) {
  stopChecking();
  const wasActive = before === 'ACTIVE' || activeExpiresAt;
  if (before !== null && ['WAITING', 'ACTIVE'].includes(before)) remember({ ended: wasActive ? 'stay' : 'place' });
  const was = recall().ended ?? 'place';
  remember({ startAhead: undefined, best: undefined });
  const names = { COMPLETED: 'completed', LEFT: 'left', EXPIRED: was === 'stay' ? 'stayOver' : 'expired', NONE: 'expired' };
  if (status === 'EXPIRED' && room.event.closesAt !== null && untilServer(room.event.closesAt) <= 0) showMessage('closed');
  else showMessage(names[status] ?? 'expired', { values: { time: room.event.graceSeconds ? lengthText(room.event.graceSeconds) : '' }, action: enterAgain(status !== 'COMPLETED') });
  if (was === 'stay' || status === 'COMPLETED') openSeats(false);
}

// A place that was completed says so. What was bought may have been cancelled since.
function onBookings(count) {
  if (room.place?.status === 'COMPLETED') showMessage(count > 0 ? 'completed' : 'completedNone', { action: enterAgain(false) });
}

// ---------------------------------------------------------------------------------------- start

async function start() {
  showLanguages();
  if (!(await loadEvent())) return showMessage('notFound');
  // Without a hint that there is a place nothing is asked for: the answer would be an error.
  if (recall().status) return lookUpPlace();
  return showWithoutPlace();
}

start();
