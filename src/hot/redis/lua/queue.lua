-- The waiting rooms: the rules of core/queue.h in Lua, one function per operation of port/queue.h.
--
-- The keys of every function, in this order; all of one event {T:ID}:
--    1  queue:{T:ID}:meta       HASH    epoch, key, version, deleted; rules, one text; the state of
--                                       admission (interval_…, rate_…, grace_…); counts since the
--                                       event was created (entered, rejected and so on)
--    2  queue:{T:ID}:seq        STRING  the last number that was given
--    3  queue:{T:ID}:user       HASH    user → number of the live entry
--    4  queue:{T:ID}:entry      HASH    number → the entry as text, see entry_parse
--    5  queue:{T:ID}:waiting    ZSET    waiting, pending or not: number → lane × 2^48 + number
--    6  queue:{T:ID}:active     ZSET    active entries: number → when its time ends; inf: its
--                                       admission is pending
--    7  queue:{T:ID}:pending    ZSET    number → since when its enter, its admission or its
--                                       expiry is pending, that is not settled
--    8  queue:{T:ID}:seen       ZSET    waiting entries: number → last seen, in seconds
--    9  queue:{T:ID}:ended      ZSET    number → when it ended; the last few thousand
--   10  queue:{T:ID}:offers     SET     entries with an open offer of a returned seat, see
--                                       core/queue.h
--   11  section:{T:ID}:counts   HASH    of seat_map.lua: seats by state
--   12  limit:{T:ID}            HASH    of seats.lua: user → seats
--   13  limit:{T:ID}:reserving  HASH    of seats.lua: number → settled holds
--   14  claim:{T:ID}:pending    ZSET    of seats.lua: which claims are pending, since when
--   15  claim:{T:ID}:due        ZSET    of seats.lua: when holds end
--   16  admitone:{hot}:ticks    ZSET    of common.lua
--   17  admitone:{hot}:ticked   ZSET    of common.lua
-- Their first arguments: the epoch, the event's key, the time (0: the clock of Redis), the calling
-- node.
--
-- In replies a place is a list: status, position, estimate, lane, joined_ms, expires_ms, pending
-- (1 or 0), how many wait; of an unknown entry only NONE.

do -- a chunk may have 200 local names, and all files are one chunk

local LANE_SCALE = 2 ^ 48
local ADMIT_MOST = 1000
-- The most entries that one call ends: of those whose time is over, and of the silent ones.
local END_MOST = 2048
local OVERDUE_MOST = 256
local RATE_WEIGHT = 0.2
local ESTIMATE_BY_RATE_S_MAX = 2592000
local SWEEP_GAP_MS_MAX = 2000
-- How many ended entries are kept, and for how long.
local ENDED_KEPT = 4096
local ENDED_KEPT_MS = 86400000
local FORGET_MOST = 256
local TOMBSTONE_S = 86400

local STATUS = {
  ENTERING = 'WAITING', WAITING = 'WAITING', ADMITTING = 'WAITING',
  ACTIVATING = 'ACTIVE', ACTIVE = 'ACTIVE',
  COMPLETED = 'COMPLETED', LEFT = 'LEFT', EXPIRED = 'EXPIRED',
}
local COUNT_OF = { COMPLETED = 'completed', LEFT = 'left', EXPIRED = 'expired' }

-- ---- the queue, while a function runs ----

-- Parsed rules: parsing them for each call would take longer than the rest of it.
local rules_read, rules_count = {}, 0
local RULES_READ_MOST = 1000

-- "state=OPEN opens_at_ms= closes_at_ms= max_waiting=1000" and so on as a table, which must not be changed.
local function rules_of(packed)
  local rules = rules_read[packed]
  if rules then return rules end
  rules = {}
  for name, value in string.gmatch(packed, '([%w_]+)=(%S*)') do
    rules[name] = tonumber(value) or value
  end
  if rules_count == RULES_READ_MOST then rules_read, rules_count = {}, 0 end
  rules_read[packed] = rules
  rules_count = rules_count + 1
  return rules
end

local function queue_of(keys, args, rules)
  return {
    meta = keys[1], seq = keys[2], user = keys[3], entry = keys[4], waiting = keys[5],
    active = keys[6], pending = keys[7], seen = keys[8], ended = keys[9], offers = keys[10],
    counts = keys[11], limit = keys[12], reserving = keys[13], claims_pending = keys[14],
    claims_due = keys[15],
    rules = rules,
    fields = {},   -- other fields of meta that were read
    changed = {},  -- those that are to be written
    now = milliseconds(args[3]),
    node = args[4],
    announced = {}, -- entries that became ACTIVE or ended, for other nodes
    dropped = 0,   -- how many entries have ended
  }
end

-- nil and the error when the operation is refused. Further fields of meta may be named, so that
-- they are read in the same command.
local function queue_open(keys, args, ...)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'deleted', 'key', 'rules', 'untold', 'next_ms',
    ...)
  local why = meta_refused({ epoch = meta[1], deleted = meta[2], key = meta[3] }, args[1], args[2])
  if why then return nil, why end
  local r = queue_of(keys, args, rules_of(meta[4]))
  r.untold = meta[5]
  r.next_ms = meta[6]
  for i = 1, select('#', ...) do r.fields[select(i, ...)] = tonumber(meta[i + 6] or 0) end
  return r
end

-- A field of the rules or of meta; 0 when there is none.
local function number(r, field)
  local value = r.rules[field] or r.fields[field]
  if not value then
    value = tonumber(redis.call('HGET', r.meta, field) or 0)
    r.fields[field] = value
  end
  return value
end

local function set(r, field, value)
  r.fields[field] = value
  r.changed[field] = value
end

local function add(r, field, change)
  set(r, field, number(r, field) + change)
end

-- Deletes the oldest of the ended entries when there are too many.
local function trim(r)
  local over = redis.call('ZCARD', r.ended) - ENDED_KEPT
  if over <= 0 then return end
  local popped = redis.call('ZPOPMIN', r.ended, math.min(over, r.dropped + FORGET_MOST))
  for i = 1, #popped, 2 do redis.call('HDEL', r.entry, popped[i]) end
end

local function queue_save(r)
  local flat = {}
  for field, value in pairs(r.changed) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
  end
  if #flat > 0 then redis.call('HSET', r.meta, unpack(flat)) end
end

-- The last call of every function that may have changed something.
local function queue_close(r)
  if r.dropped > 0 then trim(r) end
  queue_save(r)
  if not r.ticked then request_tick(r.meta, r.next_ms) end
  if #r.announced == 0 then return end
  redis.call('PUBLISH', 'admitone:entries', r.node .. ' ' .. tag_of(r.meta) .. ' ' ..
    table.concat(r.announced, ' '))
end

-- ---- entries ----

local function entry_at(r, seq)
  return entry_parse(redis.call('HGET', r.entry, seq))
end

local function entry_write(r, seq, e)
  redis.call('HSET', r.entry, seq,
    e.step .. ' ' .. e.lane .. ' ' .. e.joined_ms .. ' ' .. e.at .. ' ' .. e.user)
end

local function waiting_count(r)
  return redis.call('ZCARD', r.waiting)
end

-- In seconds, rounded up.
local function seen_s(r)
  return math.ceil(r.now / 1000)
end

-- The user is there. Only waiting entries are in the set.
local function note_seen(r, seq)
  redis.call('ZADD', r.seen, 'XX', 'GT', seen_s(r), seq)
end

-- Adds the entry to the sets that count it; its estimate may be set later.
local function entry_place(r, seq, e, last_seen_s)
  redis.call('HSET', r.user, e.user, seq)
  if STATUS[e.step] == 'WAITING' then
    redis.call('ZADD', r.waiting, tonumber(e.lane) * LANE_SCALE + tonumber(seq), seq)
    redis.call('ZADD', r.seen, last_seen_s, seq)
  else
    redis.call('ZADD', r.active, e.at, seq)
  end
end

-- ---- seats ----

-- Seats by state, and whether they had run out; read once in each call.
local function stock_of(r)
  if not r.stock then
    local counts = redis.call('HMGET', r.counts, 'available', 'held', 'confirmed', 'ran_out')
    r.stock = {
      available = tonumber(counts[1] or 0),
      held = tonumber(counts[2] or 0),
      confirmed = tonumber(counts[3] or 0),
      ran_out = counts[4] ~= false,
    }
    r.stock.seats = r.stock.available + r.stock.held + r.stock.confirmed
  end
  return r.stock
end

-- In replies.
local function seats_of(r)
  local stock = stock_of(r)
  return { stock.available, stock.held, stock.confirmed }
end

-- How many may be admitted for the seats that are left.
local function stock_left(r)
  local stock = stock_of(r)
  if stock.seats == 0 then return math.huge end
  if stock.available == 0 then return 0 end
  if not stock.ran_out then return math.huge end
  return math.max(0, stock.available - redis.call('SCARD', r.offers))
end

-- In replies: as queue_has_stock.
local function has_stock(r)
  return stock_left(r) > 0 and 1 or 0
end

-- The entry is being admitted.
local function offer_open(r, seq)
  local stock = stock_of(r)
  if stock.seats > 0 and stock.ran_out then redis.call('SADD', r.offers, seq) end
end

-- ---- the speed of admission ----

local function is_admitting(r)
  local state = event_state(r.rules, r.now)
  return state == 'OPEN' or state == 'DRAINING'
end

-- The beginning of the interval that contains the time.
local function interval_of(r, at_ms)
  return at_ms - at_ms % (number(r, 'entry_interval_s') * 1000)
end

-- How many may still be admitted in the current interval.
local function batch_left(r)
  local interval_ms = interval_of(r, r.now)
  local known_ms = number(r, 'interval_ms')
  local length_ms = number(r, 'entry_interval_s') * 1000
  if interval_ms > known_ms or interval_ms < known_ms - length_ms then
    set(r, 'interval_ms', interval_ms)
    set(r, 'interval_used', 0)
  end
  return math.max(0, number(r, 'entry_batch_size') - number(r, 'interval_used'))
end

local function active_left(r)
  return math.max(0, number(r, 'max_active') - redis.call('ZCARD', r.active))
end

local function rate_update(r)
  local idle = waiting_count(r) == 0 or not is_admitting(r) or stock_left(r) == 0
  local from_ms = number(r, 'rate_from_ms')
  local passed_ms = r.now - from_ms
  if not idle and from_ms ~= 0 and passed_ms >= 0 then
    if passed_ms < number(r, 'entry_interval_s') * 1000 then return end
    local now = number(r, 'rate_admitted') * 1000 / passed_ms
    local rate = number(r, 'rate')
    set(r, 'rate', rate == 0 and now or rate + RATE_WEIGHT * (now - rate))
  end
  set(r, 'rate_from_ms', r.now)
  set(r, 'rate_admitted', 0)
end

local function estimate_s(r, position)
  local batch = number(r, 'entry_batch_size')
  local by_rule = math.floor((position + batch - 1) / batch) * number(r, 'entry_interval_s')
  local rate = number(r, 'rate')
  if rate <= 0 then return by_rule end
  return math.max(by_rule, math.ceil(math.min(position / rate, ESTIMATE_BY_RATE_S_MAX)))
end

-- An entry that is not admitted after all frees its share of the batch.
local function give_back_share(r, interval_ms)
  if interval_ms == number(r, 'interval_ms') and number(r, 'interval_used') > 0 then
    add(r, 'interval_used', -1)
  end
end

-- ---- looking ----

local function place_of(r, seq, e)
  if not e then return { 'NONE' } end
  local status, position, estimate, expires_ms = STATUS[e.step], 0, 0, 0
  if status == 'WAITING' then
    position = redis.call('ZRANK', r.waiting, seq) + 1
    estimate = estimate_s(r, position)
  elseif status == 'ACTIVE' then
    if tonumber(e.at) > r.now then expires_ms = e.at else status = 'EXPIRED' end
  end
  local pending = (e.step == 'ENTERING' or e.step == 'ACTIVATING') and 1 or 0
  return { status, position, estimate, e.lane, e.joined_ms, expires_ms, pending,
    waiting_count(r) }
end

-- 1 when the place is ACTIVE and has a live hold.
local function is_reserving(r, seq, place)
  if place[1] ~= 'ACTIVE' then return 0 end
  return tonumber(redis.call('HGET', r.reserving, seq) or 0) > 0 and 1 or 0
end

-- ---- ending ----

-- Removes the entry from the sets that count it; its user may enter again. `final` nil: its enter
-- is undone.
local function drop(r, seq, e, final)
  local was = e.step
  if STATUS[was] == 'WAITING' then
    redis.call('ZREM', r.waiting, seq)
    redis.call('ZREM', r.seen, seq)
  end
  if STATUS[was] == 'ACTIVE' or was == 'ADMITTING' then
    redis.call('ZREM', r.active, seq)
    redis.call('SREM', r.offers, seq)
  end
  if was ~= 'WAITING' and was ~= 'ACTIVE' then redis.call('ZREM', r.pending, seq) end
  if was == 'ADMITTING' then
    add(r, 'admitting', -1)
    give_back_share(r, number(r, 'admitting_ms'))
  end
  if was == 'ACTIVATING' and not final then
    give_back_share(r, interval_of(r, tonumber(e.joined_ms)))
  end
  redis.call('HDEL', r.user, e.user)
  if not final then
    redis.call('HDEL', r.entry, seq)
    return
  end
  add(r, COUNT_OF[final], 1)
  e.step = final
  entry_write(r, seq, e)
  redis.call('ZADD', r.ended, r.now, seq)
  r.dropped = r.dropped + 1
  r.announced[#r.announced + 1] = seq
end

-- Ends an entry whose time is over, before the ledger does. It is pending until a node has written
-- that to the ledger, because the reply of this call may be lost (see overdue).
local function expire(r, seq, e)
  drop(r, seq, e, 'EXPIRED')
  redis.call('ZADD', r.pending, r.now, seq)
end

-- In numerical order, which the order of their texts is not.
local function by_number(a, b)
  return a[1] < b[1]
end

local function by_expiry(a, b)
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[1] < b[1]
end

-- Members and scores as a list of {number, score, member}, in that order.
local function sorted(flat, is_before)
  local items = {}
  for i = 1, #flat, 2 do
    items[#items + 1] = { tonumber(flat[i]), tonumber(flat[i + 1]), flat[i] }
  end
  table.sort(items, is_before)
  return items
end

-- Of an ended entry: number, when its time ended, how long it waited.
local function report_ended(ended, seq, expires_ms, waited_ms)
  ended[#ended + 1] = seq
  ended[#ended + 1] = expires_ms
  ended[#ended + 1] = waited_ms
end

-- Ends at most END_MOST active entries whose time is over. Also reports those that a rebuild ended,
-- which could not be reported then.
local function purge(r, ended)
  if r.untold then
    for seq in string.gmatch(r.untold, '%d+') do report_ended(ended, seq, 0, 0) end
    redis.call('HDEL', r.meta, 'untold')
  end
  local over = redis.call('ZRANGEBYSCORE', r.active, '-inf', r.now, 'WITHSCORES', 'LIMIT', 0,
    END_MOST)
  for _, item in ipairs(sorted(over, by_expiry)) do
    expire(r, item[3], entry_at(r, item[3]))
    report_ended(ended, item[3], item[2], 0)
  end
end

local function restart_grace(r)
  if r.now > number(r, 'grace_from_ms') then set(r, 'grace_from_ms', r.now) end
end

-- Ends waiting entries, which are members of the sorted list.
local function sweep_found(r, found, ended)
  for _, item in ipairs(found) do
    local e = entry_at(r, item[3])
    if e.step == 'WAITING' then
      report_ended(ended, item[3], 0, r.now - tonumber(e.joined_ms))
      expire(r, item[3], e)
    end
  end
end

-- Ends waiting entries that were not seen for too long, by the rules of queue_sweep.
local function sweep(r, ended)
  local runs = is_admitting(r)
  local slept = r.now - number(r, 'swept_ms') > SWEEP_GAP_MS_MAX
  if not runs or slept or number(r, 'grace_is_shorter') == 1 then restart_grace(r) end
  if slept then set(r, 'rate_from_ms', 0) end -- no user waited in that time
  set(r, 'grace_is_shorter', 0)
  set(r, 'swept_ms', r.now)
  if event_state(r.rules, r.now) == 'CLOSED' and event_is_over(r.rules, r.now) then
    local all = redis.call('ZRANGE', r.seen, 0, END_MOST - 1, 'WITHSCORES')
    return sweep_found(r, sorted(all, by_number), ended)
  end
  local silent_ms = r.now - number(r, 'grace_s') * 1000
  if not runs or number(r, 'grace_from_ms') >= silent_ms then return end
  local silent = redis.call('ZRANGEBYSCORE', r.seen, '-inf',
    '(' .. string.format('%.3f', silent_ms / 1000), 'WITHSCORES', 'LIMIT', 0, END_MOST)
  sweep_found(r, sorted(silent, by_number), ended)
end

-- Deletes entries that ended long ago.
local function forget_old(r)
  local old = redis.call('ZRANGEBYSCORE', r.ended, '-inf', r.now - ENDED_KEPT_MS, 'LIMIT', 0,
    FORGET_MOST)
  for _, seq in ipairs(old) do
    redis.call('ZREM', r.ended, seq)
    redis.call('HDEL', r.entry, seq)
  end
end

-- ---- entering ----

-- A new entry. Returns its number and its place.
local function take(r, user, lane, at_once)
  local seq = text(redis.call('INCR', r.seq))
  local e = { lane = lane, joined_ms = text(r.now), user = user }
  if at_once then
    e.step = 'ACTIVATING'
    e.at = text(r.now + number(r, 'active_ttl_s') * 1000)
    add(r, 'interval_used', 1)
    offer_open(r, seq)
  else
    e.step = 'ENTERING'
  end
  entry_place(r, seq, e, seen_s(r))
  redis.call('ZADD', r.pending, r.now, seq)
  local place = place_of(r, seq, e)
  if not at_once then e.at = text(place[3]) end
  entry_write(r, seq, e)
  return seq, place
end

-- The entry with that number, if its time is not over. If it is, `ends` ends it.
local function find_live(r, seq, ends)
  if not seq then return nil end
  local e = entry_at(r, seq)
  if STATUS[e.step] ~= 'ACTIVE' or tonumber(e.at) > r.now then return seq, e end
  if ends then expire(r, seq, e) end
  return nil
end

-- Whether the user has as many seats as one user may have.
local function has_all(r, user)
  local seats = redis.call('HGET', r.limit, user)
  return seats and tonumber(seats) >= r.rules.max_per_user
end

-- TAKEN, THERE, LIMIT, FULL, NOT_OPEN or CLOSED; and the place, if there is one. With `only_there`
-- no place is taken: then it is THERE or NONE.
local function queue_enter(r, there, user, lane, only_there)
  local seq, e = find_live(r, there, not only_there)
  if seq then
    note_seen(r, seq)
    return 'THERE', seq, place_of(r, seq, e)
  end
  if only_there then return 'NONE' end
  if has_all(r, user) then return 'LIMIT' end
  local state = event_state(r.rules, r.now)
  if state == 'DRAFT' then return 'NOT_OPEN' end
  if state == 'DRAINING' or state == 'CLOSED' then return 'CLOSED' end
  local waiting = waiting_count(r)
  local at_once = state == 'OPEN' and waiting == 0 and stock_left(r) > 0 and active_left(r) > 0
    and batch_left(r) > 0
  if not at_once and waiting >= number(r, 'max_waiting') then
    add(r, 'rejected', 1)
    return 'FULL'
  end
  return 'TAKEN', take(r, user, lane, at_once)
end

-- Whether every seat of the section is confirmed. False for a section that is absent or vanished.
local function is_sold(r, section)
  local counts = redis.call('HMGET', r.counts, section .. ':available', section .. ':held',
    section .. ':vanished')
  return counts[1] == '0' and counts[2] == '0' and not counts[3]
end

-- user, lane, the section that it is for (0: none), only_there (1 or 0) → outcome, the time, the
-- user's entry that this ended, opens_at_ms, seats, ended entries, reserving, how many stays have
-- ended; if there is a place, its number, the place, and whether there is stock. When that section is
-- sold out, the outcome is SOLD and nothing is changed.
register('enter', function(keys, args)
  local r, why = queue_open(keys, args, 'interval_ms', 'interval_used', 'rate', 'admitted')
  if not r then return why end
  if args[7] ~= '0' and is_sold(r, args[7]) then
    return { 'SOLD', r.now, 0, '', seats_of(r), {}, 0, 0 }
  end
  local before = redis.call('HGET', r.user, args[5])
  local ended = {}
  purge(r, ended)
  local there = before
  if #ended > 0 then there = redis.call('HGET', r.user, args[5]) end
  local outcome, seq, place = queue_enter(r, there, args[5], args[6], args[8] == '1')
  queue_close(r)
  local opens_at_ms = r.rules.opens_at_ms
  local reply = { outcome, r.now, outcome == 'TAKEN' and before or 0,
    opens_at_ms == '' and '' or text(opens_at_ms), seats_of(r), ended, 0, 0 }
  if seq then
    reply[7] = is_reserving(r, seq, place)
    reply[8] = math.max(0, number(r, 'admitted') - redis.call('ZCARD', r.active))
    reply[9] = seq
    reply[10] = place
    reply[11] = has_stock(r)
  end
  return reply
end)

with_queue = function(keys, args, seq, act)
  local r, why = queue_open(keys, args)
  if not r then return why end
  local ended = {}
  purge(r, ended)
  local reply = act(r.rules, r.now, entry_at(r, seq))
  queue_close(r)
  return { r.now, ended, reply }
end

-- ---- settling ----

local function settle_enter(r, seq, e, kept)
  if e.step ~= 'ENTERING' and e.step ~= 'ACTIVATING' then return end
  if not kept then
    drop(r, seq, e, nil)
    return
  end
  add(r, 'entered', 1)
  if e.step == 'ACTIVATING' then add(r, 'admitted', 1) end
  e.step = STATUS[e.step]
  entry_write(r, seq, e)
  redis.call('ZREM', r.pending, seq)
end

local function settle_admit(r, seq, e, kept)
  if e.step ~= 'ADMITTING' then return end
  add(r, 'admitting', -1)
  redis.call('ZREM', r.pending, seq)
  if kept then
    e.step = 'ACTIVE'
    redis.call('ZREM', r.waiting, seq)
    redis.call('ZREM', r.seen, seq)
    redis.call('ZADD', r.active, e.at, seq)
    add(r, 'admitted', 1)
    r.announced[#r.announced + 1] = seq
  else
    e.step = 'WAITING'
    e.at = '-1'
    redis.call('ZREM', r.active, seq)
    redis.call('SREM', r.offers, seq)
    give_back_share(r, number(r, 'admitting_ms'))
  end
  entry_write(r, seq, e)
end

-- The ledger has stored that it has ended.
local function settle_expiry(r, seq, e)
  if not e or e.step == 'EXPIRED' then redis.call('ZREM', r.pending, seq) end
end

local SETTLES = { enters = settle_enter, admissions = settle_admit, expiries = settle_expiry }

-- "enters", "admissions" or "expiries", 1 when places are wanted; then for each its number and
-- "kept" or "undone" → the places.
register('settle', function(keys, args)
  local r, why = queue_open(keys, args)
  if not r then return why end
  local settle = SETTLES[args[5]]
  local places = {}
  for i = 7, #args, 2 do
    local seq = args[i]
    local e = entry_at(r, seq)
    if e or settle == settle_expiry then settle(r, seq, e, args[i + 1] == 'kept') end
    if args[6] == '1' then places[#places + 1] = place_of(r, seq, entry_at(r, seq)) end
  end
  queue_close(r)
  return places
end, ALLOW_OOM)

-- number, COMPLETED, LEFT or EXPIRED → 1 when it was live. Only an ACTIVE entry completes: if its
-- enter or admission is pending here, the ledger has it already.
register('end', function(keys, args)
  local r, why = queue_open(keys, args)
  if not r then return why end
  local seq, final = args[5], args[6]
  local e = entry_at(r, seq)
  if not e then return 0 end
  if COUNT_OF[e.step] then
    -- An ended entry keeps its final status; only EXPIRED, which was set here, is replaced by that
    -- of the ledger.
    if e.step == 'EXPIRED' and final ~= 'EXPIRED' then
      e.step = final
      entry_write(r, seq, e)
      redis.call('ZREM', r.pending, seq)
      r.announced[1] = seq
      queue_close(r)
    end
    return 0
  end
  if final == 'COMPLETED' then
    if e.step == 'ACTIVATING' then settle_enter(r, seq, e, true) end
    settle_admit(r, seq, e, true)
    if e.step ~= 'ACTIVE' then return 0 end
    r.announced = {} -- only its end is announced
  end
  drop(r, seq, e, final)
  queue_close(r)
  return 1
end, ALLOW_OOM)

-- ---- admitting ----

local function admit_one(r, seq, e, admitted)
  local waited_ms = math.max(0, r.now - tonumber(e.joined_ms))
  local promised_s = e.at
  e.step = 'ADMITTING'
  e.at = text(r.now + number(r, 'active_ttl_s') * 1000)
  entry_write(r, seq, e)
  redis.call('ZADD', r.active, '+inf', seq)
  redis.call('ZADD', r.pending, r.now, seq)
  offer_open(r, seq)
  add(r, 'waited_ms', waited_ms)
  if waited_ms > number(r, 'waited_ms_max') then set(r, 'waited_ms_max', waited_ms) end
  for _, value in ipairs({ seq, e.at, waited_ms, promised_s }) do
    admitted[#admitted + 1] = value
  end
end

-- Admits entries of `found`, in order, up to the first whose enter is pending: the rest of that
-- lane must wait for it. Returns how many, and the score to continue from.
local function admit_found(r, found, admitted)
  local entries = redis.call('HMGET', r.entry, unpack(found))
  for i, seq in ipairs(found) do
    local e = entry_parse(entries[i])
    if e.step == 'ENTERING' then return i - 1, (tonumber(e.lane) + 1) * LANE_SCALE end
    admit_one(r, seq, e, admitted)
  end
  return #found, nil
end

local function admit_most(r, most, admitted)
  local from = '-inf'
  while most > 0 and from do
    local found = redis.call('ZRANGEBYSCORE', r.waiting, from, '+inf', 'LIMIT', 0, most)
    if #found == 0 then return end
    local count
    count, from = admit_found(r, found, admitted)
    most = most - count
  end
end

-- Admits none while an earlier admission is pending: if the ledger refuses that one, later entries
-- would have overtaken it.
local function admit(r, admitted)
  rate_update(r)
  if not is_admitting(r) or number(r, 'admitting') > 0 then return end
  admit_most(r, math.min(batch_left(r), active_left(r), ADMIT_MOST, stock_left(r)), admitted)
  local count = #admitted / 4
  set(r, 'admitting', count)
  set(r, 'admitting_ms', number(r, 'interval_ms'))
  add(r, 'interval_used', count)
  add(r, 'rate_admitted', count)
end

-- The lowest score of a set; nil: it is empty.
local function first_score(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- When the event needs the next tick: 0, at every one; nil: not before something changes. Pending
-- operations may become overdue, waiting entries may be admitted or be silent for too long.
local function next_tick_ms(r)
  if waiting_count(r) > 0 then return 0 end
  if redis.call('EXISTS', r.pending, r.claims_pending) > 0 then return 0 end
  local active, due, ended = first_score(r.active), first_score(r.claims_due), first_score(r.ended)
  if ended then ended = ended + ENDED_KEPT_MS end
  local next_ms
  for _, at in pairs({ active or false, due or false, ended or false }) do
    if at and (not next_ms or at < next_ms) then next_ms = at end
  end
  return next_ms
end

-- Notes that the event had its tick, and when it needs the next one.
local function note_tick(r)
  r.ticked = true
  redis.call('ZADD', TICKED, r.now, tag_of(r.meta))
  local next_ms = next_tick_ms(r)
  local packed = next_ms and text(next_ms)
  if packed == (r.next_ms or nil) then return end
  if next_ms then
    redis.call('ZADD', TICKS, packed, tag_of(r.meta))
    set(r, 'next_ms', packed)
  else
    redis.call('ZREM', TICKS, tag_of(r.meta))
    redis.call('HDEL', r.meta, 'next_ms')
  end
end

-- → the time, ended entries, and admitted ones: number, expires_ms, waited_ms, promised_s.
register('admit', function(keys, args)
  local r, why = queue_open(keys, args, 'interval_ms', 'interval_used', 'rate', 'rate_from_ms',
    'rate_admitted', 'grace_from_ms', 'grace_is_shorter', 'swept_ms', 'admitting')
  if not r then return why end
  local ended, admitted = {}, {}
  purge(r, ended)
  sweep(r, ended)
  admit(r, admitted)
  forget_old(r)
  note_tick(r)
  queue_close(r)
  return { r.now, ended, admitted }
end, ALLOW_OOM)

-- ---- looking at many ----

-- Of a waiting entry only status, position and estimate. Wanted: "s" records that the user is
-- there, "u" returns the user's id, after the place and whether it is reserving.
local function read_place(r, seq, wanted)
  local rank = redis.call('ZRANK', r.waiting, seq)
  local place, e
  if rank then
    place = { 'WAITING', rank + 1, estimate_s(r, rank + 1) }
  else
    e = entry_at(r, seq)
    place = place_of(r, seq, e)
    place[9] = e and is_reserving(r, seq, place)
  end
  if wanted == '-' then return place end
  if rank and string.find(wanted, 's', 1, true) then note_seen(r, seq) end
  if string.find(wanted, 'u', 1, true) then
    e = e or entry_at(r, seq)
    for i = #place + 1, 9 do place[i] = 0 end
    place[10] = e and e.user or ''
  end
  return place
end

-- For each entry its number, and what is wanted or "-" → waiting, active, the counts, the rate, the
-- state, the seats, the places, and whether there is stock. look_seen is for calls that have any "s":
-- they write.
local function look(keys, args)
  local r, why = queue_open(keys, args, 'rate', unpack(COUNTS))
  if not r then return why end
  local places = {}
  for i = 5, #args, 2 do places[#places + 1] = read_place(r, args[i], args[i + 1]) end
  local reply = { waiting_count(r), redis.call('ZCARD', r.active) }
  for _, field in ipairs(COUNTS) do reply[#reply + 1] = number(r, field) end
  for _, value in ipairs({ string.format('%.17g', number(r, 'rate')),
    event_state(r.rules, r.now), seats_of(r), places, has_stock(r) }) do
    reply[#reply + 1] = value
  end
  return reply
end
register('look', look, NO_WRITES)
register('look_seen', look, ALLOW_OOM)

-- ---- operations that have been pending for too long ----

local function overdue_of(r, key, older_ms, most)
  return redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. text(r.now - older_ms), 'LIMIT', 0, most)
end

-- The calling node finishes it. If it does not, it is returned again after the same time.
local function postpone(r, key, member)
  redis.call('ZADD', key, 'XX', r.now, member)
end

-- older_ms → enters, admissions with expires_ms, claims, expiries.
register('overdue', function(keys, args)
  local r, why = queue_open(keys, args)
  if not r then return why end
  local older_ms = tonumber(args[5])
  local enters, admissions, expiries = {}, {}, {}
  for _, seq in ipairs(overdue_of(r, r.pending, older_ms, OVERDUE_MOST + ADMIT_MOST)) do
    local e = entry_at(r, seq)
    if not e or COUNT_OF[e.step] then
      if #expiries < OVERDUE_MOST then
        expiries[#expiries + 1] = seq
        postpone(r, r.pending, seq)
      end
    elseif e.step == 'ADMITTING' then
      admissions[#admissions + 1] = seq
      admissions[#admissions + 1] = e.at
      postpone(r, r.pending, seq)
    elseif #enters < OVERDUE_MOST then
      enters[#enters + 1] = seq
      postpone(r, r.pending, seq)
    end
  end
  local claims = overdue_of(r, r.claims_pending, older_ms, OVERDUE_MOST)
  for _, member in ipairs(claims) do postpone(r, r.claims_pending, member) end
  return { enters, admissions, claims, expiries }
end, ALLOW_OOM)

-- ---- adding, changing and removing events ----

local RULES = {
  'state', 'opens_at_ms', 'closes_at_ms', 'max_waiting', 'max_active', 'entry_batch_size',
  'entry_interval_s', 'active_ttl_s', 'grace_s', 'hold_s', 'max_per_user',
}
local RULES_AT = 6 -- the first of them, among the arguments
local SECTION_FIELDS = { 'key', 'capacity', 'mode', 'status', 'id' }

local function rules_in(args)
  local packed = {}
  for i, name in ipairs(RULES) do packed[i] = name .. '=' .. args[RULES_AT + i - 1] end
  return table.concat(packed, ' ')
end

local function sections_in(args)
  local sections = {}
  for i = RULES_AT + #RULES, #args, #SECTION_FIELDS do
    local section = {}
    for at, field in ipairs(SECTION_FIELDS) do section[field] = args[i + at - 1] end
    sections[#sections + 1] = section
  end
  return sections
end

local function event_write(keys, args, fresh)
  redis.call('HSET', keys[1], 'epoch', args[1], 'key', args[2], 'version', args[5], 'rules',
    rules_in(args))
  request_tick(keys[1])
  if seats_configure then seats_configure(tag_of(keys[1]), sections_in(args), fresh) end
end

local function queue_unlink(keys)
  for i = 1, 10 do redis.call('UNLINK', keys[i]) end
  redis.call('ZREM', TICKS, tag_of(keys[1]))
  redis.call('ZREM', TICKED, tag_of(keys[1]))
end

-- With a shorter grace period, entries must not expire at once.
local function note_shorter_grace(keys, args, packed)
  local grace_s = rules_of(rules_in(args)).grace_s
  if grace_s < rules_of(packed).grace_s then redis.call('HSET', keys[1], 'grace_is_shorter', 1) end
end

-- The meta of the event in this incarnation, or a table without an epoch: then there is none.
-- Deletes an event of an earlier incarnation. New events are accepted only if Redis was rebuilt for
-- this incarnation: a Redis that was emptied has lost everything, and must be rebuilt first.
local function known_in_incarnation(keys, args)
  local meta = fields(keys[1])
  if meta.epoch == args[1] then return meta end
  local is_rebuilt = redis.call('HGET', keys[#keys], 'epoch') == args[1]
  if not is_rebuilt or tonumber(meta.epoch or 0) > tonumber(args[1]) then
    return nil, redis.error_reply('EPOCH the store is in another incarnation')
  end
  if meta.epoch then
    if seats_remove then seats_remove(tag_of(keys[1])) end
    queue_unlink(keys)
  end
  return {}
end

-- Of a removed event the version of the removal is kept, because changes of older versions may
-- arrive late. A later event of the same name continues the numbers of its entries, so that a late
-- call about an old entry cannot be about a new one.
--
-- version, state, opens_at_ms and closes_at_ms ("" when there is none), the rules, and for each
-- section key, capacity, mode, status, id; the sections' keys come after the queue's, and then the
-- incarnation's.
register('configure', function(keys, args)
  local meta, why = known_in_incarnation(keys, args)
  if not meta then return why end
  local fresh = not meta.epoch
  local older = not fresh and tonumber(args[5]) <= tonumber(meta.version)
  if older then return 0 end
  if not fresh and (meta.deleted or meta.key ~= args[2]) then
    -- An event of that name with another key was removed, but not here.
    local last_seq = meta.last_seq or redis.call('GET', keys[2]) or '0'
    queue_unlink(keys)
    redis.call('SET', keys[2], last_seq)
    fresh = true
  end
  if not fresh then note_shorter_grace(keys, args, meta.rules) end
  event_write(keys, args, fresh)
  return 1
end, ALLOW_OOM)

-- version; the sections' keys as in configure → 0: the event is newer than that.
register('remove', function(keys, args)
  local meta, why = known_in_incarnation(keys, args)
  if not meta then return why end
  local known = tonumber(meta.version or 0)
  local is_removed = meta.epoch and (meta.deleted or meta.key ~= args[2])
  if known > tonumber(args[5]) then return is_removed and 1 or 0 end
  if meta.deleted and known == tonumber(args[5]) then return 1 end
  local last_seq = meta.last_seq or redis.call('GET', keys[2]) or '0'
  if seats_remove then seats_remove(tag_of(keys[1])) end
  queue_unlink(keys)
  redis.call('HSET', keys[1], 'epoch', args[1], 'key', args[2], 'version', args[5], 'deleted', 1,
    'last_seq', last_seq)
  redis.call('EXPIRE', keys[1], TOMBSTONE_S)
  return 1
end, ALLOW_OOM)

-- ---- rebuilding ----

-- As configure, but deletes what is there.
register('restore_event', function(keys, args)
  queue_unlink(keys)
  event_write(keys, args, true)
  return 1
end)

local function skip_to(r, seq)
  if seq > tonumber(redis.call('GET', r.seq) or 0) then redis.call('SET', r.seq, text(seq)) end
end

local TOTALS = {
  'entered', 'admitted', 'completed', 'left', 'expired', 'waited_ms', 'waited_ms_max',
}

-- The totals of all entries so far, in the order of TOTALS.
register('restore_totals', function(keys, args)
  if not is_restored(keys[1], args[2]) then return 0 end
  local r, why = queue_open(keys, args)
  if not r then return why end
  for i, field in ipairs(TOTALS) do set(r, field, args[4 + i]) end
  queue_save(r)
  return 1
end)

-- number, user, lane, status, joined_ms, expires_ms: a live entry. An older one of the user has
-- expired.
register('restore', function(keys, args)
  if not is_restored(keys[1], args[2]) then return 0 end
  local r, why = queue_open(keys, args)
  if not r then return why end
  local seq, user = args[5], args[6]
  local older = redis.call('HGET', r.user, user)
  if older then
    drop(r, older, entry_at(r, older), 'EXPIRED')
    set(r, 'untold', (r.untold or '') .. older .. ' ')
    queue_save(r)
  end
  local e = { step = args[8], lane = args[7], joined_ms = args[9], user = user }
  e.at = e.step == 'ACTIVE' and args[10] or '-1'
  entry_write(r, seq, e)
  entry_place(r, seq, e, 0)
  skip_to(r, tonumber(seq))
  return 1
end)

-- The step of an entry, to compare it with the ledger: NONE, WAITING, ACTIVE; PENDING, which the
-- ledger may not have yet; EXPIRED, which is decided here before it is in the ledger.
local function ledger_step(e)
  if not e or e.step == 'LEFT' or e.step == 'COMPLETED' then return 'NONE' end
  if e.step == STATUS[e.step] then return e.step end
  return 'PENDING'
end

-- Removes the number from all sets, even if there is no entry.
local function clear(r, seq)
  if redis.call('ZSCORE', r.active, seq) == 'inf' then add(r, 'admitting', -1) end
  for _, key in ipairs({ r.waiting, r.seen, r.active, r.pending, r.ended }) do
    redis.call('ZREM', key, seq)
  end
  redis.call('SREM', r.offers, seq)
end

-- The outcome if the user has another live entry; nil: there is none.
local function competing_entry(r, seq, user)
  local other = redis.call('HGET', r.user, user)
  if not other or other == seq then return nil end
  local step = ledger_step(entry_at(r, other))
  if step == 'NONE' or step == 'EXPIRED' then return nil end
  local newer = tonumber(other) > tonumber(seq) and step ~= 'PENDING'
  return newer and 'EXPIRED' or 'OTHER'
end

-- The arguments of restore, and the step that was seen here: NONE, WAITING or ACTIVE → DONE, THERE,
-- OTHER or EXPIRED. If the user has an older live entry, that must be ended first.
register('sync_entry', function(keys, args)
  local r, why = queue_open(keys, args)
  if not r then return why end
  local seq, user, wanted = args[5], args[6], args[8]
  local step = ledger_step(entry_at(r, seq))
  if step == wanted then return 'THERE' end
  if step == 'EXPIRED' then return 'EXPIRED' end
  if step ~= args[11] then return 'OTHER' end
  local refusal = competing_entry(r, seq, user)
  if refusal then return refusal end
  clear(r, seq)
  local e = { step = wanted, lane = args[7], joined_ms = args[9], user = user }
  e.at = wanted == 'ACTIVE' and args[10] or '-1'
  entry_write(r, seq, e)
  entry_place(r, seq, e, seen_s(r))
  skip_to(r, tonumber(seq))
  r.announced[1] = seq
  queue_close(r)
  return 'DONE'
end, ALLOW_OOM)

-- After the last entry: the lowest number for the next one.
register('recovered', function(keys, args)
  if not is_restored(keys[1], args[2]) then return 0 end
  local r, why = queue_open(keys, args)
  if not r then return why end
  skip_to(r, tonumber(args[5]) - 1)
  restart_grace(r)
  queue_save(r)
  return 1
end)

end
