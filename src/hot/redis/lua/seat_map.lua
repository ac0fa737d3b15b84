-- The seats of sections: which are free, and which reservation has the others. The rules of
-- core/seat_map.h in Lua; both choose the same seats.
--
-- The keys, all of one event {T:ID}; KEY is a section's number in the ledger:
--   section:{T:ID}:counts      HASH    available, held, confirmed: seats of all sections; and
--                                      KEY:available, KEY:held, KEY:confirmed: of each.
--                                      KEY:vanished: 1 if the section is not in the totals any
--                                      more, because it was removed from the event. ran_out: 1 if
--                                      there was a time when no seat was available
--   section:{T:ID}:KEY:meta    HASH    id, mode, status; wanted: seats as configured, capacity: as
--                                      it is (reduced when seats are free); live: reservations;
--                                      vanished, as above
--   section:{T:ID}:KEY:map     STRING  a letter for each seat: A available, H held, C confirmed
--   section:{T:ID}:KEY:slots   HASH    seat → reservation; seats that are taken
--   section:{T:ID}:KEY:free    ZSET    the runs by length: last seat → length × 2^21 + first
--   section:{T:ID}:KEY:runs    ZSET    the runs by place: last seat → itself
--
-- Lists of seats are text, in arguments, replies and reservations: "5,1-3" is 5, 1, 2 and 3.

local RUN_SCALE = 2097152 -- more than any seat's number
local UINT32 = 4294967296

local LETTERS = { available = 'A', held = 'H', confirmed = 'C' }

-- ---- an event's keys, and its sections while a function runs ----

-- `name` is "T:ID".
local function seats_of_event(name)
  local tag = '{' .. name .. '}'
  return {
    tag = name,
    section = 'section:' .. tag .. ':',
    counts = 'section:' .. tag .. ':counts',
    claim = 'claim:' .. tag,
    pending = 'claim:' .. tag .. ':pending',
    due = 'claim:' .. tag .. ':due',
    limit = 'limit:' .. tag,
    of = 'limit:' .. tag .. ':of',
    reserving = 'limit:' .. tag .. ':reserving',
    offers = 'queue:' .. tag .. ':offers',
    sections = {},
  }
end

-- The section with that number, as text; nil: there is none. A vanished section exists while it has
-- reservations.
local function section_at(e, key)
  if e.sections[key] then return e.sections[key] end
  local name = e.section .. key
  local meta = redis.call('HMGET', name .. ':meta', 'capacity', 'wanted', 'mode', 'status',
    'vanished')
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
    vanished = meta[5] ~= false,
  }
  e.sections[key] = s
  return s
end

-- The same, but nil for a vanished section, which takes no claims.
local function section_of(e, key)
  local s = section_at(e, key)
  if s and s.vanished then return nil end
  return s
end

-- Returns how many seats of all sections are in that state now; nil: no total has changed.
local function count_total(e, state, change)
  local total = redis.call('HINCRBY', e.counts, state, change)
  if state == 'available' and total == 0 then redis.call('HSET', e.counts, 'ran_out', 1) end
  return total
end

local function count_seats(e, s, state, change)
  if change == 0 then return nil end
  redis.call('HINCRBY', e.counts, s.key .. ':' .. state, change)
  if not s.vanished then return count_total(e, state, change) end
end

-- The event has become sold out, or is not any more: all nodes look at the users who wait.
local function announce_stock(e)
  redis.call('PUBLISH', 'admitone:entries', '- ' .. e.tag .. ' all')
end

local function is_zero(e, state)
  return tonumber(redis.call('HGET', e.counts, state) or 0) == 0
end

local function is_sold_out(e)
  return is_zero(e, 'available') and is_zero(e, 'held') and not is_zero(e, 'confirmed')
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

-- ---- the runs of free seats: between two runs there is at least one taken seat ----

-- A run is {first, length}. Its member is its last seat, because seats are taken from its
-- beginning.

local function run_of(score)
  score = tonumber(score)
  local length = math.floor(score / RUN_SCALE)
  return { score - length * RUN_SCALE, length }
end

local function first_run(s, low, high)
  local found = redis.call('ZRANGEBYSCORE', s.free, low, high, 'WITHSCORES', 'LIMIT', 0, 1)
  return found[1] and run_of(found[2])
end

-- The shortest of at least this length; of equal ones the one with the lowest seats. nil: none.
local function shortest_run(s, length_min)
  return first_run(s, length_min * RUN_SCALE, '+inf')
end

-- The longest of at most this length, likewise.
local function longest_run(s, length_max)
  local found = redis.call('ZREVRANGEBYSCORE', s.free, (length_max + 1) * RUN_SCALE - 1, 0,
    'WITHSCORES', 'LIMIT', 0, 1)
  return found[1] and shortest_run(s, run_of(found[2])[2])
end

-- One of this length, at this seat or after it.
local function equal_run(s, length, seat)
  return first_run(s, length * RUN_SCALE + seat, (length + 1) * RUN_SCALE - 1)
end

-- The run that ends with this seat.
local function run_to(s, last)
  local score = redis.call('ZSCORE', s.free, last)
  return score and run_of(score)
end

-- The run that contains the seat; nil: the seat is taken.
local function run_at(s, seat)
  local found = redis.call('ZRANGEBYSCORE', s.runs, seat, '+inf', 'LIMIT', 0, 1)
  local run = found[1] and run_to(s, found[1])
  return run and run[1] <= seat and run or nil
end

-- Sets the first seat of the run.
local function run_move(s, first, last)
  redis.call('ZADD', s.free, (last - first + 1) * RUN_SCALE + first, last)
end

local function run_add(s, first, last)
  run_move(s, first, last)
  redis.call('ZADD', s.runs, last, last)
end

local function run_remove(s, last)
  redis.call('ZREM', s.free, last)
  redis.call('ZREM', s.runs, last)
end

-- Takes seats of one run, which the caller may have found already.
local function runs_take(s, first, length, run)
  run = run or run_at(s, first)
  local last = run[1] + run[2] - 1
  if first + length <= last then run_move(s, first + length, last) else run_remove(s, last) end
  if run[1] < first then run_add(s, run[1], first - 1) end
end

local function runs_give(s, first, length)
  local before = run_to(s, first - 1)
  local after = run_at(s, first + length)
  if before then
    run_remove(s, first - 1)
    first, length = before[1], before[2] + length
  end
  if after then
    run_move(s, first, after[1] + after[2] - 1)
  else
    run_add(s, first, first + length - 1)
  end
end

-- ---- seats ----

local NOT_SOLD = { available = 'held', held = 'available' } -- each with the other one

-- The only function that changes seats: all of them from one state to another. Without an id the
-- seats stay with their reservation, or have none any more.
local function seats_put(e, s, stretches, from, to, id)
  local seats = seats_in(stretches)
  for _, run in ipairs(stretches) do
    if from == 'available' then runs_take(s, run[1], run[2], run[3]) end
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
  if from == to then return end
  local rest = count_seats(e, s, from, -#seats)
  local total = count_seats(e, s, to, #seats)
  local sells_last = to == 'confirmed' and rest == 0 and is_zero(e, NOT_SOLD[from])
  local returns_first = from == 'confirmed' and total == #seats and is_zero(e, NOT_SOLD[to])
  if sells_last or returns_first then announce_stock(e) end
end

-- Resizes the section to the configured number. False: a seat that would be removed is taken.
local function resize(e, s)
  local tail = run_to(s, s.capacity)
  local first = tail and tail[1] or s.capacity + 1
  if first > s.wanted + 1 then return false end
  if tail then run_remove(s, s.capacity) end
  if first <= s.wanted then run_add(s, first, s.wanted) end
  if s.wanted > s.capacity then
    redis.call('APPEND', s.map, string.rep('A', s.wanted - s.capacity))
  else
    redis.call('SET', s.map, redis.call('GETRANGE', s.map, 0, s.wanted - 1))
  end
  count_seats(e, s, 'available', s.wanted - s.capacity)
  s.capacity = s.wanted
  redis.call('HSET', s.meta, 'capacity', s.capacity)
  return true
end

local function section_remove(e, s)
  redis.call('DEL', s.meta, s.map, s.slots, s.free, s.runs)
  redis.call('HDEL', e.counts, s.key .. ':available', s.key .. ':held', s.key .. ':confirmed',
    s.key .. ':vanished')
  e.sections[s.key] = nil
end

-- After seats became free: removes a vanished section without reservations, or resizes a section.
local function section_catch_up(e, s)
  if s.vanished and tonumber(redis.call('HGET', s.meta, 'live')) == 0 then
    section_remove(e, s)
  elseif s.capacity ~= s.wanted then
    resize(e, s)
  end
end

-- ---- choosing seats ----

-- All seats are chosen before any is taken. `last` is the run that rule 3 chose last, nil at first:
-- longer runs, and those of equal length up to it, are used already.

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

-- n seats as stretches, ascending, each with the run that it begins. There are enough seats.
local function choose(s, n)
  local chosen = {}
  local last
  while n > 0 do
    local run = choose_run(s, n, last)
    if not run then
      run = longest_left(s, last)
      last = run
    end
    local length = math.min(n, run[2])
    chosen[#chosen + 1] = { run[1], length, run }
    n = n - length
  end
  table.sort(chosen, function(a, b) return a[1] < b[1] end)
  return chosen
end

local SUGGEST_LENGTHS_MAX = 64

-- The first of n adjacent seats, searched from a seat that the spread selects; nil: there are none.
-- The spread is a number of 64 bits in two halves, because Lua's numbers do not have 64 bits.
local function choose_apart(s, n, high, low)
  local rest = (high % s.capacity) * UINT32 + low
  local start = 1 + rest % s.capacity
  local run = run_at(s, start)
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

-- The outcome if there are fewer than n free seats, else nil.
local function too_few(e, s, n)
  local available = tonumber(redis.call('HGET', e.counts, s.key .. ':available'))
  if available == 0 then return 'SOLD_OUT' end
  return available < n and 'NOT_ENOUGH' or nil
end

local REFUSAL_PRIORITY = { TAKEN = 1, SEATS_TWICE = 2, NO_SUCH_SEAT = 3 }

-- Checks named seats: the worst refusal, and the seats that it is about; nil: none.
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
    if here and (not worst or REFUSAL_PRIORITY[here] > REFUSAL_PRIORITY[worst]) then
      worst = here
      refused = {}
    end
    if here and here == worst then refused[#refused + 1] = seat end
  end
  return worst, refused
end

-- ---- configurations ----

local function section_add(e, section)
  local name = e.section .. section.key
  redis.call('HSET', name .. ':meta', 'capacity', section.capacity, 'wanted', section.capacity,
    'mode', section.mode, 'status', section.status, 'live', 0)
  redis.call('SET', name .. ':map', string.rep('A', tonumber(section.capacity)))
  redis.call('HSET', e.counts, section.key .. ':available', 0, section.key .. ':held', 0,
    section.key .. ':confirmed', 0)
  local s = section_at(e, section.key)
  run_add(s, 1, s.capacity)
  count_seats(e, s, 'available', s.capacity)
  return s
end

-- Adds the seats of a section to the totals, or subtracts them.
local function section_counts(e, s, sign)
  for state in pairs(LETTERS) do
    local seats = tonumber(redis.call('HGET', e.counts, s.key .. ':' .. state))
    -- Not 0: Lua would write -0, which Redis does not accept as a number.
    if seats > 0 then count_total(e, state, sign * seats) end
  end
end

local function section_mark_vanished(e, s)
  section_counts(e, s, -1)
  s.vanished = true
  redis.call('HSET', e.counts, s.key .. ':vanished', 1)
  redis.call('HSET', s.meta, 'vanished', 1)
end

local function section_return(e, s)
  section_counts(e, s, 1)
  s.vanished = false
  redis.call('HDEL', e.counts, s.key .. ':vanished')
  redis.call('HDEL', s.meta, 'vanished')
end

-- The numbers of the sections, in their order; of those that have vanished only if they are wanted.
local function section_keys(e, also_vanished)
  local keys = {}
  local counts = fields(e.counts)
  for field in pairs(counts) do
    local key = field:match('^(%d+):available$')
    if key and (also_vanished or not counts[key .. ':vanished']) then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b) return tonumber(a) < tonumber(b) end)
  return keys
end

seats_remove = function(tag)
  local e = seats_of_event(tag)
  for _, key in ipairs(section_keys(e, true)) do section_remove(e, section_at(e, key)) end
  redis.call('DEL', e.counts, e.claim, e.pending, e.due, e.limit, e.of, e.reserving, e.offers)
end

seats_configure = function(tag, sections, fresh)
  if fresh then seats_remove(tag) end
  local e = seats_of_event(tag)
  local was_sold_out = is_sold_out(e)
  local ran_out = redis.call('HGET', e.counts, 'ran_out')
  local there = {}
  for _, section in ipairs(sections) do
    local s = section_at(e, section.key) or section_add(e, section)
    there[section.key] = true
    if s.vanished then section_return(e, s) end
    s.wanted = tonumber(section.capacity)
    redis.call('HSET', s.meta, 'id', section.id, 'wanted', section.capacity, 'mode', section.mode,
      'status', section.status)
  end
  for _, key in ipairs(section_keys(e)) do
    local s = section_at(e, key)
    if not there[key] then section_mark_vanished(e, s) end
    section_catch_up(e, s)
  end
  -- Not if there was none only while the sections changed one after the other.
  if not ran_out and not is_zero(e, 'available') then redis.call('HDEL', e.counts, 'ran_out') end
  if is_sold_out(e) ~= was_sold_out then announce_stock(e) end
end
