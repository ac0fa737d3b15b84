// seats.js: choosing seats, and one's reservations. event.js loads it when the person is admitted, so
// that those who wait need not load it. It uses the functions of common.js, which are global.
//
// Only the server decides who gets a seat. The map shows what it said a moment ago; when a seat is
// taken meanwhile, the page says so and offers the nearest free ones.

const MAP_POLL_MS = 2000; // of a large map less often
const LARGE_MAP_SEATS = 5000;
const EVENT_POLL_MS = 5000;
const SHOP_POLL_MS = 3000; // while the shop is to confirm
const URGENT_MS = 60000; // a clock below this is in another colour
const HOLD_ATTEMPTS = 6;
const SEATS_NAMED_MAX = 8; // a longer list of seats is shortened

const FREE = 0;
const HELD = 1;
const SOLD = 2;
const STATE_OF_LETTER = { A: FREE, H: HELD, C: SOLD };
const STATE_NAMES = ['free', 'held', 'sold'];

const sale = {
  host: null, // what event.js gave: { node, room, canChoose, leave, lookUpPlace, onBookings, remember, recall }
  parts: null, // the elements that are updated
  sectionId: null,
  seatMap: null, // of the section that is shown
  mapView: null,
  chosen: [], // seat numbers of that section
  quantity: 1,
  quantityWanted: 2,
  wantsMore: false, // to choose further seats while some are held
  reservations: new Map(), // by id
  request: null, // an asynchronous request that is not decided
  isSending: false,
  byRequest: new URLSearchParams(location.search).get('strategy') === 'queue',
  timers: [],
};

const theEvent = () => sale.host.room.event;
const theSection = () => theEvent().sections.find(({ id }) => id === sale.sectionId) ?? null;
const eventPath = () => `/events/${theEvent().eventType}/${theEvent().eventId}`;

// What proves who this is: the token, if there is one in memory; the cookies say the same.
function proof() {
  const token = sale.host.room.place?.entryToken;
  return token ? { 'X-Queue-Token': token } : {};
}

// ---------------------------------------------------------------------------------- showing it all

// Called by event.js whenever it has heard of an ACTIVE place, and when the stay is over.
export async function show(host) {
  const isNew = sale.parts === null;
  const couldChoose = sale.host?.canChoose;
  sale.host = host;
  if (isNew) build();
  if (couldChoose !== host.canChoose) {
    setHidden(sale.parts.strip, !host.canChoose);
    stopTimers();
    if (host.canChoose) startChoosing();
    else sale.timers.push(every(SHOP_POLL_MS, lookAtShop), every(250, tick));
    await loadReservations();
  }
  showAll();
}

function every(ms, work) {
  const timer = setInterval(() => (document.hidden && ms > 1000 ? null : work()), ms);
  return () => clearInterval(timer);
}

function stopTimers() {
  for (const stop of sale.timers) stop();
  sale.timers = [];
}

function startChoosing() {
  sale.timers.push(every(250, tick), every(EVENT_POLL_MS, loadEvent), every(SHOP_POLL_MS, lookAtShop), pollMap());
  chooseSection((theEvent().sections.find(isOnSale) ?? theEvent().sections[0]).id);
  const { request } = sale.host.recall();
  if (request) followRequest(request);
}

function build() {
  const parts = {};
  const part = (name, tag, attributes, ...children) => (parts[name] = element(tag, attributes, ...children));
  const label = (key) => text(`seats.${key}`);
  sale.parts = parts;

  part('strip', 'div', { class: 'strip' },
    element('p', {}, element('span', { class: 'muted', text: label('stay') }), ' ', part('stay', 'strong', { class: 'clock', role: 'timer' })),
    element('button', { type: 'button', class: 'button quiet', text: text('event.leave.buttonActive'), click: () => sale.host.leave() }),
  );
  part('sections', 'div', { class: 'sections', role: 'radiogroup', 'aria-label': label('sections') });
  part('map', 'div', { class: 'map' });
  part('choice', 'form', { class: 'choice', submit: onHoldPressed },
    element('div', { class: 'choice-row' },
      part('choiceText', 'p', { class: 'choice-text', id: 'choice-text' }),
      part('stepper', 'div', { class: 'stepper', role: 'group', 'aria-label': label('howMany') },
        part('fewer', 'button', { type: 'button', 'aria-label': label('fewer'), text: '−', click: () => changeQuantity(-1) }),
        part('quantity', 'output', { 'aria-live': 'polite' }),
        part('more', 'button', { type: 'button', 'aria-label': label('more'), text: '+', click: () => changeQuantity(1) }),
      ),
      part('clear', 'button', { type: 'button', class: 'button quiet', text: label('clear'), click: () => choose([]) }),
    ),
    element('div', { class: 'choice-row' },
      part('total', 'p', { class: 'total' }),
      part('hold', 'button', { type: 'submit', class: 'button primary large' }),
    ),
  );
  part('message', 'div', { class: 'said', role: 'status', hidden: true });
  part('mine', 'section', { class: 'reservations', 'aria-labelledby': 'mine-title' });
  part('chooseMore', 'button', { type: 'button', class: 'button', hidden: true, text: label('chooseMore'), click: chooseMore });
  part('chooser', 'section', { class: 'chooser', 'aria-labelledby': 'choose-title', hidden: true },
    element('div', { class: 'choose-from' }, element('h2', { id: 'choose-title', tabindex: '-1', text: label('title') }), parts.sections, parts.map),
    element('div', { class: 'choose-what' }, parts.choice),
  );
  sale.host.node.replaceChildren(parts.strip, parts.message, parts.mine, parts.chooseMore, parts.chooser);
  sale.mapView = createMapView(parts.map);
}

function showAll() {
  showSections();
  showChoice();
  showMine();
  tick();
}

// The clocks: of the stay, and of each hold.
function tick() {
  const { place } = sale.host.room;
  if (place?.activeExpiresAt) {
    const leftMs = untilServer(place.activeExpiresAt);
    setText(sale.parts.stay, clockText(leftMs));
    const isUrgent = leftMs < URGENT_MS;
    if (isUrgent && !sale.parts.stay.classList.contains('urgent')) announce(text('seats.minuteLeft'), true);
    sale.parts.stay.classList.toggle('urgent', isUrgent);
    if (leftMs <= 0 && sale.host.canChoose && !sale.isAsking) askForPlace();
  }
  for (const card of sale.parts.mine.querySelectorAll('[data-expires]')) {
    const leftMs = untilServer(card.dataset.expires);
    setText(card, clockText(leftMs));
    card.classList.toggle('urgent', leftMs < URGENT_MS);
    if (leftMs <= 0) loadReservation(card.dataset.reservation);
  }
}

// The stay is over by the clock: the server says whether it is.
async function askForPlace() {
  sale.isAsking = true;
  await sale.host.lookUpPlace();
  await pause(1000);
  sale.isAsking = false;
}

// Says what happened. `offer`: { label, run }, a way on.
function say(kind, what, offer) {
  const { message } = sale.parts;
  message.className = `said ${kind}`;
  message.replaceChildren(element('p', { text: what }));
  if (offer) message.append(element('button', { type: 'button', class: 'button', text: offer.label, click: offer.run }));
  setHidden(message, false);
}

const sayNothing = () => setHidden(sale.parts.message, true);

// -------------------------------------------------------------------------------------- sections

const isOnSale = ({ status, available }) => status === 'open' && available > 0;

async function loadEvent() {
  const answer = await send('GET', eventPath());
  if (!answer.ok) return;
  sale.host.room.event = answer.body;
  if (!theSection() && answer.body.sections.length > 0) chooseSection(answer.body.sections[0].id);
  showSections();
  showChoice();
}

function availability({ status, available, held }) {
  if (status !== 'open') return text('seats.section.closed');
  if (available === 0) return text(held > 0 ? 'seats.section.allHeld' : 'seats.section.soldOut');
  return text('seats.section.left', { count: available });
}

// One radio button for each section. They are made again only when there are other sections, so that
// the focus stays.
function showSections() {
  const { sections, currency } = theEvent();
  const node = sale.parts.sections;
  setHidden(node, sections.length < 2);
  const ids = sections.map(({ id }) => id).join(' ');
  if (node.dataset.ids !== ids) {
    node.dataset.ids = ids;
    node.replaceChildren(...sections.map(sectionButton));
  }
  sections.forEach((section, index) => {
    const row = node.children[index];
    row.classList.toggle('unavailable', !isOnSale(section));
    row.querySelector('input').checked = section.id === sale.sectionId;
    setText(row.querySelector('.price'), money(section.price, currency));
    setText(row.querySelector('.left'), availability(section));
    row.querySelector('.bar-part').style.setProperty('transform', `scaleX(${section.available / section.capacity})`);
  });
}

function sectionButton({ id, name }) {
  return element('label', { class: 'section' },
    element('input', { type: 'radio', name: 'section', value: id, change: () => chooseSection(id) }),
    element('span', { class: 'name', dir: 'auto', text: name }),
    element('span', { class: 'left' }),
    element('span', { class: 'price' }),
    element('span', { class: 'bar-whole', 'aria-hidden': 'true' }, element('span', { class: 'bar-part' })),
  );
}

function chooseSection(id) {
  if (id !== sale.sectionId) sale.chosen = [];
  sale.sectionId = id;
  sale.seatMap = null;
  sale.mapView.show(null);
  showSections();
  showChoice();
  loadMap();
}

// -------------------------------------------------------------------------------- the seats' states

// Reads the whole map, in the form that is short. A page ends after 10,000 runs.
async function loadMap() {
  const section = theSection();
  if (!section) return;
  const states = new Uint8Array(section.capacity);
  for (let from = 1; from !== null; ) {
    const answer = await send('GET', `${eventPath()}/sections/${encodeURIComponent(section.id)}/seats?form=runs&from=${from}`);
    if (!answer.ok) return;
    for (const run of answer.body.runs) states.fill(STATE_OF_LETTER[run.state], run.from - 1, run.from - 1 + run.count);
    from = answer.body.next;
  }
  if (section.id === sale.sectionId) onMap(section, states);
}

function pollMap() {
  let timer = null;
  const again = () => {
    const isLarge = (theSection()?.capacity ?? 0) > LARGE_MAP_SEATS;
    timer = setTimeout(async () => {
      if (!document.hidden) await loadMap();
      if (timer !== null) again();
    }, MAP_POLL_MS * (isLarge ? 2 : 1));
  };
  again();
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}

function onMap(section, states) {
  sale.seatMap = { section: section.id, states, mine: seatsOfMine(section.id) };
  const lost = sale.chosen.filter((seat) => states[seat - 1] !== FREE);
  if (lost.length > 0 && !sale.isSending) {
    sale.chosen = sale.chosen.filter((seat) => !lost.includes(seat));
    sayTaken(lost, lost.length);
    showChoice();
  }
  sale.mapView.show(sale.seatMap);
}

function seatsOfMine(sectionId) {
  const live = [...sale.reservations.values()].filter(({ section, status }) => section === sectionId && (status === 'HELD' || status === 'CONFIRMED'));
  return new Set(live.flatMap(({ seats }) => seats));
}

const isFree = (seat) => sale.seatMap.states[seat - 1] === FREE && !sale.chosen.includes(seat);

// The free seats nearest to `around`: together, if there are so many together; else one by one.
function nearestFree(around, count) {
  const middle = around.reduce((sum, seat) => sum + seat, 0) / around.length;
  const { length } = sale.seatMap.states;
  let best = null;
  for (let first = 1, run = 0; first <= length; first++) {
    run = isFree(first) ? run + 1 : 0;
    const start = first - count + 1;
    if (run >= count && (best === null || Math.abs(start + (count - 1) / 2 - middle) < Math.abs(best + (count - 1) / 2 - middle))) best = start;
  }
  if (best !== null) return Array.from({ length: count }, (_, index) => best + index);
  const singles = [];
  for (let seat = 1; seat <= length; seat++) if (isFree(seat)) singles.push(seat);
  singles.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
  return singles.slice(0, count).sort((a, b) => a - b);
}

// "Taken meanwhile", and what is the next best.
function sayTaken(taken, count) {
  const instead = sale.seatMap ? nearestFree(taken, count) : [];
  const what = text('seats.taken', { count: taken.length, seats: seatList(taken) });
  if (instead.length < count) return say('warn', `${what} ${text('seats.takenNoOther')}`);
  return say('warn', `${what} ${text('seats.takenOther', { seats: seatList(instead) })}`, {
    label: text('seats.takeInstead', { seats: seatList(instead) }),
    run: () => {
      choose([...sale.chosen, ...instead]);
      sale.parts.hold.focus();
    },
  });
}

function seatList(seats) {
  const named = seats.slice(0, SEATS_NAMED_MAX).map(number);
  const more = seats.length - named.length;
  return (more > 0 ? [...named, text('seats.andMore', { count: more })] : named).join(', ');
}

// ------------------------------------------------------------------------------------- the choice

function seatsAllowed() {
  const mine = [...sale.reservations.values()].filter(({ status }) => status === 'HELD' || status === 'CONFIRMED');
  return theEvent().maxPerUser - mine.reduce((sum, { seats }) => sum + seats.length, 0);
}

function changeQuantity(by) {
  sale.quantityWanted = sale.quantity + by;
  showChoice();
}

function choose(seats) {
  sale.chosen = seats.sort((a, b) => a - b);
  sayNothing();
  showChoice();
  sale.mapView.draw();
}

// A click on a seat of the map.
function toggleSeat(seat) {
  if (sale.isSending) return undefined;
  if (sale.chosen.includes(seat)) return choose(sale.chosen.filter((one) => one !== seat));
  if (!isFree(seat)) return undefined;
  if (sale.chosen.length >= seatsAllowed()) return say('warn', text('seats.noMore', { count: theEvent().maxPerUser }));
  return choose([...sale.chosen, seat]);
}

// While seats are held, confirming them is the next step, and choosing more is one click away.
function showChooser(allowed) {
  const hasHeld = sale.request !== null || [...sale.reservations.values()].some(({ status }) => status === 'HELD');
  if (!hasHeld) sale.wantsMore = false;
  const isShown = sale.host.canChoose && (!hasHeld || sale.wantsMore);
  setHidden(sale.parts.chooser, !isShown);
  setHidden(sale.parts.chooseMore, !sale.host.canChoose || isShown || allowed < 1 || sale.request !== null);
}

function chooseMore() {
  sale.wantsMore = true;
  showChoice();
  sale.parts.chooser.querySelector('h2').focus();
}

function showChoice() {
  const { parts } = sale;
  const section = theSection();
  const allowed = seatsAllowed();
  showChooser(allowed);
  if (!section || !sale.host.canChoose) return;
  const most = Math.max(1, Math.min(allowed, section.available));
  sale.quantity = Math.min(Math.max(1, sale.quantityWanted), most);
  const named = sale.chosen.length;
  const count = named || sale.quantity;
  setText(parts.choiceText, choiceText(section, named, allowed));
  setText(parts.quantity, number(sale.quantity));
  parts.fewer.disabled = sale.quantity <= 1;
  parts.more.disabled = sale.quantity >= most;
  setHidden(parts.stepper, named > 0 || allowed < 1 || !isOnSale(section) || theEvent().maxPerUser === 1);
  setHidden(parts.clear, named === 0);
  setText(parts.total, money(count * section.price, theEvent().currency));
  setText(parts.hold, text(sale.isSending ? 'seats.holding' : named > 0 ? 'seats.holdNamed' : 'seats.holdBest', { count }));
  parts.hold.disabled = sale.isSending || sale.request !== null || allowed < 1 || !isOnSale(section);
}

function choiceText(section, named, allowed) {
  if (allowed < 1) return text('seats.noMore', { count: theEvent().maxPerUser });
  if (named > 0) return text('seats.chosen', { count: named, seats: seatList(sale.chosen) });
  if (!isOnSale(section)) return availability(section);
  return text(theEvent().maxPerUser === 1 ? 'seats.bestOne' : 'seats.best');
}

function onHoldPressed(event) {
  event.preventDefault();
  const { chosen } = sale;
  hold(chosen.length > 0 ? { seats: chosen } : { quantity: sale.quantity });
}

// ---------------------------------------------------------------------------------------- holding

// Asks for seats. The key lets the request be repeated when its answer was lost: there is only one
// reservation.
async function hold(wanted) {
  if (sale.isSending) return;
  sale.isSending = true;
  sayNothing();
  showChoice();
  const { eventType, eventId } = theEvent();
  const body = { eventType, eventId, section: sale.sectionId, ...wanted };
  const answer = await sendHold(sale.byRequest ? '/api/v4/queue' : '/reservations', body);
  sale.isSending = false;
  if (answer.status === 201) held(answer.body, wanted);
  else if (answer.body?.status === 'WAITING') await sale.host.lookUpPlace(); // the place had ended, and autoEnter took another
  else if (answer.body?.requestId && answer.status < 300) followRequest({ id: answer.body.requestId, position: answer.body.position, wanted });
  else await holdRefused(answer.code, answer.body, wanted);
  showChoice();
  lookAgain();
}

async function sendHold(path, body) {
  const headers = { ...proof(), 'Idempotency-Key': randomUuid() };
  for (let attempt = 0; ; attempt++) {
    const answer = await send('POST', path, { body, headers });
    if (!isPassing(answer) || attempt === HOLD_ATTEMPTS) return answer;
    say('wait', text('seats.stillTrying'));
    await pause(retryDelay(attempt, answer.retryAfterMs));
  }
}

function held(reservation, wanted) {
  sale.reservations.set(reservation.id, reservation);
  sale.chosen = [];
  sale.wantsMore = false;
  const { seats } = reservation;
  const isTogether = seats.at(-1) - seats[0] === seats.length - 1;
  if (isTogether || wanted.seats) sayNothing();
  else say('warn', text('seats.notTogether'));
  announce(text('seats.heldNow', { count: seats.length, seats: seatList(seats) }));
  showMine();
  showChoice();
  sale.parts.mine.querySelector('button')?.focus();
}

const byRequestOffer = (wanted) => ({
  label: text('seats.request.offer'),
  run: () => {
    sale.byRequest = true;
    hold(wanted);
  },
});

// Why there are no seats for this request, and what to do.
async function holdRefused(code, problem, wanted) {
  const count = wanted.quantity ?? wanted.seats.length;
  switch (code) {
    case 'seat_taken': {
      await loadMap(); // says it, too, for seats that are chosen
      const taken = problem?.seats ?? wanted.seats.filter((seat) => sale.seatMap.states[seat - 1] !== FREE);
      sale.chosen = sale.chosen.filter((seat) => !taken.includes(seat));
      return sayTaken(taken.length > 0 ? taken : wanted.seats, Math.max(1, taken.length));
    }
    case 'sold_out':
      await loadEvent();
      return say('warn', text(theSection().available > 0 ? 'seats.fewerLeft' : 'seats.noneLeft', { count: theSection().available, section: theSection().name }));
    case 'seat_given_up':
      return say('warn', text('seats.givenUp', { seats: seatList(problem?.seats ?? wanted.seats ?? []), time: problem?.availableAt ? timeOfDay(problem.availableAt) : '' }));
    case 'limit_exceeded':
      await loadReservations();
      return say('warn', text('seats.noMore', { count: theEvent().maxPerUser }));
    case 'hold_limit':
      return say('warn', text('seats.holdLimit', { count: theEvent().maxHoldsPerStay }));
    case 'conflict':
    case 'lock_timeout':
    case 'lock_lost':
      return say('warn', text('seats.crowded'), sale.byRequest ? { label: text('seats.tryAgain'), run: () => hold(wanted) } : byRequestOffer(wanted));
    case 'section_closed':
    case 'closed':
      await loadEvent();
      return say('warn', text('seats.closed'));
    case 'hold_expired':
      return say('warn', text('seats.expiredAtOnce'));
    case 'not_active':
    case 'token_invalid':
    case 'token_expired':
    case 'token_required':
      return sale.host.lookUpPlace();
    case null:
    case 'overloaded':
    case 'too_many_requests':
      return say('bad', text('seats.noAnswer', { count }), sale.byRequest ? { label: text('seats.tryAgain'), run: () => hold(wanted) } : byRequestOffer(wanted));
    default:
      return say('bad', text('seats.refused', { detail: problem?.detail ?? problem?.title ?? code }));
  }
}

// ------------------------------------------------------------------------- asynchronous requests

// A request that was accepted and is decided later, in its order. The result is pushed.
function followRequest({ id, position = null, wanted }) {
  sale.request = { id, position, wanted };
  sale.host.remember({ request: { id, wanted } });
  showMine();
  const stream = followStream({
    url: () => `/api/v4/subscribe/${id}?token=${encodeURIComponent(sale.host.room.place?.entryToken ?? '')}`,
    handlers: { RESERVATION_STATUS: (request) => onRequest(request, stream) },
    onLost: async () => {
      const answer = await send('GET', `/api/v4/status/${id}`, { headers: proof() });
      if (answer.ok) onRequest(answer.body, stream);
      else if (!isPassing(answer)) endRequest(stream);
      return sale.request?.id === id;
    },
  });
}

function endRequest(stream) {
  stream?.stop();
  sale.request = null;
  sale.host.remember({ request: undefined });
  showMine();
  showChoice();
}

async function onRequest(request, stream) {
  if (sale.request?.id !== request.requestId) return;
  sale.request.position = request.position;
  if (request.finishedAt === null) return showMine();
  const { wanted } = sale.request;
  endRequest(stream);
  if (request.status === 'SUCCESS') {
    const answer = await send('GET', `/reservations/${request.reservationId}`, { headers: proof() });
    if (answer.ok) held(answer.body, wanted);
    else await loadReservations();
  } else await holdRefused(request.reason, null, wanted);
  showChoice();
  loadMap();
}

// ----------------------------------------------------------------------------------- reservations

async function loadReservations() {
  const answer = await send('GET', '/reservations', { headers: proof() });
  if (!answer.ok) return;
  const { eventType, eventId } = theEvent();
  const live = answer.body.reservations.filter((one) => one.eventType === eventType && one.eventId === eventId);
  for (const one of live) sale.reservations.set(one.id, one);
  for (const { id, status } of sale.reservations.values()) if (status === 'HELD' && !live.some((one) => one.id === id)) loadReservation(id);
  countBookings();
  showMine();
  showChoice();
}

const loading = new Set();

async function loadReservation(id) {
  if (loading.has(id)) return;
  loading.add(id);
  const answer = await send('GET', `/reservations/${id}`, { headers: proof() });
  if (answer.ok) onReservation(answer.body);
  await pause(1000);
  loading.delete(id);
}

function onReservation(reservation) {
  const before = sale.reservations.get(reservation.id);
  sale.reservations.set(reservation.id, reservation);
  if (before?.status === reservation.status) return;
  if (reservation.status === 'EXPIRED') announce(text('seats.card.expired'));
  countBookings();
  showMine();
  showChoice();
  if (sale.host.canChoose) lookAgain();
}

const countBookings = () => sale.host.onBookings([...sale.reservations.values()].filter(({ status }) => status === 'CONFIRMED').length);

// The map and the counts of the sections, after this person has changed them.
function lookAgain() {
  loadMap();
  loadEvent();
}

// What only the shop confirms changes without this page.
function lookAtShop() {
  if (theEvent().confirmBy === 'user') return;
  for (const { id, status } of sale.reservations.values()) if (status === 'HELD') loadReservation(id);
}

function showMine() {
  const { mine } = sale.parts;
  const focused = mine.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const cards = [...sale.reservations.values()].sort((a, b) => rank(a) - rank(b) || Date.parse(b.createdAt) - Date.parse(a.createdAt)).map(reservationCard);
  if (sale.request) cards.unshift(requestCard(sale.request));
  setHidden(mine, cards.length === 0);
  mine.replaceChildren(element('h2', { id: 'mine-title', text: text('seats.mine') }), ...cards);
  if (focused) mine.querySelector(`[data-key="${focused}"]`)?.focus();
}

const RANKS = ['HELD', 'CONFIRMED', 'EXPIRED', 'CANCELLED'];
const rank = ({ status }) => RANKS.indexOf(status);

function requestCard({ position }) {
  return element('article', { class: 'card pending' },
    element('h3', { text: text('seats.request.title') }),
    element('p', { text: position > 0 ? text('seats.request.position', { count: position }) : text('seats.request.next') }),
    element('p', { class: 'small muted', text: text('seats.request.detail') }),
  );
}

function reservationCard(reservation) {
  const { id, status, seats, section, price, currency, expiresAt, confirmationCode } = reservation;
  const name = theEvent().sections.find((one) => one.id === section)?.name ?? section ?? '';
  const card = element('article', { class: `card ${status.toLowerCase()}` });
  const head = element('div', { class: 'card-head' }, element('h3', { text: text(`seats.card.${status.toLowerCase()}`) }));
  if (status === 'HELD') head.append(element('p', { class: 'clock', role: 'timer', 'data-expires': expiresAt, 'data-reservation': id, text: clockText(untilServer(expiresAt)) }));
  card.append(head,
    element('p', { class: 'card-seats' }, element('bdi', { text: name }), ' · ', element('span', { text: text('seats.card.seats', { count: seats.length, seats: seatList(seats) }) })),
    element('p', { class: 'card-price', text: money(price, currency) }),
  );
  if (confirmationCode && status === 'CONFIRMED') card.append(element('p', { class: 'code' }, element('span', { class: 'label', text: text('seats.card.code') }), element('strong', { text: confirmationCode })));
  card.append(...cardDetail(reservation), cardActions(reservation));
  return card;
}

// One sentence about what this means now.
function cardDetail({ status, expiresAt }) {
  const shop = theEvent().confirmBy !== 'user';
  const name = { HELD: shop ? 'heldShop' : 'heldUser', EXPIRED: 'expiredDetail', CANCELLED: 'cancelledDetail' }[status];
  return name ? [element('p', { class: 'small muted', text: text(`seats.card.${name}`, { time: timeOfDay(expiresAt) }) })] : [];
}

function cardActions({ id, status }) {
  const actions = element('p', { class: 'actions' });
  const button = (key, label, style, run) => actions.append(element('button', { type: 'button', class: `button ${style}`, 'data-key': `${key}-${id}`, text: text(label), click: run }));
  if (status === 'HELD' && theEvent().confirmBy === 'user') button('confirm', 'seats.card.confirm', 'primary', () => change(id, 'confirm'));
  if (status === 'HELD') button('cancel', 'seats.card.giveBack', '', () => change(id, 'cancel'));
  if (status === 'CONFIRMED' && theEvent().cancelConfirmed) button('cancel', 'seats.card.cancel', 'quiet', () => cancelBought(id));
  if (status === 'EXPIRED' || status === 'CANCELLED') button('hide', 'seats.card.hide', 'quiet', () => (sale.reservations.delete(id), showMine()));
  return actions;
}

async function cancelBought(id) {
  const isSure = await ask({
    title: text('seats.cancel.title'),
    detail: text('seats.cancel.detail', { seats: seatList(sale.reservations.get(id).seats) }),
    yes: text('seats.cancel.yes'),
    no: text('seats.cancel.no'),
  });
  if (isSure) change(id, 'cancel');
}

// Confirms or cancels. Both may be repeated, so a lost answer is simply asked for again.
async function change(id, verb) {
  for (const button of sale.parts.mine.querySelectorAll(`[data-key$="${id}"]`)) button.disabled = true;
  let answer;
  for (let attempt = 0; attempt <= HOLD_ATTEMPTS; attempt++) {
    answer = await send('POST', `/reservations/${id}/${verb}`, { body: {}, headers: proof() });
    if (!isPassing(answer)) break;
    say('wait', text('seats.stillTrying'));
    await pause(retryDelay(attempt, answer.retryAfterMs));
  }
  sayNothing();
  if (answer.ok) onReservation(answer.body);
  else if (['hold_expired', 'reservation_ended'].includes(answer.code)) await loadReservation(id);
  else {
    say('bad', text('seats.refused', { detail: answer.body?.detail ?? answer.body?.title ?? text('seats.noAnswerShort') }));
    showMine();
  }
  if (answer.ok && verb === 'confirm') {
    announce(text('seats.confirmedNow', { code: answer.body.confirmationCode }));
    await sale.host.lookUpPlace(); // the place may have ended with it
  }
  if (answer.ok && verb === 'cancel') announce(text('seats.card.cancelled'));
}

// ---------------------------------------------------------------------------------------- the map

const SMALL = 7; // below this size in pixels a seat is a dot of a picture
const LEGIBLE = 8; // the smallest size of its number
const PICTURE_PX = 4; // a seat in the picture
const PICTURE_SEATS_MAX = 60000; // a larger picture would need much memory
const TOUCHABLE = 22; // smaller seats are enlarged by the first tap of a finger
const LARGEST = 48;
const DRAG_PX = 6;
const NARROW_PX = 560;
const STATES_SHOWN = ['free', 'chosen', 'mine', 'held', 'sold'];

// Rows that fill a rectangle, if possible without a rest: a wide one, or a tall one on a phone.
function columnsOf(capacity, isNarrow) {
  const target = Math.sqrt(capacity * (isNarrow ? 1 : 3));
  let best = Math.ceil(target);
  let distance = Infinity;
  for (let columns = Math.max(1, Math.ceil(target * 0.6)); columns <= target * 1.5; columns++)
    if (capacity % columns === 0 && Math.abs(columns - target) < distance) [best, distance] = [columns, Math.abs(columns - target)];
  return Math.min(best, capacity);
}

// The map of one section on a canvas. Far away it is one picture, scaled; near, each visible seat is
// drawn. So a large hall costs little to move.
function createMapView(node) {
  const canvas = element('canvas', { tabindex: '0', role: 'application', 'aria-roledescription': text('seats.map.role'), 'aria-describedby': 'seat-now map-help' });
  const about = element('p', { class: 'seat-now', id: 'seat-now' });
  const swatches = Object.fromEntries(STATES_SHOWN.map((name) => [name, element('span', { class: `swatch ${name}` })]));
  const legend = element('ul', { class: 'legend' }, ...STATES_SHOWN.map((name) => element('li', {}, swatches[name], text(`seats.state.${name}`))));
  const zoomButton = (label, sign, run) => element('button', { type: 'button', 'aria-label': text(label), title: text(label), text: sign, click: run });
  const tools = element('div', { class: 'map-tools' },
    zoomButton('seats.map.closer', '+', () => zoomBy(1.6)),
    zoomButton('seats.map.farther', '−', () => zoomBy(1 / 1.6)),
    zoomButton('seats.map.whole', '⤢', () => fit()),
  );
  node.append(
    element('div', { class: 'map-frame' }, canvas),
    element('div', { class: 'map-foot' }, about, tools, legend),
    element('p', { class: 'visually-hidden', id: 'map-help', text: text('seats.map.help') }),
  );

  const context = canvas.getContext('2d');
  const picture = document.createElement('canvas'); // the whole map, seen from far away
  const dots = document.createElement('canvas'); // the same, one pixel for each seat
  const at = { scale: 1, x: 0, y: 0, isFitted: true };
  let width = 0;
  let height = 0;
  let columns = 1;
  let rows = 1;
  let seatMap = null;
  let current = 1; // the seat that the keyboard is at
  let described = null; // the seat that the line below the map is about
  let colours = null;
  let frame = 0;

  const stateOf = (seat) => {
    if (sale.chosen.includes(seat)) return 'chosen';
    if (seatMap.mine.has(seat)) return 'mine';
    return STATE_NAMES[seatMap.states[seat - 1]];
  };

  // ---- size and position

  function resize() {
    if (!seatMap) return;
    width = canvas.parentElement.clientWidth;
    columns = columnsOf(seatMap.states.length, width < NARROW_PX);
    rows = Math.ceil(seatMap.states.length / columns);
    const natural = Math.min((width / columns) * rows, LARGEST * 0.8 * rows);
    height = Math.round(Math.max(150, Math.min(natural + 16, innerHeight * 0.6, 620)));
    canvas.style.setProperty('height', `${height}px`);
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    if (at.isFitted) fit();
    else move(0, 0);
  }

  const fitScale = () => Math.min((width - 16) / columns, (height - 16) / rows, LARGEST * 0.8);

  function fit() {
    at.scale = fitScale();
    at.x = (width - columns * at.scale) / 2;
    at.y = (height - rows * at.scale) / 2;
    at.isFitted = true;
    canvas.classList.remove('is-near');
    draw();
  }

  // Moves the map; it stays in sight.
  function move(x, y) {
    const within = (value, size, space) => (size <= space - 16 ? (space - size) / 2 : Math.min(8, Math.max(space - size - 8, value)));
    at.x = within(at.x + x, columns * at.scale, width);
    at.y = within(at.y + y, rows * at.scale, height);
    draw();
  }

  function zoomTo(scale, x = width / 2, y = height / 2) {
    const smallest = fitScale();
    if (scale <= smallest * 1.01) return fit();
    const next = Math.min(scale, Math.max(LARGEST, smallest));
    const ratio = next / at.scale;
    at.x = x - (x - at.x) * ratio;
    at.y = y - (y - at.y) * ratio;
    at.scale = next;
    at.isFitted = false;
    canvas.classList.add('is-near');
    return move(0, 0);
  }

  const zoomBy = (factor, x, y) => zoomTo(at.scale * factor, x, y);

  function seatAt(x, y) {
    const column = Math.floor((x - at.x) / at.scale);
    const row = Math.floor((y - at.y) / at.scale);
    const seat = row * columns + column + 1;
    const isThere = column >= 0 && column < columns && row >= 0 && seat <= seatMap.states.length;
    return isThere ? seat : null;
  }

  const placeOf = (seat) => [at.x + ((seat - 1) % columns) * at.scale, at.y + Math.floor((seat - 1) / columns) * at.scale];

  // ---- drawing

  function draw() {
    if (!frame) frame = requestAnimationFrame(drawNow);
  }

  function drawNow() {
    frame = 0;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!seatMap) return;
    colours ??= readColours();
    if (at.scale < SMALL) drawPicture();
    else drawSeats();
    drawCurrent();
  }

  // The colours as the style sheet has them, light or dark: those of the legend.
  function readColours() {
    const found = {};
    for (const [name, swatch] of Object.entries(swatches)) {
      const { backgroundColor: fill, borderTopColor: line, color: ink, outlineColor: far } = getComputedStyle(swatch);
      found[name] = { fill, line, ink, far: pixelOfColour(far) };
    }
    return found;
  }

  // A colour as the four bytes of a pixel.
  function pixelOfColour(colour) {
    const one = element('canvas', { width: '1', height: '1' }).getContext('2d');
    one.fillStyle = colour;
    one.fillRect(0, 0, 1, 1);
    return new Uint32Array(one.getImageData(0, 0, 1, 1).data.buffer)[0];
  }

  function drawPicture() {
    // With lines between the seats, if they are large enough for them not to make patterns.
    const side = at.scale < PICTURE_PX || seatMap.states.length > PICTURE_SEATS_MAX ? 1 : PICTURE_PX;
    if (picture.of !== seatMap || picture.width !== columns * side || picture.side !== side) paintPicture(side);
    context.imageSmoothingEnabled = at.scale < 1;
    context.drawImage(picture, at.x, at.y, columns * at.scale, rows * at.scale);
    for (const seat of sale.chosen) {
      const [x, y] = placeOf(seat);
      context.fillStyle = colours.chosen.fill;
      context.fillRect(x - 1, y - 1, at.scale + 2, at.scale + 2);
    }
  }

  // One pixel for each seat, then enlarged. That is quick for a million seats, too.
  function paintPicture(side) {
    Object.assign(dots, { width: columns, height: rows });
    const paintDots = dots.getContext('2d');
    const image = paintDots.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const pixelOf = [colours.free.far, colours.held.far, colours.sold.far];
    seatMap.states.forEach((state, index) => (pixels[index] = pixelOf[state]));
    for (const seat of seatMap.mine) pixels[seat - 1] = colours.mine.far;
    paintDots.putImageData(image, 0, 0);

    Object.assign(picture, { width: columns * side, height: rows * side, of: seatMap, side });
    const paint = picture.getContext('2d');
    paint.imageSmoothingEnabled = false;
    paint.drawImage(dots, 0, 0, picture.width, picture.height);
    if (side === 1) return;
    for (let column = 1; column <= columns; column++) paint.clearRect(column * side - 1, 0, 1, picture.height);
    for (let row = 1; row <= rows; row++) paint.clearRect(0, row * side - 1, picture.width, 1);
  }

  // The seats in sight, those of one state at a time.
  function drawSeats() {
    const firstRow = Math.max(0, Math.floor(-at.y / at.scale));
    const lastRow = Math.min(rows - 1, Math.floor((height - at.y) / at.scale));
    const firstColumn = Math.max(0, Math.floor(-at.x / at.scale));
    const lastColumn = Math.min(columns - 1, Math.floor((width - at.x) / at.scale));
    const byState = Object.fromEntries(STATES_SHOWN.map((name) => [name, []]));
    for (let row = firstRow; row <= lastRow; row++)
      for (let column = firstColumn; column <= lastColumn; column++) {
        const seat = row * columns + column + 1;
        if (seat <= seatMap.states.length) byState[stateOf(seat)].push(seat);
      }
    for (const [name, seats] of Object.entries(byState)) drawState(name, seats);
  }

  function drawState(name, seats) {
    const { fill, line, ink } = colours[name];
    // Not by colour alone: what is sold is small, what is held has a stroke through it.
    const inset = at.scale * (name === 'sold' ? 0.3 : 0.09);
    const side = at.scale - 2 * inset;
    context.beginPath();
    for (const seat of seats) {
      const [x, y] = placeOf(seat);
      context.roundRect(x + inset, y + inset, side, side, Math.min(6, side * 0.24));
      if (name === 'held') {
        context.moveTo(x + inset + side * 0.25, y + inset + side * 0.75);
        context.lineTo(x + inset + side * 0.75, y + inset + side * 0.25);
      }
    }
    context.fillStyle = fill;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = line;
    context.stroke();
    const size = Math.floor(at.scale * Math.min(0.36, 1.35 / String(seatMap.states.length).length));
    if (size < LEGIBLE || name === 'sold' || name === 'held') return;
    context.fillStyle = ink;
    context.font = `${size}px system-ui, sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (const seat of seats) {
      const [x, y] = placeOf(seat);
      context.fillText(String(seat), x + at.scale / 2, y + at.scale / 2 + 0.5);
    }
  }

  // The ring around the seat that the keyboard is at.
  function drawCurrent() {
    if (document.activeElement !== canvas || !canvas.matches(':focus-visible')) return;
    const [x, y] = placeOf(current);
    context.strokeStyle = getComputedStyle(canvas).color;
    context.lineWidth = 2.5;
    context.beginPath();
    context.roundRect(x - 1, y - 1, at.scale + 2, at.scale + 2, Math.min(8, at.scale * 0.3));
    context.stroke();
  }

  // ---- describing

  function describe(seat) {
    const { price } = theSection();
    described = seat;
    return text('seats.map.seat', { seat, state: text(`seats.state.${stateOf(seat)}`), price: money(price, theEvent().currency) });
  }

  function goTo(seat) {
    current = Math.min(Math.max(1, seat), seatMap.states.length);
    const [x, y] = placeOf(current);
    if (at.scale < 14 && !at.isFitted) zoomTo(18, x, y);
    const out = (value, space) => (value < 8 ? 8 - value : value + at.scale > space - 8 ? space - 8 - at.scale - value : 0);
    if (!at.isFitted) move(out(x, width), out(y, height));
    setText(about, describe(current));
    announce(about.textContent);
    draw();
  }

  function nextFree(from) {
    const { length } = seatMap.states;
    for (let step = 1; step <= length; step++) {
      const seat = ((from - 1 + step) % length) + 1;
      if (isFree(seat)) return seat;
    }
    return from;
  }

  // ---- keyboard

  canvas.addEventListener('keydown', (event) => {
    if (!seatMap || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const acts = {
      '+': () => zoomTo(Math.max(at.scale * 1.6, 12), ...placeOf(current)),
      '=': () => acts['+'](),
      '-': () => zoomBy(1 / 1.6),
      0: fit,
      Home: () => goTo(1),
      End: () => goTo(seatMap.states.length),
      n: () => goTo(nextFree(current)),
      Enter: () => pick(current),
      ' ': () => pick(current),
    };
    const step = steps[event.key];
    if (step) {
      const next = current + step;
      if (next >= 1 && next <= seatMap.states.length) goTo(next);
    } else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('focus', () => seatMap && canvas.matches(':focus-visible') && goTo(current));
  canvas.addEventListener('blur', draw);

  function pick(seat) {
    toggleSeat(seat);
    setText(about, describe(seat));
    announce(about.textContent);
    draw();
  }

  // ---- mouse, pen and fingers

  const fingers = new Map();
  let dragged = false;
  let spread = 0;

  const local = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return { x: clientX - box.left, y: clientY - box.top };
  };

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, local(event));
    if (fingers.size === 1) dragged = false;
    spread = spreadOf();
  });

  function spreadOf() {
    if (fingers.size < 2) return 0;
    const [one, other] = [...fingers.values()];
    return Math.hypot(one.x - other.x, one.y - other.y);
  }

  canvas.addEventListener('pointermove', (event) => {
    const now = local(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      const seat = seatMap && event.pointerType === 'mouse' ? seatAt(now.x, now.y) : null;
      if (seat) setText(about, describe(seat));
      canvas.classList.toggle('over-free', Boolean(seat && (isFree(seat) || sale.chosen.includes(seat))));
      return;
    }
    if (!dragged && fingers.size === 1 && Math.hypot(now.x - before.x, now.y - before.y) < DRAG_PX) return;
    if (!dragged) canvas.setPointerCapture(event.pointerId);
    dragged = true;
    fingers.set(event.pointerId, now);
    if (fingers.size === 1) return move(now.x - before.x, now.y - before.y);
    const [one, other] = [...fingers.values()];
    const wider = spreadOf();
    if (spread > 0) zoomBy(wider / spread, (one.x + other.x) / 2, (one.y + other.y) / 2);
    spread = wider;
  });

  const release = (event) => {
    const wasDown = fingers.delete(event.pointerId);
    spread = spreadOf();
    return wasDown;
  };
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('pointerup', (event) => {
    if (!release(event) || dragged || !seatMap) return;
    const { x, y } = local(event);
    const seat = seatAt(x, y);
    if (seat === null) return;
    current = seat;
    const needed = event.pointerType === 'mouse' ? 9 : TOUCHABLE;
    if (at.scale < needed) zoomTo(Math.max(needed * 1.3, 28), x, y);
    else pick(seat);
  });
  // The wheel scrolls the page, as everywhere, unless the map is in use or Ctrl is pressed (which is
  // also how a touchpad says that two fingers spread).
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const { x, y } = local(event);
    zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), x, y);
  }, { passive: false });

  new ResizeObserver(() => canvas.parentElement.clientWidth !== width && resize()).observe(canvas.parentElement);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    colours = null;
    picture.of = null;
    draw();
  });

  return {
    draw,
    // Shows the states of a section's seats; null while they are being loaded.
    show(next) {
      const isOther = next?.section !== seatMap?.section;
      seatMap = next;
      if (!seatMap) {
        setText(about, text('seats.map.loading'));
        return draw();
      }
      if (isOther) {
        at.isFitted = true;
        current = nextFree(seatMap.states.length);
        described = null;
        canvas.setAttribute('aria-label', text('seats.map.label', { section: theSection().name }));
        setText(about, text('seats.map.hint'));
        resize();
      }
      if (described !== null) setText(about, describe(described));
      return draw();
    },
  };
}
