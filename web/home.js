// home.js: what is on sale, and both ranking boards, live.

const EVENTS_POLL_MS = 5000;
const PAGE_SIZE = 50;

const home = {
  pages: 1, // how many pages of events are shown
  streams: {}, // by the id of the list that it fills
  lost: new Set(), // what cannot be reached at the moment
};

function reached(what, isReached) {
  if (isReached) home.lost.delete(what);
  else home.lost.add(what);
  setHidden(byId('connection'), home.lost.size === 0);
}

const eventLink = ({ eventType, eventId }) => `/e/${encodeURIComponent(eventType)}/${encodeURIComponent(eventId)}`;

// --------------------------------------------------------------------------------------- events

// Reads the pages of the list that are shown: { events, next }; null if the server did not answer.
async function readEvents() {
  const events = [];
  let next = null;
  for (let page = 0; page < home.pages; page++) {
    const after = next === null ? '' : `&after=${encodeURIComponent(next)}`;
    const answer = await send('GET', `/events?limit=${PAGE_SIZE}${after}`);
    if (!answer.ok) return null;
    events.push(...answer.body.events);
    next = answer.body.next;
    if (next === null) break;
  }
  return { events, next };
}

async function loadEvents() {
  const found = await readEvents();
  reached('events', found !== null);
  if (found === null) return;
  const list = byId('events');
  found.events.forEach((event, index) => showEvent(rowOf(list, index, eventRow), event));
  while (list.children.length > found.events.length) list.lastElementChild.remove();
  setText(byId('events-empty'), text('home.noEvents'));
  setHidden(byId('events-empty'), found.events.length > 0);
  setHidden(byId('events-more'), found.next === null);
}

// Rows are used again, so that the focus stays where it is.
function rowOf(list, index, make) {
  if (!list.children[index]) list.append(make());
  return list.children[index];
}

function eventRow() {
  return element('li', {},
    element('a', { class: 'event' },
      element('span', { class: 'event-text' }, element('span', { class: 'event-title', dir: 'auto' }), element('span', { class: 'event-when muted small' })),
      element('span', { class: 'event-side' }, element('span', { class: 'state' }), element('span', { class: 'event-seats small muted' })),
    ),
  );
}

function showEvent(row, event) {
  const link = row.firstElementChild;
  const part = (name) => row.querySelector(`.${name}`);
  link.href = eventLink(event);
  setText(part('event-title'), event.title);
  setText(part('event-when'), [event.startsAt && dateAndTime(event.startsAt), priceText(event)].filter(Boolean).join(' · '));
  const state = stateOf(event);
  part('state').className = `state ${state}`;
  setText(part('state'), state === 'soon' ? text('home.state.soon', { time: lengthText(untilServer(event.opensAt) / 1000) }) : text(`home.state.${state}`));
  setText(part('event-seats'), ['soldOut', 'allHeld', 'closed'].includes(state) ? '' : seatsText(event));
}

const sumOf = (sections, name) => sections.reduce((sum, section) => sum + section[name], 0);

function stateOf({ state, opensAt, closesAt, sections }) {
  if (state === 'CLOSED' || (closesAt !== null && untilServer(closesAt) <= 0)) return 'closed';
  if (opensAt !== null && untilServer(opensAt) > 0) return 'soon';
  if (sections.length > 0 && sumOf(sections, 'available') === 0) return sumOf(sections, 'held') > 0 ? 'allHeld' : 'soldOut';
  return { PAUSED: 'paused', DRAINING: 'draining' }[state] ?? 'open';
}

function priceText({ sections, currency }) {
  if (sections.length === 0) return null;
  const least = Math.min(...sections.map(({ price }) => price));
  if (least === 0) return text('home.free');
  const isOne = sections.every(({ price }) => price === least);
  return isOne ? money(least, currency) : text('home.from', { price: money(least, currency) });
}

function seatsText({ sections }) {
  return sections.length === 0 ? text('home.waitingRoom') : text('home.seatsLeft', { count: sumOf(sections, 'available') });
}

// --------------------------------------------------------------------------------------- boards

// Follows a board, and shows it in the list `id`.
function followBoard(id, board) {
  home.streams[id]?.stop();
  home.streams[id] = followStream({
    url: () => `/rankings/stream?board=${board}`,
    handlers: { ranking: ({ rankings }) => showBoard(id, rankings) },
    onLive: () => reached(id, true),
    onLost: async (failures) => {
      if (failures > 1) reached(id, false);
      if (failures !== 1) return true;
      const answer = await send('GET', `/rankings/${board}?topN=10`);
      if (answer.code !== 'rankings_off') return true;
      setText(byId(`${id}-empty`), text('home.boardOff'));
      return false;
    },
  });
}

function showBoard(id, rankings) {
  const list = byId(id);
  rankings.forEach((ranked, index) => showRanked(rowOf(list, index, rankedRow), ranked));
  while (list.children.length > rankings.length) list.lastElementChild.remove();
  setText(byId(`${id}-empty`), text('home.boardEmpty'));
  setHidden(byId(`${id}-empty`), rankings.length > 0);
}

function rankedRow() {
  return element('li', {},
    element('a', { class: 'ranked' },
      element('span', { class: 'rank', 'aria-hidden': 'true' }),
      element('span', { class: 'ranked-title', dir: 'auto' }),
      element('span', { class: 'ranked-detail small muted' }),
      element('span', { class: 'bar-whole', 'aria-hidden': 'true' }, element('span', { class: 'bar-part' })),
    ),
  );
}

function showRanked(row, ranked) {
  const part = (name) => row.querySelector(`.${name}`);
  row.firstElementChild.href = eventLink(ranked);
  setText(part('rank'), number(ranked.rank));
  setText(part('ranked-title'), ranked.title);
  setText(part('ranked-detail'), rankedDetail(ranked));
  part('bar-part').style.setProperty('transform', `scaleX(${ranked.shareSold})`);
}

function rankedDetail({ secondsToSellOut, shareSold, reservationCount }) {
  if (typeof secondsToSellOut === 'number') return text('home.soldOutIn', { time: lengthText(secondsToSellOut) });
  const share = new Intl.NumberFormat(language, { style: 'percent' }).format(shareSold);
  return [text('home.bookings', { count: reservationCount }), text('home.share', { share })].join(' · ');
}

function choosePeriod(period) {
  for (const button of byId('periods').children) button.setAttribute('aria-pressed', String(button.dataset.period === period));
  followBoard('popular', period);
}

// ---------------------------------------------------------------------------------------- start

function start() {
  showLanguages();
  showBrand({ name: texts['page.name'], logo: texts['page.logo'], accent: texts['page.accent'] });
  byId('periods').addEventListener('click', ({ target }) => target.dataset.period && choosePeriod(target.dataset.period));
  byId('events-more').addEventListener('click', () => {
    home.pages++;
    loadEvents();
  });
  for (const id of ['events', 'soldout', 'popular']) setText(byId(`${id}-empty`), text('home.loading'));
  followBoard('soldout', 'soldout');
  choosePeriod('daily');
  loadEvents();
  setInterval(() => document.hidden || loadEvents(), EVENTS_POLL_MS);
}

start();
