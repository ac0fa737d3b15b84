// admin.js: for operators: events and queues at a glance, live charts, controls, the audit trail, the
// form of an event, and the crowd simulator of demo servers. The key is in a variable only: it is sent
// as a header, and forgotten with the page.

const HISTORY_MS = 5 * 60 * 1000; // what the charts show at most
const RATE_MS = 5000; // rates are those of about the last so many milliseconds
const WAIT_MS = 15000; // and waits
const AUDIT_PAGE = 50;
const ROLES = { read: 0, operate: 1, own: 2 };

const admin = {
  key: null,
  role: null, // read, operate or own
  stats: null, // the latest figures
  history: new Map(), // by "TYPE/ID": samples, oldest first
  process: [], // samples of the node
  stream: null, // of all events: { stop }
  oneStream: null, // of an event that is not among those: { name, stop }
  view: null, // { root, update(stats), close() }
  hasSimulator: false,
};

const nameOf = ({ eventType, eventId }) => `${eventType}/${eventId}`;
const pathOf = (name) => name.split('/').map(encodeURIComponent).join('/');
const may = (role) => ROLES[admin.role] >= ROLES[role];
const call = (method, path, body, headers = {}) => send(method, path, { body, headers: { Authorization: `Bearer ${admin.key}`, ...headers } });
const has = (stats, name) => stats?.events.find((event) => nameOf(event) === name) ?? null;

// What a refused request says, in the server's words.
function reasonOf(answer) {
  if (answer.status === 0) return text('admin.error.unreachable');
  if (answer.status === 401) return text('admin.signIn.wrong');
  if (answer.status === 429 && answer.retryAfterMs > 0) return text('admin.signIn.wait', { seconds: Math.ceil(answer.retryAfterMs / 1000) });
  return answer.body?.detail ?? answer.body?.title ?? text('admin.error.status', { status: answer.status });
}

// ------------------------------------------------------------------------------------- numbers

const compact = new Intl.NumberFormat(language, { notation: 'compact', maximumFractionDigits: 1 });
const oneDecimal = new Intl.NumberFormat(language, { maximumFractionDigits: 1 });
const count = (value) => (value >= 1e6 ? compact.format(value) : number(value));
const NOTHING = '–';

function milliseconds(value) {
  if (value === null) return NOTHING;
  if (value < 1) return `${new Intl.NumberFormat(language, { maximumSignificantDigits: 2 }).format(value)} ms`;
  if (value >= 100 && value < 1000) return `${Math.round(value)} ms`;
  return value < 1000 ? `${oneDecimal.format(value)} ms` : `${oneDecimal.format(value / 1000)} s`;
}

const seconds = (value) => (value === null ? NOTHING : value < 120 ? `${oneDecimal.format(value)} s` : lengthText(value));
const perSecond = (value) => (value === null ? NOTHING : oneDecimal.format(value));

// ------------------------------------------------------------------------------------- signing in

async function signIn(submitted) {
  submitted.preventDefault();
  const button = byId('sign-in-form').querySelector('button');
  admin.key = byId('key').value.trim();
  setText(byId('key-error'), '');
  if (admin.key === '') return refuseKey(text('admin.signIn.missing'));
  if (!/^[\x21-\x7e]+$/.test(admin.key)) return refuseKey(text('admin.signIn.wrong'));
  button.disabled = true;
  const key = await call('GET', '/admin/key');
  const answer = key.ok ? await call('GET', '/admin/stats') : key;
  button.disabled = false;
  if (!answer.ok) return refuseKey(reasonOf(answer));
  byId('key').value = '';
  byId('key').removeAttribute('aria-invalid');
  admin.role = key.body.role;
  await enter(answer.body);
}

function refuseKey(reason) {
  admin.key = null;
  setText(byId('key-error'), reason);
  byId('key').setAttribute('aria-invalid', 'true');
  byId('key').focus();
}

async function enter(stats) {
  setText(byId('who'), text(`admin.role.${admin.role}`));
  for (const id of ['who', 'sign-out', 'inside']) byId(id).hidden = false;
  byId('sign-in').hidden = true;
  takeStats(stats);
  admin.stream = followStats('', takeStats);
  admin.hasSimulator = (await call('GET', '/admin/simulator')).ok;
  byId('nav-simulator').hidden = !admin.hasSimulator;
  showPlace();
  byId('main').focus();
}

function signOut(reason = '') {
  closeView();
  admin.stream?.stop();
  Object.assign(admin, { key: null, role: null, stats: null, stream: null, hasSimulator: false, process: [] });
  admin.history.clear();
  for (const id of ['who', 'sign-out', 'inside', 'connection', 'degraded']) byId(id).hidden = true;
  byId('sign-in').hidden = false;
  setText(byId('key-error'), reason);
  byId('key').focus();
}

// ------------------------------------------------------------------------------------- the figures

// An EventSource can't send the key, so the stream is read with fetch. It is opened again whenever it
// ends; stop() ends it for good.
function followStats(query, take) {
  const aborter = new AbortController();
  const run = async () => {
    for (let failures = 0; !aborter.signal.aborted; failures++) {
      const refusal = await readStream(`/admin/stats/stream${query}`, aborter.signal, (stats) => {
        failures = 0;
        setHidden(byId('connection'), true);
        take(stats);
      });
      if (aborter.signal.aborted) return;
      if (refusal === 401 || refusal === 403) return signOut(text('admin.signIn.over'));
      if (failures > 0 || refusal !== 200) setHidden(byId('connection'), false);
      await pause(retryDelay(failures));
    }
  };
  run();
  return { stop: () => aborter.abort() };
}

// Reads a stream to its end. Returns the status of the answer; 0: there was none.
async function readStream(path, signal, take) {
  try {
    const response = await fetch(path, { headers: { Authorization: `Bearer ${admin.key}`, Accept: 'text/event-stream' }, signal });
    if (!response.ok) return response.status;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return 200;
      rest += value;
      const blocks = rest.split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split('\n').find((line) => line.startsWith('data: '));
        if (data !== undefined) take(JSON.parse(data.slice(6)));
      }
    }
  } catch {
    return 0;
  }
}

function keepSince(samples, sample) {
  samples.push(sample);
  while (sample.at - samples[0].at > HISTORY_MS + 5000) samples.shift();
}

function remember(stats) {
  const at = Date.parse(stats.serverTime);
  for (const event of stats.events) {
    const name = nameOf(event);
    if (!admin.history.has(name)) admin.history.set(name, []);
    const samples = admin.history.get(name);
    if (samples.at(-1)?.at >= at) continue;
    const { waiting, active, admitted, avgWaitSeconds, seats } = event;
    keepSince(samples, { at, waiting, active, admitted, waited: avgWaitSeconds * admitted, ...seats });
  }
  if (!(admin.process.at(-1)?.at >= at)) keepSince(admin.process, { at, p50: stats.latency.requests.p50Ms, p99: stats.latency.requests.p99Ms });
}

function takeStats(stats) {
  admin.stats = stats;
  setHidden(byId('degraded'), !stats.degraded);
  remember(stats);
  admin.view?.update(stats);
}

// How much a total has grown per second, at each sample; null where nothing is known.
function rates(samples, total) {
  let from = 0;
  return samples.map((sample, i) => {
    while (sample.at - samples[from].at > RATE_MS) from++;
    const before = samples[from];
    return i === from ? null : (Math.max(0, total(sample) - total(before)) * 1000) / (sample.at - before.at);
  });
}

// The average wait of users who were admitted recently; null if none was.
function waits(samples) {
  let from = 0;
  return samples.map((sample) => {
    while (sample.at - samples[from].at > WAIT_MS) from++;
    const admitted = sample.admitted - samples[from].admitted;
    return admitted > 0 ? Math.max(0, sample.waited - samples[from].waited) / admitted : null;
  });
}

// ------------------------------------------------------------------------------------- charts

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 300;
const HEIGHT = 90;

function svg(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A chart of the last five minutes: `series` are lines, or with `stacked` areas above each other. The
// numbers are in the text above it, so a screen reader needs no more.
function makeChart({ title, series, format, stacked = false }) {
  const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) picture.append(svg('line', { x1: 0, x2: WIDTH, y1: y, y2: y, class: 'grid' }));
  const paths = series.map((name) => svg('path', { class: `${stacked ? 'area' : 'line'} ${name}` }));
  // Each area begins at the bottom, so the lowest one is drawn last.
  picture.append(...(stacked ? [...paths].reverse() : paths));
  const values = series.map((name) =>
    element('span', { class: 'chart-value' },
      ...(series.length === 1 ? [] : [
        element('span', { class: `swatch-line ${name}`, 'aria-hidden': 'true' }),
        element('span', { class: 'muted small', text: text(`admin.series.${name}`) }),
      ]),
      element('span', { class: 'chart-number', text: NOTHING }),
    ),
  );
  const most = element('span', { class: 'chart-most', 'aria-hidden': 'true' });
  const from = element('span');
  const root = element('figure', { class: 'chart' },
    element('figcaption', {}, element('span', { class: 'chart-title', text: title }), element('span', { class: 'chart-values' }, ...values)),
    element('div', { class: 'chart-frame', 'aria-hidden': 'true' }, picture, most),
    element('div', { class: 'chart-times', 'aria-hidden': 'true' }, from, element('span', { text: text('admin.chart.now') })),
  );

  const draw = (times, rows) => {
    const shown = stacked ? rows.map((row, i) => row.map((value, k) => rows.slice(0, i + 1).reduce((sum, one) => sum + (one[k] ?? 0), 0))) : rows;
    const highest = Math.max(...shown.flat().filter((value) => value !== null), 0);
    const top = stacked && highest > 0 ? highest : niceAbove(highest);
    const now = times.at(-1) ?? 0;
    const span = spanOf(now - (times[0] ?? now));
    setText(from, text('admin.chart.from', { time: lengthText(span / 1000) }));
    const x = (at) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
    const y = (value) => (HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1);
    setText(most, highest > 0 ? format(top) : '');
    rows.forEach((row, i) => {
      const points = [];
      let isGap = true;
      shown[i].forEach((value, k) => {
        if (value === null) isGap = true;
        else {
          points.push(`${isGap && !stacked ? 'M' : points.length === 0 ? 'M' : 'L'}${x(times[k])} ${y(value)}`);
          isGap = false;
        }
      });
      if (stacked && points.length > 0) points.push(`L${x(now)} ${HEIGHT} L${x(times[0])} ${HEIGHT} Z`);
      // A single value has no length: a short line shows it.
      if (!stacked && points.length === 1) points.push('h1');
      paths[i].setAttribute('d', points.join(''));
      const last = row.at(-1);
      setText(values[i].lastElementChild, last === null || last === undefined ? NOTHING : format(last));
    });
  };
  return { root, draw };
}

// As long as little is known, a chart shows less than five minutes.
const spanOf = (knownMs) => [1, 2, 3, 4].map((minutes) => minutes * 60000).find((span) => span >= knownMs) ?? HISTORY_MS;

// 1, 2 or 5 times a power of ten, and at least the value.
function niceAbove(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((times) => times * power).find((one) => one >= value * 0.999);
}

// ------------------------------------------------------------------------------------- places

const places = {
  events: () => eventsView(),
  event: (name) => eventView(name),
  new: () => formView(null),
  edit: (name) => formView(name),
  audit: () => auditView(),
  simulator: () => (admin.hasSimulator ? simulatorView() : eventsView()),
};

const link = (place, name) => `#/${place}${name === undefined ? '' : `/${pathOf(name)}`}`;

function go(place, name) {
  const to = link(place, name);
  if (location.hash === to) showPlace();
  else location.hash = to;
}

function closeView() {
  admin.view?.close?.();
  admin.view = null;
  admin.oneStream?.stop();
  admin.oneStream = null;
  byId('view').replaceChildren();
}

// What the part of the address behind # names.
function showPlace() {
  if (admin.key === null) return;
  const [, place = 'events', ...rest] = location.hash.split('/');
  const name = rest.length === 2 ? rest.map(decodeURIComponent).join('/') : null;
  closeView();
  const isKnown = Object.hasOwn(places, place) && (name !== null) === ['event', 'edit'].includes(place);
  const view = isKnown ? places[place](name) : eventsView();
  admin.view = view;
  byId('view').append(view.root);
  const group = { audit: 'audit', simulator: 'simulator' }[place] ?? 'events';
  for (const one of byId('places').children) {
    if (one.dataset.place === group) one.setAttribute('aria-current', 'page');
    else one.removeAttribute('aria-current');
  }
  document.title = `${view.title} · ${text('admin.title')}`;
  if (admin.stats !== null) view.update(admin.stats);
}

const heading = (title, ...beside) =>
  element('div', { class: 'view-head' }, element('h2', { tabindex: '-1', dir: 'auto', text: title }), element('div', { class: 'actions' }, ...beside));

// Why something can't be done with this key; null: it can.
const whyNot = (role) => (may(role) ? null : text('admin.role.needs', { has: text(`admin.role.${admin.role}`), needs: text(`admin.role.${role}`) }));

const stateBadge = (state) => element('span', { class: `badge ${state.toLowerCase()}`, text: text(`admin.state.${state}`) });

function setBadge(badge, state) {
  badge.className = `badge ${state.toLowerCase()}`;
  setText(badge, text(`admin.state.${state}`));
}

// A bar of seats by state, and the same in words.
function makeSeatsBar() {
  const parts = ['confirmed', 'held'].map((name) => element('span', { class: `seats-part ${name}` }));
  const words = element('span', { class: 'small muted' });
  const root = element('span', { class: 'seats-cell' }, element('span', { class: 'seats-bar', 'aria-hidden': 'true' }, ...parts), words);
  const update = ({ available, held, confirmed }) => {
    const all = available + held + confirmed;
    [confirmed, held].forEach((seats, i) => parts[i].style.setProperty('width', `${all === 0 ? 0 : (100 * seats) / all}%`));
    setText(words, all === 0 ? text('admin.seats.none') : text('admin.seats.words', { confirmed, held, available }));
  };
  return { root, update };
}

// ------------------------------------------------------------------------------------- all events

function figure(label) {
  const value = element('dd', { text: NOTHING });
  return { value, root: element('div', {}, element('dt', { text: label }), value) };
}

function eventsView() {
  const names = ['waiting', 'active', 'sold', 'requests', 'answer', 'commit', 'streams', 'nodes'];
  const figures = Object.fromEntries(names.map((name) => [name, figure(text(`admin.figure.${name}`))]));
  const body = element('tbody');
  const rows = new Map();
  const empty = element('p', { class: 'empty', text: text('admin.events.none'), hidden: true });
  const more = element('p', { class: 'muted small', hidden: true });
  const why = whyNot('own');
  const create = element('button', { type: 'button', class: 'button primary', disabled: why !== null, 'aria-describedby': why && 'create-why', click: () => go('new'), text: text('admin.events.new') });
  const columns = ['event', 'state', 'waiting', 'active', 'admitted', 'seats'];
  const numeric = ['waiting', 'active', 'admitted'];
  const table = element('table', { class: 'table events-table' },
    element('caption', { class: 'visually-hidden', text: text('admin.nav.events') }),
    element('thead', {}, element('tr', {}, ...columns.map((name) => element('th', { scope: 'col', class: numeric.includes(name) && 'number', text: text(`admin.column.${name}`) })))),
    body,
  );
  const root = element('section', {},
    element('dl', { class: 'figures' }, ...names.map((name) => figures[name].root)),
    heading(text('admin.nav.events'), create),
    why && element('p', { class: 'hint', id: 'create-why', text: why }),
    element('div', { class: 'table-frame' }, table), empty, more,
  );

  const makeRow = (name) => {
    const cell = (column, ...children) => element('td', { class: numeric.includes(column) && 'number', 'data-label': text(`admin.column.${column}`) }, ...children);
    const parts = { title: element('a', { href: link('event', name), dir: 'auto' }), state: stateBadge('OPEN'), waiting: element('span'), active: element('span'), admitted: element('span'), seats: makeSeatsBar() };
    const row = element('tr', {},
      element('th', { scope: 'row' }, parts.title, element('span', { class: 'small muted name', text: name })),
      cell('state', parts.state), cell('waiting', parts.waiting), cell('active', parts.active), cell('admitted', parts.admitted), cell('seats', parts.seats.root),
    );
    rows.set(name, { row, parts });
    return rows.get(name);
  };

  // The order stays while the list is looked at, so that nothing jumps away from under the pointer; a
  // new event is added at the end.
  const update = (stats) => {
    const there = new Set(stats.events.map(nameOf));
    for (const [name, { row }] of rows) {
      if (there.has(name)) continue;
      row.remove();
      rows.delete(name);
    }
    for (const event of stats.events) {
      const name = nameOf(event);
      const { row, parts } = rows.get(name) ?? makeRow(name);
      if (!row.isConnected) body.append(row);
      setText(parts.title, event.title);
      setBadge(parts.state, event.eventState);
      setText(parts.waiting, count(event.waiting));
      setText(parts.active, count(event.active));
      setText(parts.admitted, perSecond(rates(admin.history.get(name).slice(-12), (sample) => sample.admitted).at(-1)));
      parts.seats.update(event.seats);
    }
    setHidden(empty, stats.events.length > 0);
    setHidden(table, stats.events.length === 0);
    setHidden(more, !stats.truncated);
    if (stats.truncated) setText(more, text('admin.events.more', { shown: stats.events.length, all: stats.eventCount }));
    const { totals, latency } = stats;
    const values = {
      waiting: count(totals.waiting),
      active: count(totals.active),
      sold: count(totals.seats.confirmed),
      requests: perSecond(latency.requests.perSecond),
      answer: milliseconds(latency.requests.p99Ms),
      commit: milliseconds(latency.ledger.p99Ms),
      streams: count(stats.sseStreams),
      nodes: count(stats.nodes),
    };
    for (const name of names) setText(figures[name].value, values[name]);
  };
  return { root, update, title: text('admin.nav.events') };
}

// ------------------------------------------------------------------------------------- one event

// A line that says what an action did, or why it was refused; where the action is.
function makeOutcome() {
  const root = element('p', { class: 'outcome', role: 'status' });
  const say = (what, isWrong = false) => {
    root.className = `outcome ${isWrong ? 'wrong' : 'right'}`;
    root.textContent = what;
  };
  return { root, say };
}

const ACTIONS = [
  // verb, states from which it does something, whether it is asked about first
  ['activate', ['DRAFT', 'PAUSED', 'DRAINING', 'CLOSED'], false],
  ['pause', ['OPEN', 'DRAINING'], false],
  ['resume', ['PAUSED'], false],
  ['process', ['OPEN', 'DRAINING'], false],
  ['drain', ['OPEN', 'PAUSED'], true],
  ['deactivate', ['OPEN', 'PAUSED', 'DRAINING', 'DRAFT'], true],
];
const RULES = ['entryBatchSize', 'entryIntervalSeconds', 'maxActive', 'maxWaiting', 'activeTtlSeconds', 'graceSeconds'];
const MODES = ['slot', 'lock', 'adaptive', 'seat'];
const SECTION_STATES = ['open', 'closed', 'maintenance'];

function eventView(name) {
  const path = pathOf(name);
  const charts = {
    waiting: makeChart({ title: text('admin.chart.waiting'), series: ['waiting', 'active'], format: count }),
    admitted: makeChart({ title: text('admin.chart.admitted'), series: ['admitted'], format: perSecond }),
    wait: makeChart({ title: text('admin.chart.wait'), series: ['wait'], format: seconds }),
    latency: makeChart({ title: text('admin.chart.latency'), series: ['p50', 'p99'], format: milliseconds }),
    seats: makeChart({ title: text('admin.chart.seats'), series: ['confirmed', 'held', 'available'], format: count, stacked: true }),
  };
  const title = element('h2', { tabindex: '-1', dir: 'auto', text: name });
  const state = stateBadge('DRAFT');
  const facts = ['entered', 'completed', 'rejected', 'successRate', 'avgWait', 'maxWait', 'streams'].map((one) => [one, figure(text(`admin.fact.${one}`))]);
  const gone = element('p', { class: 'connection lost', text: text('admin.event.gone'), hidden: true });
  const controls = element('div', { class: 'panels' });
  const edit = element('button', { type: 'button', class: 'button', disabled: !may('own'), click: () => go('edit', name), text: text('admin.event.edit') });
  const root = element('section', { class: 'one-event' },
    element('p', {}, element('a', { href: link('events'), text: text('admin.event.back') })),
    element('div', { class: 'view-head' },
      element('div', {}, title, element('p', { class: 'muted' }, state, ` ${name}`)),
      element('div', { class: 'actions' }, element('a', { class: 'button', href: `/e/${path}`, target: '_blank', rel: 'noopener', text: text('admin.event.page') }), edit),
    ),
    gone,
    element('div', { class: 'charts' }, ...Object.values(charts).map((chart) => chart.root)),
    element('dl', { class: 'figures' }, ...facts.map(([, one]) => one.root)),
    controls,
  );
  const shown = { event: null, queue: null };
  let wasSeen = false;

  const update = (stats) => {
    const event = has(stats, name);
    if (event === null) {
      if (stats.truncated && admin.oneStream === null) admin.oneStream = followStats(`?event=${path.split('/').join('%2F')}`, (one) => {
        remember(one);
        update(one);
      });
      // One that was just created is not in the figures yet.
      if (wasSeen && (!stats.truncated || stats.eventCount === 0)) setHidden(gone, false);
      return;
    }
    wasSeen = true;
    setHidden(gone, true);
    setText(title, event.title);
    setBadge(state, event.eventState);
    const samples = admin.history.get(name).filter(({ at }) => Date.parse(stats.serverTime) - at <= HISTORY_MS);
    const times = samples.map(({ at }) => at);
    charts.waiting.draw(times, [samples.map((one) => one.waiting), samples.map((one) => one.active)]);
    charts.admitted.draw(times, [rates(samples, (one) => one.admitted)]);
    charts.wait.draw(times, [waits(samples)]);
    charts.seats.draw(times, ['confirmed', 'held', 'available'].map((one) => samples.map((sample) => sample[one])));
    const process = admin.process.filter(({ at }) => Date.parse(stats.serverTime) - at <= HISTORY_MS);
    charts.latency.draw(process.map(({ at }) => at), [process.map(({ p50 }) => p50), process.map(({ p99 }) => p99)]);
    const values = {
      entered: count(event.entered),
      completed: count(event.completed),
      rejected: count(event.rejected),
      successRate: new Intl.NumberFormat(language, { style: 'percent' }).format(event.successRate),
      avgWait: seconds(event.avgWaitSeconds),
      maxWait: seconds(event.maxWaitSeconds),
      streams: count(event.sseStreams),
    };
    for (const [one, { value }] of facts) setText(value, values[one]);
    if (shown.queue !== null && event.state !== shown.queue.state) showActions(event.state);
  };

  let showActions = () => {};
  const load = async () => {
    const [event, queue] = await Promise.all([call('GET', `/admin/events/${path}`), call('GET', `/admin/queue/${path}`)]);
    if (!event.ok || !queue.ok) {
      controls.replaceChildren(element('p', { class: 'outcome wrong', role: 'alert', text: reasonOf(event.ok ? queue : event) }));
      return;
    }
    Object.assign(shown, { event: event.body, queue: queue.body });
    setText(title, event.body.title);
    setBadge(state, event.body.state);
    const actions = actionsPanel(path, shown);
    showActions = actions.show;
    controls.replaceChildren(
      ...(may('operate') ? [] : [element('p', { class: 'panel-why hint', id: 'operate-why', text: whyNot('operate') })]),
      actions.root, noticePanel(path, shown), rulesPanel(path, shown), sectionsPanel(path, shown), ...(may('own') ? [deletePanel(path, name)] : []),
    );
  };
  load();
  return { root, update, title: name };
}

const panel = (title, hint, ...children) =>
  element('section', { class: 'panel' }, element('h3', { text: title }), hint && element('p', { class: 'hint', text: hint }), ...children);

// A set of controls that only some roles may use: disabled as a whole for the others.
const controlSet = (role, ...children) => element('fieldset', { class: 'control-set', disabled: !may(role), 'aria-describedby': !may(role) && 'operate-why' }, ...children);

function actionsPanel(path, shown) {
  const outcome = makeOutcome();
  const hints = element('p', { class: 'hint' });
  const buttons = ACTIONS.map(([verb, , isAsked]) =>
    element('button', {
      type: 'button',
      class: 'button',
      text: text(`admin.action.${verb}`),
      click: async () => {
        const question = { title: text(`admin.ask.${verb}.title`), detail: text(`admin.ask.${verb}.detail`), yes: text(`admin.action.${verb}`), no: text('admin.no') };
        if (isAsked && !(await ask(question))) return;
        const answer = await call('POST', `/admin/queue/${path}/${verb}`);
        if (!answer.ok) return outcome.say(reasonOf(answer), true);
        shown.queue = answer.body;
        show(answer.body.state);
        outcome.say(verb === 'process' ? text('admin.done.process', { count: answer.body.processed }) : text('admin.done.state', { state: text(`admin.state.${answer.body.state}`) }));
      },
    }),
  );
  const show = (state) => {
    shown.queue.state = state;
    ACTIONS.forEach(([, from], i) => {
      buttons[i].disabled = !from.includes(state);
    });
    setText(hints, text(`admin.state.${state}.means`));
  };
  show(shown.queue.state);
  return { show, root: panel(text('admin.panel.actions'), null, hints, controlSet('operate', element('div', { class: 'actions' }, ...buttons)), outcome.root) };
}

function rulesPanel(path, shown) {
  const outcome = makeOutcome();
  const fields = RULES.map((name) => makeField({ name, key: `queue.${name}`, kind: 'number' }, shown.queue.queue[name]));
  const save = element('button', { type: 'submit', class: 'button primary', text: text('admin.save') });
  const form = element('form', { novalidate: true, submit: async (submitted) => {
    submitted.preventDefault();
    for (const field of fields) field.refuse('');
    const changed = Object.fromEntries(fields.filter((field) => field.hasChanged()).map((field) => [field.name, field.read()]));
    if (Object.keys(changed).length === 0) return outcome.say(text('admin.unchanged'));
    const answer = await call('PATCH', `/admin/queue/${path}`, changed);
    if (!answer.ok) return showRefusal(fields, answer, outcome);
    for (const field of fields) field.set(answer.body.queue[field.name]);
    outcome.say(text('admin.saved'));
  } }, controlSet('operate', element('div', { class: 'fields' }, ...fields.map((field) => field.root)), element('div', { class: 'actions' }, save)), outcome.root);
  return panel(text('admin.panel.rules'), text('admin.panel.rules.hint'), form);
}

function noticePanel(path, shown) {
  const outcome = makeOutcome();
  const field = makeField({ name: 'notice', key: 'notice', kind: 'long' }, shown.event.notice ?? shown.queue.notice ?? '');
  const store = async (notice) => {
    field.refuse('');
    const answer = await call('PATCH', `/admin/queue/${path}`, { notice });
    if (!answer.ok) return showRefusal([field], answer, outcome);
    field.set(notice ?? '');
    outcome.say(text(notice === null ? 'admin.notice.removed' : 'admin.notice.sent'));
  };
  const form = element('form', { novalidate: true, submit: (submitted) => {
    submitted.preventDefault();
    store(field.read() ?? null);
  } }, controlSet('operate', field.root, element('div', { class: 'actions' },
    element('button', { type: 'submit', class: 'button primary', text: text('admin.notice.send') }),
    element('button', { type: 'button', class: 'button', text: text('admin.notice.remove'), click: () => store(null) }),
  )), outcome.root);
  return panel(text('admin.panel.notice'), text('admin.panel.notice.hint'), form);
}

function sectionsPanel(path, shown) {
  const outcome = makeOutcome();
  const choice = (section, member, words, role) => {
    const select = element('select', { 'aria-label': `${text(`admin.field.section.${member}`)}: ${section.name}`, disabled: !may(role) }, ...words.map((word) => element('option', { value: word, text: text(`admin.${member}.${word}`) })));
    select.value = section[member];
    select.addEventListener('change', async () => {
      const wanted = select.value;
      const question = { title: text('admin.ask.section.title', { section: section.name }), detail: text(`admin.ask.section.${member}`), yes: text('admin.yes'), no: text('admin.no') };
      select.value = section[member];
      if (!(member === 'status' && wanted === 'open') && !(await ask(question))) return;
      const answer = await call('PATCH', `/admin/events/${path}/sections/${encodeURIComponent(section.id)}`, { [member]: wanted });
      if (!answer.ok) return outcome.say(reasonOf(answer), true);
      section[member] = wanted;
      select.value = wanted;
      outcome.say(text('admin.saved'));
    });
    return select;
  };
  const rows = shown.event.sections.map((section) =>
    element('tr', {},
      element('th', { scope: 'row', dir: 'auto', text: section.name }),
      element('td', { class: 'number', 'data-label': text('admin.field.section.capacity'), text: number(section.capacity) }),
      element('td', { class: 'number', 'data-label': text('admin.field.section.price'), text: money(section.price, shown.event.currency) }),
      element('td', { 'data-label': text('admin.field.section.mode') }, choice(section, 'mode', MODES, 'own')),
      element('td', { 'data-label': text('admin.field.section.status') }, choice(section, 'status', SECTION_STATES, 'operate')),
    ),
  );
  const columns = [['name'], ['capacity', 'number'], ['price', 'number'], ['mode'], ['status']];
  const table = element('table', { class: 'table' },
    element('caption', { class: 'visually-hidden', text: text('admin.panel.sections') }),
    element('thead', {}, element('tr', {}, ...columns.map(([name, kind]) => element('th', { scope: 'col', class: kind, text: text(`admin.field.section.${name}`) })))),
    element('tbody', {}, ...rows),
  );
  const why = may('own') ? text('admin.panel.sections.hint') : whyNot('own');
  return panel(text('admin.panel.sections'), why, rows.length > 0 ? element('div', { class: 'table-frame' }, table) : element('p', { class: 'empty', text: text('admin.seats.none') }), outcome.root);
}

function deletePanel(path, name) {
  const outcome = makeOutcome();
  const button = element('button', { type: 'button', class: 'button danger', text: text('admin.delete.button'), click: async () => {
    if (!(await ask({ title: text('admin.ask.delete.title', { name }), detail: text('admin.ask.delete.detail'), yes: text('admin.delete.button'), no: text('admin.no') }))) return;
    const answer = await call('DELETE', `/admin/events/${path}`);
    if (!answer.ok) return outcome.say(reasonOf(answer), true);
    announce(text('admin.deleted', { name }));
    go('events');
  } });
  return panel(text('admin.panel.delete'), text('admin.panel.delete.hint'), element('div', { class: 'actions' }, button), outcome.root);
}

// ------------------------------------------------------------------------------------- fields

let fieldNumber = 0;

// One labelled input with its explanation and its error. `kind`: text, number, time, choice (with
// `words`), check, long, lines (a list, one to a line) or colour. An empty field is absent: the server's default holds.
function makeField({ name, key, kind, words = [], wordKey = null, required = false, more = {} }, initial) {
  const id = `field-${++fieldNumber}`;
  const about = { id, 'aria-describedby': `${id}-hint ${id}-error`, 'aria-required': required && 'true', ...more };
  const inputs = {
    text: () => element('input', { type: 'text', autocomplete: 'off', ...about }),
    number: () => element('input', { type: 'text', inputmode: 'numeric', autocomplete: 'off', ...about }),
    time: () => element('input', { type: 'datetime-local', step: '1', ...about }),
    choice: () => element('select', about, ...words.map((word) => element('option', { value: word, text: wordKey === null ? word : text(`admin.${wordKey}.${word || 'default'}`) }))),
    check: () => element('input', { type: 'checkbox', ...about }),
    long: () => element('textarea', { rows: '3', ...about }),
    lines: () => element('textarea', { rows: '2', ...about }),
  };
  const input = inputs[kind]();
  const hint = element('p', { class: 'hint', id: `${id}-hint`, text: text(`admin.hint.${key}`) });
  const error = element('p', { class: 'wrong', id: `${id}-error` });
  const label = element('label', { for: id, text: text(`admin.field.${key}`) });
  const root = kind === 'check'
    ? element('div', { class: 'field check' }, element('div', {}, input, label), hint, error)
    : element('div', { class: 'field' }, label, input, hint, error);

  const write = (value) => {
    if (kind === 'check') input.checked = value === true;
    else if (kind === 'time') input.value = value ? localTime(value) : '';
    else if (kind === 'lines') input.value = (value ?? []).join('\n');
    else input.value = String(value ?? words[0] ?? '');
  };
  // undefined: the field is empty. What is no number is sent as it is, so that the server says why.
  const read = () => {
    if (kind === 'check') return input.checked;
    const value = input.value.trim();
    if (kind === 'lines') return value === '' ? undefined : value.split(/\s+/);
    if (value === '') return undefined;
    if (kind === 'number') return /^-?\d{1,15}$/.test(value.replace(/[ ,_]/g, '')) ? Number(value.replace(/[ ,_]/g, '')) : value;
    return kind === 'time' ? new Date(value).toISOString() : value;
  };
  const field = { name, key, root, input, read, before: undefined };
  field.hasChanged = () => JSON.stringify(read()) !== JSON.stringify(field.before);
  field.set = (value) => {
    write(value);
    field.before = read();
  };
  field.refuse = (why) => {
    setText(error, why);
    if (why === '') input.removeAttribute('aria-invalid');
    else input.setAttribute('aria-invalid', 'true');
  };
  field.set(initial);
  return field;
}

// As an input of type datetime-local wants it: in the browser's time zone.
function localTime(time) {
  const at = new Date(time);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

// The field that the server's words are about. They begin with its name, as in "queue.maxActive must
// be a whole number from 1 to 1000000." or "sections[0].capacity is required."
function fieldNamed(fields, answer) {
  const detail = answer.body?.detail ?? '';
  const [, named = ''] = /^((?:\w+(?:\[\d+\])?\.)*\w+)/.exec(detail) ?? [];
  return fields.find(({ at = null, key }) => (at ?? key) === named) ?? fields.find(({ name }) => name === named) ?? null;
}

// Shows a refusal at the field that it names, or else below the form.
function showRefusal(fields, answer, outcome, otherwise = null) {
  const field = fieldNamed(fields, answer) ?? otherwise;
  if (field === null) return outcome.say(reasonOf(answer), true);
  field.refuse(reasonOf(answer));
  outcome.say(text('admin.form.wrong'), true);
  field.input.focus();
}

// ------------------------------------------------------------------------------------- the form of an event

const GROUPS = [
  ['what', [
    { name: 'title', kind: 'text', required: true, more: { dir: 'auto' } },
    { name: 'state', kind: 'choice', words: ['OPEN', 'DRAFT', 'PAUSED', 'DRAINING', 'CLOSED'], wordKey: 'state' },
    { name: 'opensAt', kind: 'time' },
    { name: 'closesAt', kind: 'time' },
    { name: 'startsAt', kind: 'time' },
  ]],
  ['queue', [...RULES, 'tokenTtlSeconds'].map((name) => ({ name, group: 'queue', kind: 'number' }))],
  ['buying', [
    { name: 'maxPerUser', kind: 'number' },
    { name: 'holdSeconds', kind: 'number' },
    { name: 'reholdSeconds', kind: 'number' },
    { name: 'maxHoldsPerStay', kind: 'number' },
    { name: 'currency', kind: 'text' },
    { name: 'confirmBy', kind: 'choice', words: ['', 'user', 'shop'], wordKey: 'confirmBy' },
    { name: 'autoEnter', kind: 'check' },
    { name: 'cancelConfirmed', kind: 'check' },
  ]],
  ['page', [
    { name: 'name', group: 'page', kind: 'text' },
    { name: 'accent', group: 'page', kind: 'text' },
    { name: 'logo', group: 'page', kind: 'text' },
    { name: 'returnHosts', kind: 'lines' },
  ]],
];
const SECTION_FIELDS = [
  { name: 'id', kind: 'text', required: true },
  { name: 'name', kind: 'text', more: { dir: 'auto' } },
  { name: 'capacity', kind: 'number', required: true },
  { name: 'price', kind: 'number' },
  { name: 'mode', kind: 'choice', words: MODES },
  { name: 'status', kind: 'choice', words: SECTION_STATES, wordKey: 'status' },
];

function formView(name) {
  const isNew = name === null;
  const holder = element('div', {}, element('p', { class: 'muted', text: text('admin.loading') }));
  const root = element('section', {},
    element('p', {}, element('a', { href: isNew ? link('events') : link('event', name), text: text('admin.event.back') })),
    heading(isNew ? text('admin.form.new') : text('admin.form.edit', { name })),
    holder,
  );
  const load = async () => {
    if (isNew) return holder.replaceChildren(eventForm(null, {}));
    const answer = await call('GET', `/admin/events/${pathOf(name)}`);
    holder.replaceChildren(answer.ok ? eventForm(name, answer.body) : element('p', { class: 'outcome wrong', role: 'alert', text: reasonOf(answer) }));
  };
  load();
  return { root, update: () => {}, title: isNew ? text('admin.form.new') : name };
}

function eventForm(name, event) {
  const isNew = name === null;
  const outcome = makeOutcome();
  const fields = GROUPS.flatMap(([, all]) => all).map((one) => {
    const key = one.group === undefined ? one.name : `${one.group}.${one.name}`;
    const value = one.group === undefined ? event[one.name] : event[one.group]?.[one.name];
    return Object.assign(makeField({ ...one, key }, value), { group: one.group });
  });
  const named = (key) => fields.find((field) => field.key === key);
  const names = isNew ? ['eventType', 'eventId'].map((one) => makeField({ name: one, key: one, kind: 'text', required: true }, one === 'eventType' ? 'CONCERT' : '')) : [];
  const sections = makeSections(event.sections ?? (isNew ? [{}] : []));
  const all = () => [...names, ...fields, ...sections.fields()];

  // Only changed fields are sent, so that concurrent changes of other fields, and fields that this page
  // does not know, are not overwritten.
  const body = () => {
    const wanted = {};
    for (const field of fields.filter((one) => one.hasChanged())) {
      const into = field.group === undefined ? wanted : (wanted[field.group] ??= {});
      into[field.name] = field.read() ?? (isNew ? undefined : null);
    }
    if (isNew) wanted.state = named('state').read();
    if (isNew && wanted.title === undefined) wanted.title = '';
    if (isNew || sections.haveChanged()) wanted.sections = sections.read();
    return wanted;
  };

  const submit = async (submitted) => {
    submitted.preventDefault();
    for (const field of all()) field.refuse('');
    outcome.say('');
    const missing = all().find((field) => field.input.getAttribute('aria-required') === 'true' && field.read() === undefined);
    if (missing !== undefined) {
      missing.refuse(text('admin.form.required'));
      outcome.say(text('admin.form.wrong'), true);
      missing.input.focus();
      return;
    }
    const of = isNew ? `${names[0].read()}/${names[1].read()}` : name;
    const wanted = body();
    if (!isNew && Object.keys(wanted).length === 0) return outcome.say(text('admin.unchanged'));
    if (isNew && (await call('GET', `/admin/events/${pathOf(of)}`)).ok) {
      names[1].refuse(text('admin.form.exists', { name: of }));
      return names[1].input.focus();
    }
    const answer = await call(isNew ? 'PUT' : 'PATCH', `/admin/events/${pathOf(of)}`, isNew ? wanted : { ...wanted, version: event.version });
    if (answer.status === 412) return outcome.say(text('admin.form.changed'), true);
    if (!answer.ok) return showRefusal(all(), answer, outcome, otherField(answer));
    announce(text('admin.saved'));
    admin.stats = null; // without the new event
    go('event', of);
  };
  // Refusals that name no field are about these.
  const otherField = ({ code, body: problem }) => {
    if (code === 'too_many_seats' || code === 'section_in_use') return sections.fields().find((field) => field.name === 'capacity') ?? null;
    return /^An event's type/.test(problem?.detail ?? '') ? names[0] ?? null : null;
  };

  const groups = GROUPS.map(([group, list], i) =>
    element('fieldset', { class: 'group', disabled: !may('own') },
      element('legend', { text: text(`admin.group.${group}`) }),
      element('p', { class: 'hint', text: text(`admin.group.${group}.hint`) }),
      element('div', { class: 'fields' }, ...(i === 0 ? names.map((field) => field.root) : []),
        ...list.map((one) => named(one.group === undefined ? one.name : `${one.group}.${one.name}`).root)),
    ),
  );
  groups.splice(1, 0, sections.root);
  return element('form', { class: 'event-form', novalidate: true, submit },
    ...(may('own') ? [] : [element('p', { class: 'hint', text: whyNot('own') })]),
    ...groups,
    element('div', { class: 'form-end' },
      outcome.root,
      element('div', { class: 'actions' },
        element('button', { type: 'submit', class: 'button primary', disabled: !may('own'), text: text(isNew ? 'admin.form.create' : 'admin.save') }),
        element('a', { class: 'button', href: isNew ? link('events') : link('event', name), text: text('admin.form.cancel') }),
      ),
    ),
  );
}

// The rows of the sections: { root, fields, read, haveChanged }.
function makeSections(initial) {
  const rows = [];
  const list = element('div', { class: 'section-rows' });
  const number_ = () => rows.forEach((row, i) => {
    setText(row.legend, text('admin.form.section', { number: i + 1 }));
    for (const field of row.fields) field.at = `sections[${i}].${field.name}`;
  });
  const add = (section, focus = false) => {
    const fields = SECTION_FIELDS.map((one) => makeField({ ...one, key: `section.${one.name}` }, section[one.name] ?? (one.kind === 'choice' ? one.words[0] : undefined)));
    const row = { fields, legend: element('legend') };
    row.root = element('fieldset', { class: 'section-row' }, row.legend,
      element('div', { class: 'fields' }, ...fields.map((field) => field.root)),
      element('button', { type: 'button', class: 'button quiet', text: text('admin.form.removeSection'), click: () => {
        rows.splice(rows.indexOf(row), 1);
        row.root.remove();
        number_();
        more.focus();
      } }),
    );
    rows.push(row);
    list.append(row.root);
    number_();
    if (focus) fields[0].input.focus();
  };
  const more = element('button', { type: 'button', class: 'button', text: text('admin.form.addSection'), click: () => add({}, true) });
  for (const section of initial) add(section);
  const read = () => rows.map((row) => Object.fromEntries(row.fields.map((field) => [field.name, field.read()]).filter(([, value]) => value !== undefined)));
  const before = JSON.stringify(read());
  return {
    root: element('fieldset', { class: 'group', disabled: !may('own') },
      element('legend', { text: text('admin.panel.sections') }),
      element('p', { class: 'hint', text: text('admin.group.sections.hint') }), list, more),
    fields: () => rows.flatMap((row) => row.fields),
    read,
    haveChanged: () => JSON.stringify(read()) !== before,
  };
}

// ------------------------------------------------------------------------------------- the audit trail

function auditView() {
  const body = element('tbody');
  const outcome = makeOutcome();
  const older = element('button', { type: 'button', class: 'button', text: text('admin.audit.older'), click: () => load() });
  const empty = element('p', { class: 'empty', text: text('admin.audit.none'), hidden: true });
  const columns = ['at', 'actor', 'act', 'subject', 'detail'];
  const table = element('table', { class: 'table audit-table' },
    element('caption', { class: 'visually-hidden', text: text('admin.nav.audit') }),
    element('thead', {}, element('tr', {}, ...columns.map((one) => element('th', { scope: 'col', text: text(`admin.audit.${one}`) })))), body);
  const at = new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' });
  let before = null;
  const row = (one) => {
    const detail = JSON.stringify(one.detail);
    const cells = { at: at.format(new Date(one.at)), actor: one.actor, act: one.act, subject: one.subject };
    return element('tr', {},
      ...Object.entries(cells).map(([name, value]) => element('td', { 'data-label': text(`admin.audit.${name}`), dir: 'auto', text: value })),
      element('td', { 'data-label': text('admin.audit.detail') }, detail === '{}' ? NOTHING
        : detail.length < 60 ? element('code', { text: detail })
          : element('details', {}, element('summary', {}, element('code', { text: `${detail.slice(0, 48)}…` })), element('pre', { tabindex: '0', text: JSON.stringify(one.detail, null, 1) }))),
    );
  };
  const load = async () => {
    older.disabled = true;
    const answer = await call('GET', `/admin/audit?limit=${AUDIT_PAGE}${before === null ? '' : `&before=${before}`}`);
    older.disabled = false;
    if (!answer.ok) return outcome.say(reasonOf(answer), true);
    const list = answer.body.audit;
    body.append(...list.map(row));
    before = answer.body.next ?? null;
    setHidden(older, before === null);
    setHidden(empty, body.children.length > 0);
    setHidden(table, body.children.length === 0);
  };
  load();
  const root = element('section', {}, heading(text('admin.nav.audit')), element('p', { class: 'hint', text: text('admin.audit.hint') }),
    element('div', { class: 'table-frame' }, table), empty, outcome.root, element('p', {}, older));
  return { root, update: () => {}, title: text('admin.nav.audit') };
}

// ------------------------------------------------------------------------------------- the crowd simulator

const SLIDERS = [
  // name, lowest, highest, step, at the start, whether it may change while the crowd is there
  ['arrivalsPerSecond', 1, 500, 1, 50, true],
  ['users', 10, 5000, 10, 1000, false],
  ['patienceSeconds', 5, 600, 5, 120, true],
  ['buyPercent', 0, 100, 5, 70, true],
  ['thinkSeconds', 0, 60, 1, 5, false],
];
const STRATEGIES = ['', 'slot', 'lock', 'adaptive', 'optimistic', 'pessimistic', 'distributed-lock', 'queue'];
const CROWD = ['arriving', 'waiting', 'active', 'holding', 'bought', 'gaveUp', 'refused', 'errors'];

function simulatorView() {
  const outcome = makeOutcome();
  const event = element('select', { id: 'crowd-event' });
  const strategy = element('select', { id: 'crowd-strategy' }, ...STRATEGIES.map((one) => element('option', { value: one, text: one === '' ? text('admin.crowd.strategy.default') : one })));
  const picker = (select, name) => element('div', { class: 'field' }, element('label', { for: select.id, text: text(`admin.crowd.${name}`) }), select, element('p', { class: 'hint', text: text(`admin.crowd.${name}.hint`) }));
  const sliders = SLIDERS.map(([name, min, max, step, value, isLive]) => {
    const id = `crowd-${name}`;
    const input = element('input', { id, type: 'range', min, max, step, value, 'aria-describedby': `${id}-hint` });
    const output = element('output', { for: id });
    const show = () => {
      setText(output, number(Number(input.value)));
    };
    input.addEventListener('input', show);
    input.addEventListener('change', () => isLive && running && change({ [name]: Number(input.value) }));
    show();
    return { name, input, show, isLive, root: element('div', { class: 'field slider' }, element('label', { for: id, text: text(`admin.crowd.${name}`) }), output, input, element('p', { class: 'hint', id: `${id}-hint`, text: text(`admin.crowd.${name}.hint`) })) };
  });
  const start = element('button', { type: 'submit', class: 'button primary', text: text('admin.crowd.start') });
  const stop = element('button', { type: 'button', class: 'button', text: text('admin.crowd.stop'), click: () => act('DELETE') });
  const counts = CROWD.map((name) => [name, figure(text(`admin.crowd.users.${name}`))]);
  const speeds = ['requestsPerSecond', 'p50Ms', 'p99Ms'].map((name) => [name, figure(text(`admin.crowd.${name}`))]);
  const watch = element('a', { class: 'button', hidden: true, text: text('admin.crowd.watch') });
  let running = false;
  let timer = null;
  let isClosed = false;

  const show = (now) => {
    running = now.running;
    start.disabled = running;
    stop.disabled = !running;
    for (const { input, isLive } of sliders) input.disabled = running && !isLive;
    event.disabled = strategy.disabled = running;
    for (const [name, { value }] of counts) setText(value, count(now.users?.[name] ?? 0));
    setText(speeds[0][1].value, perSecond(now.requestsPerSecond ?? 0));
    setText(speeds[1][1].value, milliseconds(now.latency?.p50Ms ?? null));
    setText(speeds[2][1].value, milliseconds(now.latency?.p99Ms ?? null));
    setHidden(watch, !now.event);
    if (now.event) watch.href = link('event', now.event);
  };
  // A crowd that is there already is shown with its own settings.
  const adopt = (now) => {
    if (!now.running) return;
    for (const slider of sliders) {
      if (typeof now[slider.name] !== 'number') continue;
      slider.input.value = now[slider.name];
      slider.show();
    }
    strategy.value = now.strategy ?? '';
    event.value = now.event;
  };
  const act = async (method, body) => {
    const answer = await call(method, '/admin/simulator', body);
    if (!answer.ok) return outcome.say(reasonOf(answer), true);
    outcome.say(text(`admin.crowd.done.${method}`));
    poll(true);
  };
  const change = (body) => act('PATCH', body);
  const poll = async (once = false) => {
    const answer = await call('GET', '/admin/simulator');
    if (isClosed) return;
    if (answer.ok) show(answer.body);
    if (!once) timer = setTimeout(poll, 1000);
    return answer;
  };
  const update = (stats) => {
    const names = stats.events.map(nameOf);
    if (names.length === event.options.length && names.every((one) => [...event.options].some(({ value }) => value === one))) return;
    const chosen = event.value;
    event.replaceChildren(...stats.events.map((one) => element('option', { value: nameOf(one), text: `${one.title} (${nameOf(one)})` })));
    if (names.includes(chosen)) event.value = chosen;
  };
  const form = element('form', { novalidate: true, submit: (submitted) => {
    submitted.preventDefault();
    act('POST', { event: event.value, strategy: strategy.value || null, ...Object.fromEntries(sliders.map(({ name, input }) => [name, Number(input.value)])) });
  } },
  element('fieldset', { class: 'control-set', disabled: !may('operate') },
    element('div', { class: 'fields' }, picker(event, 'event'), picker(strategy, 'strategy'), ...sliders.map((slider) => slider.root)),
    element('div', { class: 'actions' }, start, stop, watch)), outcome.root);
  const root = element('section', {}, heading(text('admin.nav.simulator')), element('p', { class: 'hint', text: text('admin.crowd.hint') }),
    ...(may('operate') ? [] : [element('p', { class: 'hint', text: whyNot('operate') })]),
    element('dl', { class: 'figures' }, ...counts.map(([, one]) => one.root)),
    element('dl', { class: 'figures' }, ...speeds.map(([, one]) => one.root)),
    element('div', { class: 'panels' }, element('section', { class: 'panel wide' }, form)));
  if (admin.stats !== null) update(admin.stats);
  poll().then((answer) => answer?.ok && adopt(answer.body));
  return { root, update, title: text('admin.nav.simulator'), close: () => {
    isClosed = true;
    clearTimeout(timer);
  } };
}

// ------------------------------------------------------------------------------------- start

showLanguages();
byId('sign-in').hidden = false;
byId('sign-in-form').addEventListener('submit', signIn);
byId('sign-out').addEventListener('click', () => signOut());
addEventListener('hashchange', () => {
  showPlace();
  byId('view').querySelector('h2')?.focus();
  scrollTo(0, 0);
});
