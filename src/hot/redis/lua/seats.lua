-- The seats of an event: the law of core/claims.h and core/seat_map.h once more, by the same rule
-- for `quantity` and with the same seats.
--
-- The keys, all of one event {T:ID}; KEY is a section's number in the ledger:
--   section:{T:ID}:counts      HASH    available, held, confirmed: seats of all sections; and
--                                      KEY:available, KEY:held, KEY:confirmed: of each.
--                                      KEY:vanished: 1; not in the former any more
--   section:{T:ID}:KEY:meta    HASH    id, mode, status; wanted: seats as configured, capacity: as
--                                      it is (it follows when it can); live: reservations
--   section:{T:ID}:KEY:map     STRING  a letter for each seat: A available, H held, C confirmed
--   section:{T:ID}:KEY:slots   HASH    seat → reservation; seats that are taken
--   section:{T:ID}:KEY:free    ZSET    the runs by length: first seat → length × 2^21 + first seat
--   section:{T:ID}:KEY:runs    ZSET    the runs by place: first seat → first seat
--   claim:{T:ID}               HASH    reservation → "KEY step entry expires key request seats
--                                      user": all that are live; the step is P (pending, HELD), H
--                                      or C; key and request are digests
--   claim:{T:ID}:pending       ZSET    "KEY:reservation" → since when
--   claim:{T:ID}:due           ZSET    "KEY:reservation" → when it is told; settled holds
--   limit:{T:ID}               HASH    user → seats of all live reservations
--   limit:{T:ID}:of            HASH    user → live reservations, newest first
--   limit:{T:ID}:reserving     HASH    entry → how many settled holds it has
--
-- Lists of seats are text, in arguments, replies and here: "5,1-3" is 5, 1, 2 and 3.
-- Functions know the names of an event's keys by its first one: all that they may touch are
-- declared nevertheless. But the keys of a section that vanishes are only known here.

do -- as queue.lua: a chunk has room for 200 local names

local RUN_SCALE = 2097152 -- more than any seat's number
local DUE_AGAIN_MS = 5000
local UINT32 = 4294967296

local LETTERS = { available = 'A', held = 'H', confirmed = 'C' }
local STATES = { P = 'held', H = 'held', C = 'confirmed' }

-- ---- an event's keys, and its sections while a function runs ----

-- `tag` is "T:ID".
local function seats_of_event(tag)
  tag = '{' .. tag .. '}'
  return {
    section = 'section:' .. tag .. ':',
    counts = 'section:' .. tag .. ':counts',
    claim = 'claim:' .. tag,
    pending = 'claim:' .. tag .. ':pending',
    due = 'claim:' .. tag .. ':due',
    limit = 'limit:' .. tag,
    of = 'limit:' .. tag .. ':of',
    reserving = 'limit:' .. tag .. ':reserving',
    sections = {},
  }
end

-- By its number, as text; nil: there is none. One that has vanished is still here while it has
-- reservations.
local function seating_at(e, key)
  if e.sections[key] then return e.sections[key] end
  local name = e.section .. key
  local meta = redis.call('HMGET', name .. ':meta', 'capacity', 'wanted', 'mode', 'status')
  if not meta[1] then return nil end
  local s = {
    key = key,
    meta = name .. ':meta',
    map = name .. ':map',
    slots = name .. ':slots',
    free = name .. ':free',
    runs = name .. ':runs',
    capacity = tonumber(meta[1]),
    wanted = tonumber(meta[2]),
    mode = meta[3],
    status = meta[4],
    vanished = redis.call('HEXISTS', e.counts, key .. ':vanished') == 1,
  }
  e.sections[key] = s
  return s
end

-- One that takes claims.
local function seating_of(e, key)
  local s = seating_at(e, key)
  if s and s.vanished then return nil end
  return s
end

local function count(e, s, state, change)
  if change == 0 then return end
  redis.call('HINCRBY', e.counts, s.key .. ':' .. state, change)
  if not s.vanished then redis.call('HINCRBY', e.counts, state, change) end
end

-- ---- lists of seats ----

-- Stretches of adjacent seats {first, length}, in the order of the list.
local function stretches_of(list)
  local stretches = {}
  for first, last in list:gmatch('(%d+)%-?(%d*)') do
    first = tonumber(first)
    stretches[#stretches + 1] = { first, last == '' and 1 or tonumber(last) - first + 1 }
  end
  return stretches
end

local function list_of(stretches)
  local list = {}
  for i, run in ipairs(stretches) do
    list[i] = run[2] == 1 and text(run[1]) or text(run[1]) .. '-' .. text(run[1] + run[2] - 1)
  end
  return table.concat(list, ',')
end

local function seats_in(stretches)
  local seats = {}
  for _, run in ipairs(stretches) do
    for seat = run[1], run[1] + run[2] - 1 do seats[#seats + 1] = seat end
  end
  return seats
end

local function stretches_in(seats)
  local stretches = {}
  local run
  for _, seat in ipairs(seats) do
    if run and seat == run[1] + run[2] then
      run[2] = run[2] + 1
    else
      run = { seat, 1 }
      stretches[#stretches + 1] = run
    end
  end
  return stretches
end

-- ---- the runs: as long as they can be, so that a taken seat is between any two ----

local function first_run(s, low, high)
  local found = redis.call('ZRANGEBYSCORE', s.free, low, high, 'WITHSCORES', 'LIMIT', 0, 1)
  if not found[1] then return nil end
  return { tonumber(found[1]), math.floor(tonumber(found[2]) / RUN_SCALE) }
end

-- Of at least this length; of equals the one with the lowest numbers. nil: none is as long.
local function shortest_run(s, length_min)
  return first_run(s, length_min * RUN_SCALE, '+inf')
end

-- Of at most this length, likewise.
local function longest_run(s, length_max)
  local found = redis.call('ZREVRANGEBYSCORE', s.free, (length_max + 1) * RUN_SCALE - 1, 0,
    'WITHSCORES', 'LIMIT', 0, 1)
  if not found[1] then return nil end
  return shortest_run(s, math.floor(tonumber(found[2]) / RUN_SCALE))
end

-- Of this length, from a seat on.
local function equal_run(s, length, seat)
  return first_run(s, length * RUN_SCALE + seat, (length + 1) * RUN_SCALE - 1)
end

-- The nearest that begins at the seat or before it.
local function run_before(s, seat)
  local found = redis.call('ZREVRANGEBYSCORE', s.runs, seat, 0, 'LIMIT', 0, 1)
  if not found[1] then return nil end
  local score = tonumber(redis.call('ZSCORE', s.free, found[1]))
  return { tonumber(found[1]), math.floor(score / RUN_SCALE) }
end

-- New, or of another length than it was.
local function run_put(s, first, length)
  redis.call('ZADD', s.free, length * RUN_SCALE + first, first)
  redis.call('ZADD', s.runs, first, first)
end

local function run_remove(s, first)
  redis.call('ZREM', s.free, first)
  redis.call('ZREM', s.runs, first)
end

local function runs_take(s, first, length)
  local run = run_before(s, first)
  local left = first - run[1]
  local right = run[2] - left - length
  if left == 0 then run_remove(s, first) else run_put(s, run[1], left) end
  if right > 0 then run_put(s, first + length, right) end
end

local function runs_give(s, first, length)
  local before = run_before(s, first)
  local after = redis.call('ZSCORE', s.free, first + length)
  if after then
    run_remove(s, first + length)
    length = length + math.floor(tonumber(after) / RUN_SCALE)
  end
  if before and before[1] + before[2] == first then
    run_put(s, before[1], before[2] + length)
  else
    run_put(s, first, length)
  end
end

-- ---- seats ----

-- The one place where seats change: all of them from one state to another. Without an id the
-- holder stays who it is, or there is none any more.
local function put(e, s, stretches, from, to, id)
  local seats = seats_in(stretches)
  for _, run in ipairs(stretches) do
    if from == 'available' then runs_take(s, run[1], run[2]) end
    if to == 'available' then runs_give(s, run[1], run[2]) end
    redis.call('SETRANGE', s.map, run[1] - 1, string.rep(LETTERS[to], run[2]))
  end
  if to == 'available' then
    redis.call('HDEL', s.slots, unpack(seats))
  elseif id then
    local holders = {}
    for i, seat in ipairs(seats) do
      holders[2 * i - 1] = seat
      holders[2 * i] = id
    end
    redis.call('HSET', s.slots, unpack(holders))
  end
  if from ~= to then
    count(e, s, from, -#seats)
    count(e, s, to, #seats)
  end
end

-- The run at the section's end grows or shrinks with it. False: a seat that would go is taken.
local function resize(e, s)
  local tail = run_before(s, s.capacity)
  if tail and tail[1] + tail[2] - 1 ~= s.capacity then tail = nil end
  local first = tail and tail[1] or s.capacity + 1
  if first > s.wanted + 1 then return false end
  if first <= s.wanted then run_put(s, first, s.wanted - first + 1) else run_remove(s, first) end
  if s.wanted > s.capacity then
    redis.call('APPEND', s.map, string.rep('A', s.wanted - s.capacity))
  else
    redis.call('SET', s.map, redis.call('GETRANGE', s.map, 0, s.wanted - 1))
  end
  count(e, s, 'available', s.wanted - s.capacity)
  s.capacity = s.wanted
  redis.call('HSET', s.meta, 'capacity', s.capacity)
  return true
end

local function seating_remove(e, s)
  redis.call('DEL', s.meta, s.map, s.slots, s.free, s.runs)
  redis.call('HDEL', e.counts, s.key .. ':available', s.key .. ':held', s.key .. ':confirmed',
    s.key .. ':vanished')
  e.sections[s.key] = nil
end

-- After seats were given back: what waited for that. One that vanishes is gone with its last.
local function seating_catch_up(e, s)
  if s.vanished and tonumber(redis.call('HGET', s.meta, 'live')) == 0 then
    seating_remove(e, s)
  elseif s.capacity ~= s.wanted then
    resize(e, s)
  end
end

-- ---- the rule ----

-- It chooses before anything is taken. What is left is told by `last`, the run that it chose last
-- by 3: not the longer ones, nor those of equal length up to it. At first it is nil.

local function shortest_left(s, n, last)
  local run = shortest_run(s, n)
  if not run or not last or run[2] < last[2] then return run end
  if n > last[2] then return nil end
  return equal_run(s, last[2], last[1] + 1)
end

local function longest_left(s, last)
  if not last then return longest_run(s, s.capacity) end
  return equal_run(s, last[2], last[1] + 1) or longest_run(s, last[2] - 1)
end

-- Rules 1 and 2.
local function choose_run(s, n, last)
  local run = shortest_left(s, n, last)
  if run and run[2] == n + 1 then return shortest_left(s, n + 2, last) or run end
  return run
end

-- n seats as stretches, ascending. There are enough.
local function choose(s, n)
  local chosen = {}
  local last
  while n > 0 do
    local run = choose_run(s, n, last)
    if run then
      run[2] = n
    else
      run = longest_left(s, last)
      last = run
    end
    chosen[#chosen + 1] = run
    n = n - run[2]
  end
  table.sort(chosen, function(a, b) return a[1] < b[1] end)
  return chosen
end

local SUGGEST_LENGTHS_MAX = 64

-- The seat where n adjacent ones begin, from the seat that the spread chooses on; nil: there are
-- none. `spread` is a number of 64 bits in two halves, which only together would not fit.
local function choose_apart(s, n, high, low)
  local rest = (high % s.capacity) * UINT32 + low
  local start = 1 + rest % s.capacity
  local run = run_before(s, start)
  if run and run[1] + run[2] - start >= n then return start end
  local nearest
  local nearest_distance = s.capacity
  local length = n
  for _ = 1, SUGGEST_LENGTHS_MAX do
    run = shortest_run(s, length)
    if not run then break end
    run = equal_run(s, run[2], start) or run
    length = run[2] + 1
    local distance = (run[1] + s.capacity - start) % s.capacity
    if distance < nearest_distance then
      nearest = run
      nearest_distance = distance
    end
  end
  if not nearest then return nil end
  local choices = nearest[2] - n + 1
  local quotient = (math.floor(high / s.capacity) % choices) * (UINT32 % choices)
    + math.floor(rest / s.capacity) % choices
  return nearest[1] + quotient % choices
end

local function suggest(s, n, high, low)
  local first = (high ~= 0 or low ~= 0) and choose_apart(s, n, high, low)
  return first and { { first, n } } or choose(s, n)
end

-- Why so many can't be had; nil: they can.
local function too_few(e, s, n)
  local available = tonumber(redis.call('HGET', e.counts, s.key .. ':available'))
  if available == 0 then return 'SOLD_OUT' end
  return available < n and 'NOT_ENOUGH' or nil
end

local BADNESS = { TAKEN = 1, SEATS_TWICE = 2, NO_SUCH_SEAT = 3 }

-- What is wrong with seats that are named, and which of them; nil: nothing. The worst counts.
local function check_named(s, seats, may_be_taken)
  local holders = redis.call('HMGET', s.slots, unpack(seats))
  local worst
  local refused = {}
  local named = {}
  for i, seat in ipairs(seats) do
    local here
    if seat < 1 or seat > s.capacity then
      here = 'NO_SUCH_SEAT'
    elseif named[seat] then
      here = 'SEATS_TWICE'
    elseif holders[i] and not may_be_taken then
      here = 'TAKEN'
    end
    named[seat] = true
    if here and (not worst or BADNESS[here] > BADNESS[worst]) then
      worst = here
      refused = {}
    end
    if here and here == worst then refused[#refused + 1] = seat end
  end
  return worst, refused
end

-- ---- reservations ----

local function claim_find(e, id)
  local packed = redis.call('HGET', e.claim, id)
  if not packed then return nil end
  local r = { id = id }
  local list
  r.section, r.step, r.entry, r.expires, r.key, r.request, list, r.user =
    packed:match('^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  r.stretches = stretches_of(list)
  r.seats = 0
  for _, run in ipairs(r.stretches) do r.seats = r.seats + run[2] end
  return r
end

local function claim_put(e, r)
  redis.call('HSET', e.claim, r.id, table.concat({ r.section, r.step, r.entry, r.expires, r.key,
    r.request, list_of(r.stretches), r.user }, ' '))
end

local function ref(r)
  return r.section .. ':' .. r.id
end

-- As replies tell it.
local function claim_info(r)
  return { r.id, r.section, r.step, r.entry, r.expires, r.seats }
end

-- The user's newest.
local function buyer_join(e, r)
  local ids = redis.call('HGET', e.of, r.user)
  redis.call('HSET', e.of, r.user, ids and r.id .. ' ' .. ids or r.id)
  redis.call('HINCRBY', e.limit, r.user, r.seats)
end

local function buyer_part(e, r)
  local left = {}
  for id in redis.call('HGET', e.of, r.user):gmatch('%S+') do
    if id ~= r.id then left[#left + 1] = id end
  end
  if #left == 0 then
    redis.call('HDEL', e.of, r.user)
    redis.call('HDEL', e.limit, r.user)
  else
    redis.call('HSET', e.of, r.user, table.concat(left, ' '))
    redis.call('HINCRBY', e.limit, r.user, -r.seats)
  end
end

local function reserving_more(e, r)
  redis.call('HINCRBY', e.reserving, r.entry, 1)
end

local function reserving_less(e, r)
  if redis.call('HINCRBY', e.reserving, r.entry, -1) == 0 then
    redis.call('HDEL', e.reserving, r.entry)
  end
end

-- A new one, with its seats; its step is P or C.
local function claim_join(e, s, r)
  claim_put(e, r)
  buyer_join(e, r)
  redis.call('HINCRBY', s.meta, 'live', 1)
end

local function hold(e, r)
  r.step = 'H'
  claim_put(e, r)
  redis.call('ZREM', e.pending, ref(r))
  redis.call('ZADD', e.due, r.expires, ref(r))
  reserving_more(e, r)
end

local function confirm(e, r)
  put(e, seating_at(e, r.section), r.stretches, 'held', 'confirmed')
  redis.call('ZREM', e.due, ref(r))
  reserving_less(e, r)
  r.step = 'C'
  claim_put(e, r)
end

-- Gone; its seats are no longer its own.
local function claim_forget(e, r)
  redis.call('HDEL', e.claim, r.id)
  buyer_part(e, r)
  if r.step == 'P' then redis.call('ZREM', e.pending, ref(r)) end
  if r.step == 'H' then
    redis.call('ZREM', e.due, ref(r))
    reserving_less(e, r)
  end
  local s = seating_at(e, r.section)
  redis.call('HINCRBY', s.meta, 'live', -1)
  seating_catch_up(e, s)
end

local function finish(e, r)
  put(e, seating_at(e, r.section), r.stretches, STATES[r.step], 'available')
  claim_forget(e, r)
end

-- ---- claiming ----

-- The user's live reservation that has this key.
local function claim_by_key(e, user, key)
  local ids = redis.call('HGET', e.of, user)
  for id in (ids or ''):gmatch('%S+') do
    local r = claim_find(e, id)
    if r.key == key then return r end
  end
  return nil
end

-- One that is there already, by its id or by its key; with the outcome.
local function claim_there(e, w)
  local r = claim_find(e, w.id)
  if r then
    -- By its id it is the very same, though it may have lost seats since.
    return (r.user ~= w.user or r.seats > w.count) and 'KEY_REUSED' or 'THERE', r
  end
  r = w.key ~= '0' and claim_by_key(e, w.user, w.key)
  if not r then return nil end
  return (r.request ~= w.request or r.seats ~= w.count) and 'KEY_REUSED' or 'THERE', r
end

-- What refuses the wish, whatever seats are free; nil: nothing.
local function claim_refusal(e, s, w, meta, now)
  local state = event_state(meta, now)
  if not w.is_active then return 'NOT_ACTIVE' end
  if state == 'CLOSED' or state == 'DRAFT' then return 'EVENT_CLOSED' end
  if not s then return 'NO_SECTION' end
  if s.status == 'closed' then return 'SECTION_CLOSED' end
  if s.status == 'maintenance' then return 'SECTION_MAINTENANCE' end
  local has = tonumber(redis.call('HGET', e.limit, w.user) or 0)
  if has + w.count > tonumber(meta.max_per_user) then return 'LIMIT' end
  return nil
end

-- The outcome, and seats as stretches: those to be had, or those in the way.
local function claim_seats(e, s, w)
  local decides = s.mode == 'seat' and 'LEDGER_DECIDES' or 'DONE'
  if w.named then
    local wrong, refused = check_named(s, w.named, s.mode == 'seat')
    return wrong or decides, stretches_in(wrong and refused or w.named)
  end
  local wrong = too_few(e, s, w.count)
  if wrong then return wrong, {} end
  if s.mode == 'seat' then return decides, suggest(s, w.count, w.spread_high, w.spread_low) end
  return decides, choose(s, w.count)
end

-- The outcome, seats, and the reservation when there is one.
local function claim_in(e, w, meta, now)
  local outcome, r = claim_there(e, w)
  if outcome == 'KEY_REUSED' then return outcome, {} end
  if outcome == 'THERE' then return outcome, r.stretches, r end
  local s = seating_of(e, w.section)
  outcome = claim_refusal(e, s, w, meta, now)
  if outcome then return outcome, {} end
  local stretches
  outcome, stretches = claim_seats(e, s, w)
  if outcome ~= 'DONE' then return outcome, stretches end
  r = {
    id = w.id,
    section = w.section,
    step = 'P',
    entry = w.entry,
    expires = text(now + tonumber(meta.hold_s) * 1000),
    key = w.key,
    request = w.request,
    stretches = stretches,
    seats = w.count,
    user = w.user,
  }
  put(e, s, stretches, 'available', 'held', r.id)
  claim_join(e, s, r)
  redis.call('ZADD', e.pending, now, ref(r))
  return outcome, stretches, r
end

-- ---- from the ledger ----

-- The seat is no longer its; without any it is gone. The section's seats are the caller's.
local function lose(e, r, seat)
  local left = {}
  for _, other in ipairs(seats_in(r.stretches)) do
    if other ~= seat then left[#left + 1] = other end
  end
  if #left == 0 then return claim_forget(e, r) end
  r.stretches = stretches_in(left)
  r.seats = #left
  claim_put(e, r)
  redis.call('HINCRBY', e.limit, r.user, -1)
end

-- The live reservation that has the seat.
local function holder_of(e, s, seat)
  local id = redis.call('HGET', s.slots, seat)
  return id and claim_find(e, id)
end

-- The ledger has the seat as AVAILABLE. Returns whether anything changed.
local function free_seat(e, key, seat)
  local s = seating_of(e, key)
  local r = s and holder_of(e, s, seat)
  if not r or r.step == 'P' then return false end
  put(e, s, { { seat, 1 } }, STATES[r.step], 'available')
  lose(e, r, seat)
  seating_catch_up(e, s)
  return true
end

-- Those of the seats that exist become the new one's, whoever has them.
local function seize(e, s, r, list)
  local seats = {}
  for _, seat in ipairs(seats_in(stretches_of(list))) do
    local id = seat >= 1 and seat <= s.capacity and redis.call('HGET', s.slots, seat)
    if id ~= r.id and seat >= 1 and seat <= s.capacity then
      local other = id and claim_find(e, id)
      put(e, s, { { seat, 1 } }, other and STATES[other.step] or 'available', STATES[r.step], r.id)
      if other then lose(e, other, seat) end
      seats[#seats + 1] = seat
    end
  end
  r.stretches = stretches_in(seats)
  r.seats = #seats
end

-- A live reservation as the ledger has it: section, entry, expires, user, and whether confirmed.
-- Its seats are its own then. False: there is no such section or seat any more.
local function apply(e, r, is_confirmed, list)
  if not seating_of(e, r.section) then return false end
  local known = claim_find(e, r.id)
  r.key, r.request = '0', '0'
  if known then
    -- It becomes what the ledger says, but never goes a step back.
    r.key, r.request = known.key, known.request
    is_confirmed = is_confirmed or known.step == 'C'
    finish(e, known)
  end
  local s = seating_of(e, r.section)
  r.step = is_confirmed and 'C' or 'P'
  seize(e, s, r, list)
  if r.seats == 0 then return false end
  claim_join(e, s, r)
  if not is_confirmed then hold(e, r) end
  seating_catch_up(e, s)
  return true
end

local function follow(e, id, status)
  local r = claim_find(e, id)
  if not r then return false end
  -- A cancellation may overtake the confirmation before it; an expiry has none before it.
  if r.step == 'C' and status ~= 'CANCELLED' then return false end
  if status ~= 'CONFIRMED' then
    finish(e, r)
    return true
  end
  if r.step == 'P' then hold(e, r) end -- the ledger had it, though nobody has said so
  confirm(e, r)
  return true
end

-- Returns whether it is live then.
local function settle(e, id, kept)
  local r = claim_find(e, id)
  if not r then return false end
  if r.step ~= 'P' then return true end
  if kept then hold(e, r) else finish(e, r) end
  return kept
end

-- ---- configurations ----

local function seating_add(e, section)
  local name = e.section .. section.key
  redis.call('HSET', name .. ':meta', 'capacity', section.capacity, 'wanted', section.capacity,
    'mode', section.mode, 'status', section.status, 'live', 0)
  redis.call('SET', name .. ':map', string.rep('A', tonumber(section.capacity)))
  redis.call('HSET', e.counts, section.key .. ':available', 0, section.key .. ':held', 0,
    section.key .. ':confirmed', 0)
  local s = seating_at(e, section.key)
  run_put(s, 1, s.capacity)
  count(e, s, 'available', s.capacity)
  return s
end

-- What a section has counts in the totals, or no more.
local function seating_counts(e, s, sign)
  for state in pairs(LETTERS) do
    local seats = tonumber(redis.call('HGET', e.counts, s.key .. ':' .. state))
    -- Not 0: Lua would write it as -0, which is no number to Redis.
    if seats > 0 then redis.call('HINCRBY', e.counts, state, sign * seats) end
  end
end

local function seating_vanish(e, s)
  seating_counts(e, s, -1)
  s.vanished = true
  redis.call('HSET', e.counts, s.key .. ':vanished', 1)
end

local function seating_return(e, s)
  seating_counts(e, s, 1)
  s.vanished = false
  redis.call('HDEL', e.counts, s.key .. ':vanished')
end

-- The numbers of all sections, also of those that have vanished.
local function seating_keys(e)
  local keys = {}
  for _, field in ipairs(redis.call('HKEYS', e.counts)) do
    keys[#keys + 1] = field:match('^(%d+):available$')
  end
  return keys
end

seats_remove = function(tag)
  local e = seats_of_event(tag)
  for _, key in ipairs(seating_keys(e)) do seating_remove(e, seating_at(e, key)) end
  redis.call('DEL', e.counts, e.claim, e.pending, e.due, e.limit, e.of, e.reserving)
end

seats_configure = function(tag, sections, fresh)
  if fresh then seats_remove(tag) end
  local e = seats_of_event(tag)
  local there = {}
  for _, section in ipairs(sections) do
    local s = seating_at(e, section.key) or seating_add(e, section)
    there[section.key] = true
    if s.vanished then seating_return(e, s) end
    s.wanted = tonumber(section.capacity)
    redis.call('HSET', s.meta, 'id', section.id, 'wanted', section.capacity, 'mode', section.mode,
      'status', section.status)
  end
  for _, key in ipairs(seating_keys(e)) do
    local s = seating_at(e, key)
    if not there[key] and not s.vanished then seating_vanish(e, s) end
    seating_catch_up(e, s)
  end
end

-- ---- functions ----

-- The event of a call; or nil, and why it is refused.
local function seats_begin(keys, args)
  local no = refused(keys[1], args[1])
  if no then return nil, no end
  return seats_of_event(keys[1]:match('{(.*)}'))
end

-- Its keys begin with those of queue.lua, and its arguments with the node too; then come: the
-- reservation's id, user, entry, section, digests of key and request ("0": none), the halves of the
-- spread, how many seats, and which ("": any). Returns, as in_room does, the outcome, the seats, and
-- the reservation if there is one.
register('claim', function(keys, args)
  local e = seats_of_event(keys[1]:match('{(.*)}'))
  local w = {
    id = args[4],
    user = args[5],
    entry = args[6],
    section = args[7],
    key = args[8],
    request = args[9],
    spread_high = tonumber(args[10]),
    spread_low = tonumber(args[11]),
    count = tonumber(args[12]),
    named = args[13] ~= '' and seats_in(stretches_of(args[13])) or nil,
  }
  return in_room(keys, args, w.entry, function(meta, now, entry)
    w.is_active = entry and entry.step == 'ACTIVE' and tonumber(entry.at) > now
      and entry.user == w.user
    local outcome, stretches, r = claim_in(e, w, meta, now)
    return { outcome, list_of(stretches), r and claim_info(r) or {} }
  end)
end)

-- Arguments: pairs of an id, and "kept" or "undone". Returns for each whether it is live.
register('claim_settle', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local live = {}
  for i = 3, #args, 2 do
    live[#live + 1] = settle(e, args[i], args[i + 1] == 'kept') and 1 or 0
  end
  return live
end)

-- Arguments: pairs of an id, and CONFIRMED, CANCELLED or EXPIRED. Returns for each whether it was
-- not so already.
register('follow', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local changed = {}
  for i = 3, #args, 2 do changed[#changed + 1] = follow(e, args[i], args[i + 1]) and 1 or 0 end
  return changed
end)

-- One reservation in seven arguments: id, user, entry, section, HELD or CONFIRMED, expires, seats.
local function apply_arguments(e, args, at)
  local r = {
    id = args[at],
    user = args[at + 1],
    entry = args[at + 2],
    section = args[at + 3],
    expires = args[at + 5],
  }
  return apply(e, r, args[at + 4] == 'CONFIRMED', args[at + 6])
end

-- Arguments: a section and which of its seats are free; then reservations. Returns how much
-- changed.
register('sync', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local changed = 0
  for _, seat in ipairs(seats_in(stretches_of(args[4]))) do
    if free_seat(e, args[3], seat) then changed = changed + 1 end
  end
  for at = 5, #args, 7 do
    if apply_arguments(e, args, at) then changed = changed + 1 end
  end
  return changed
end)

-- Arguments: how many at the most. Returns "section:id" of each.
register('due', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local now = milliseconds(args[2])
  local refs = redis.call('ZRANGEBYSCORE', e.due, '-inf', now, 'LIMIT', 0, args[3])
  for _, due in ipairs(refs) do redis.call('ZADD', e.due, now + DUE_AGAIN_MS, due) end
  return refs
end)

-- Arguments: the user, the entry ("0": any), and how many at the most. Returns how many there are,
-- and the newest.
register('holds', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local reply = { 0 }
  for id in (redis.call('HGET', e.of, args[3]) or ''):gmatch('%S+') do
    local r = claim_find(e, id)
    if args[4] == '0' or args[4] == r.entry then
      if reply[1] < tonumber(args[5]) then reply[#reply + 1] = claim_info(r) end
      reply[1] = reply[1] + 1
    end
  end
  return reply
end)

local function counts_of(e, prefix)
  local counts = redis.call('HMGET', e.counts, prefix .. 'available', prefix .. 'held',
    prefix .. 'confirmed')
  return { tonumber(counts[1] or 0), tonumber(counts[2] or 0), tonumber(counts[3] or 0) }
end

-- Returns the seats available, held and confirmed: of all sections, then of each, with its number.
register('count', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local reply = { counts_of(e, '') }
  for _, key in ipairs(seating_keys(e)) do
    local counts = counts_of(e, key .. ':')
    if redis.call('HEXISTS', e.counts, key .. ':vanished') == 0 then
      reply[#reply + 1] = { key, counts[1], counts[2], counts[3] }
    end
  end
  return reply
end)

-- Arguments: the section, the first seat, and how many at the most. Returns their letters, and the
-- section's seats available, held and confirmed; or nothing when there is no such section.
register('render', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  local s = seating_of(e, args[3])
  if not s then return {} end
  local first, most = tonumber(args[4]), tonumber(args[5])
  local counts = counts_of(e, s.key .. ':')
  local letters = ''
  if first >= 1 and most >= 1 then
    letters = redis.call('GETRANGE', s.map, first - 1, first + most - 2)
  end
  return { letters, counts[1], counts[2], counts[3] }
end)

-- Arguments: a reservation, as sync has it.
register('restore_reservation', function(keys, args)
  local e, no = seats_begin(keys, args)
  if not e then return no end
  return apply_arguments(e, args, 3) and 1 or 0
end)

end
