-- The reservations of an event: the rules of core/claims.h in Lua, one function per operation of
-- port/seats.h.
--
-- The keys, besides those of seat_map.lua; all of one event {T:ID}, KEY is a section's number:
--   claim:{T:ID}               HASH    reservation → "KEY step entry expires key request seats
--                                      user": all that are live; the step is P (pending, HELD), H
--                                      or C; key and request are digests
--   claim:{T:ID}:pending       ZSET    "KEY:reservation" → since when
--   claim:{T:ID}:due           ZSET    "KEY:reservation" → when `due` returns it; settled holds
--   limit:{T:ID}               HASH    user → seats of all live reservations
--   limit:{T:ID}:of            HASH    user → live reservations, newest first
--   limit:{T:ID}:reserving     HASH    entry → how many settled holds it has
-- Functions derive the names of an event's keys from the first key; all keys that they use are
-- declared nevertheless.

local DUE_AGAIN_MS = 5000

local STATES = { P = 'held', H = 'held', C = 'confirmed' }

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

local function claim_ref(r)
  return r.section .. ':' .. r.id
end

-- The format of replies.
local function claim_info(r)
  return { r.id, r.section, r.step, r.entry, r.expires, r.seats }
end

-- The other events in which a user has live reservations.
local function other_events(user, tag)
  local others = {}
  for other in (redis.call('HGET', BUYERS, user) or ''):gmatch('%S+') do
    if other ~= tag then others[#others + 1] = other end
  end
  return others
end

local function buyers_add(user, tag)
  local tags = other_events(user, tag)
  tags[#tags + 1] = tag
  redis.call('HSET', BUYERS, user, table.concat(tags, ' '))
end

local function buyers_remove(user, tag)
  local tags = other_events(user, tag)
  if #tags == 0 then
    redis.call('HDEL', BUYERS, user)
  else
    redis.call('HSET', BUYERS, user, table.concat(tags, ' '))
  end
end

-- As the user's newest.
local function buyer_add(e, r)
  local ids = redis.call('HGET', e.of, r.user)
  if not ids then buyers_add(r.user, e.tag) end
  redis.call('HSET', e.of, r.user, ids and r.id .. ' ' .. ids or r.id)
  redis.call('HINCRBY', e.limit, r.user, r.seats)
end

local function buyer_remove(e, r)
  local left = {}
  for id in redis.call('HGET', e.of, r.user):gmatch('%S+') do
    if id ~= r.id then left[#left + 1] = id end
  end
  if #left == 0 then
    redis.call('HDEL', e.of, r.user)
    redis.call('HDEL', e.limit, r.user)
    buyers_remove(r.user, e.tag)
  else
    redis.call('HSET', e.of, r.user, table.concat(left, ' '))
    redis.call('HINCRBY', e.limit, r.user, -r.seats)
  end
end

local function reserving_add(e, r)
  redis.call('HINCRBY', e.reserving, r.entry, 1)
end

local function reserving_remove(e, r)
  if redis.call('HINCRBY', e.reserving, r.entry, -1) == 0 then
    redis.call('HDEL', e.reserving, r.entry)
  end
end

-- A new reservation, with its seats; its step is P or C.
local function claim_add(e, s, r)
  claim_put(e, r)
  buyer_add(e, r)
  redis.call('HINCRBY', s.meta, 'live', 1)
  redis.call('SREM', e.offers, r.entry)
end

local function claim_hold(e, r)
  r.step = 'H'
  claim_put(e, r)
  redis.call('ZREM', e.pending, claim_ref(r))
  redis.call('ZADD', e.due, r.expires, claim_ref(r))
  reserving_add(e, r)
end

local function claim_confirm(e, r)
  seats_put(e, section_at(e, r.section), r.stretches, 'held', 'confirmed')
  redis.call('ZREM', e.due, claim_ref(r))
  reserving_remove(e, r)
  r.step = 'C'
  claim_put(e, r)
end

-- Deletes the reservation, which has no seats any more.
local function claim_delete(e, r)
  redis.call('HDEL', e.claim, r.id)
  buyer_remove(e, r)
  if r.step == 'P' then redis.call('ZREM', e.pending, claim_ref(r)) end
  if r.step == 'H' then
    redis.call('ZREM', e.due, claim_ref(r))
    reserving_remove(e, r)
  end
  local s = section_at(e, r.section)
  redis.call('HINCRBY', s.meta, 'live', -1)
  section_catch_up(e, s)
end

local function claim_end(e, r)
  seats_put(e, section_at(e, r.section), r.stretches, STATES[r.step], 'available')
  claim_delete(e, r)
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

-- Finds a reservation with the same id or the same key; and the outcome.
local function claim_there(e, claim)
  local r = claim_find(e, claim.id)
  if r then
    -- The same id: the same reservation, though it may have lost seats since.
    return (r.user ~= claim.user or r.seats > claim.count) and 'KEY_REUSED' or 'THERE', r
  end
  r = claim.key ~= '0' and claim_by_key(e, claim.user, claim.key)
  if not r then return nil end
  return (r.request ~= claim.request or r.seats ~= claim.count) and 'KEY_REUSED' or 'THERE', r
end

-- The refusal that does not depend on free seats; nil: none.
local function claim_refusal(e, s, claim, rules, now)
  local state = event_state(rules, now)
  if not claim.is_active then return 'NOT_ACTIVE' end
  if state == 'CLOSED' or state == 'DRAFT' then return 'EVENT_CLOSED' end
  if not s then return 'NO_SECTION' end
  if s.status == 'closed' then return 'SECTION_CLOSED' end
  if s.status == 'maintenance' then return 'SECTION_MAINTENANCE' end
  local has = tonumber(redis.call('HGET', e.limit, claim.user) or 0)
  if has + claim.count > rules.max_per_user then return 'LIMIT' end
  return nil
end

-- The outcome, and seats as stretches: the chosen ones, or those that are refused.
local function claim_seats(e, s, claim)
  local decides = s.mode == 'seat' and 'LEDGER_DECIDES' or 'DONE'
  if claim.named then
    local wrong, refused = check_named(s, claim.named, s.mode == 'seat')
    return wrong or decides, stretches_in(wrong and refused or claim.named)
  end
  local wrong = too_few(e, s, claim.count)
  if wrong then return wrong, {} end
  if s.mode == 'seat' then
    return decides, suggest(s, claim.count, claim.spread_high, claim.spread_low)
  end
  return decides, choose(s, claim.count)
end

-- The outcome, the seats, and the reservation if there is one.
local function claim_in(e, claim, rules, now)
  local outcome, r = claim_there(e, claim)
  if outcome == 'KEY_REUSED' then return outcome, {} end
  if outcome == 'THERE' then return outcome, r.stretches, r end
  local s = section_of(e, claim.section)
  outcome = claim_refusal(e, s, claim, rules, now)
  if outcome then return outcome, {} end
  local stretches
  outcome, stretches = claim_seats(e, s, claim)
  if outcome ~= 'DONE' then return outcome, stretches end
  r = {
    id = claim.id,
    section = claim.section,
    step = 'P',
    entry = claim.entry,
    expires = text(now + rules.hold_s * 1000),
    key = claim.key,
    request = claim.request,
    stretches = stretches,
    seats = claim.count,
    user = claim.user,
  }
  seats_put(e, s, stretches, 'available', 'held', r.id)
  claim_add(e, s, r)
  redis.call('ZADD', e.pending, now, claim_ref(r))
  return outcome, stretches, r
end

-- ---- from the ledger ----

-- Removes a seat from the reservation, and deletes one without seats. The caller updates the
-- section's seats.
local function claim_remove_seat(e, r, seat)
  local left = {}
  for _, other in ipairs(seats_in(r.stretches)) do
    if other ~= seat then left[#left + 1] = other end
  end
  if #left == 0 then return claim_delete(e, r) end
  r.stretches = stretches_in(left)
  r.seats = #left
  claim_put(e, r)
  redis.call('HINCRBY', e.limit, r.user, -1)
end

-- The live reservation that has the seat.
local function seat_claim(e, s, seat)
  local id = redis.call('HGET', s.slots, seat)
  return id and claim_find(e, id)
end

-- The ledger has the seat as AVAILABLE. Returns whether anything changed.
local function free_seat(e, key, seat)
  local s = section_of(e, key)
  local r = s and seat_claim(e, s, seat)
  if not r or r.step == 'P' then return false end
  seats_put(e, s, { { seat, 1 } }, STATES[r.step], 'available')
  claim_remove_seat(e, r, seat)
  section_catch_up(e, s)
  return true
end

-- Gives those of the seats that exist to the reservation, even if others have them.
local function claim_take_seats(e, s, r, list)
  local seats = {}
  for _, seat in ipairs(seats_in(stretches_of(list))) do
    local id = seat >= 1 and seat <= s.capacity and redis.call('HGET', s.slots, seat)
    if id ~= r.id and seat >= 1 and seat <= s.capacity then
      local other = id and claim_find(e, id)
      local from = other and STATES[other.step] or 'available'
      seats_put(e, s, { { seat, 1 } }, from, STATES[r.step], r.id)
      if other then claim_remove_seat(e, other, seat) end
      seats[#seats + 1] = seat
    end
  end
  r.stretches = stretches_in(seats)
  r.seats = #seats
end

-- Makes a live reservation as the ledger has it, and gives it its seats: section, entry, expires,
-- user, and whether it is confirmed. False: there is no such section or seat any more.
local function claim_apply(e, r, is_confirmed, list)
  if not section_of(e, r.section) then return false end
  local known = claim_find(e, r.id)
  r.key, r.request = '0', '0'
  if known then
    -- A confirmed reservation stays confirmed.
    r.key, r.request = known.key, known.request
    is_confirmed = is_confirmed or known.step == 'C'
    claim_end(e, known)
  end
  local s = section_of(e, r.section)
  r.step = is_confirmed and 'C' or 'P'
  claim_take_seats(e, s, r, list)
  if r.seats == 0 then return false end
  claim_add(e, s, r)
  if not is_confirmed then claim_hold(e, r) end
  section_catch_up(e, s)
  return true
end

local function claim_follow(e, id, status)
  local r = claim_find(e, id)
  if not r then return false end
  -- A cancellation may arrive before the confirmation that precedes it; an expiry follows none.
  if r.step == 'C' and status ~= 'CANCELLED' then return false end
  if status ~= 'CONFIRMED' then
    claim_end(e, r)
    return true
  end
  if r.step == 'P' then claim_hold(e, r) end -- the ledger has it, but it was not settled
  claim_confirm(e, r)
  return true
end

-- Returns whether it is live afterwards.
local function claim_settle(e, id, kept)
  local r = claim_find(e, id)
  if not r then return false end
  if r.step ~= 'P' then return true end
  if kept then claim_hold(e, r) else claim_end(e, r) end
  return kept
end

-- ---- functions ----

-- The event of a call; or nil and the error.
local function seats_begin(keys, args)
  local refusal, next_ms = refused(keys[1], args[1], args[2])
  if refusal then return nil, refusal end
  local e = seats_of_event(tag_of(keys[1]))
  e.next_ms = next_ms
  return e
end

-- For functions that change something.
local function seats_begin_change(keys, args)
  local e, refusal = seats_begin(keys, args)
  if e then request_tick(keys[1], e.next_ms) end
  return e, refusal
end

-- Its first keys and arguments are those of queue.lua; then: the reservation's id, user, entry,
-- section, digests of key and request ("0": none), the halves of the spread, how many seats, and
-- which ("": any). Returns, in the reply of with_queue, the outcome, the seats, and the reservation
-- if there is one.
register('claim', function(keys, args)
  local e = seats_of_event(tag_of(keys[1]))
  local claim = {
    id = args[5],
    user = args[6],
    entry = args[7],
    section = args[8],
    key = args[9],
    request = args[10],
    spread_high = tonumber(args[11]),
    spread_low = tonumber(args[12]),
    count = tonumber(args[13]),
    named = args[14] ~= '' and seats_in(stretches_of(args[14])) or nil,
  }
  return with_queue(keys, args, claim.entry, function(rules, now, entry)
    claim.is_active = entry and entry.step == 'ACTIVE' and tonumber(entry.at) > now
      and entry.user == claim.user
    local outcome, stretches, r = claim_in(e, claim, rules, now)
    return { outcome, list_of(stretches), r and claim_info(r) or {} }
  end)
end)

-- Arguments: pairs of an id, and "kept" or "undone". Returns for each whether it is live.
register('claim_settle', function(keys, args)
  local e, refusal = seats_begin_change(keys, args)
  if not e then return refusal end
  local live = {}
  for i = 4, #args, 2 do
    live[#live + 1] = claim_settle(e, args[i], args[i + 1] == 'kept') and 1 or 0
  end
  return live
end, ALLOW_OOM)

-- Arguments: pairs of an id, and CONFIRMED, CANCELLED or EXPIRED. Returns for each whether it has
-- changed.
register('follow', function(keys, args)
  local e, refusal = seats_begin_change(keys, args)
  if not e then return refusal end
  local changed = {}
  for i = 4, #args, 2 do
    changed[#changed + 1] = claim_follow(e, args[i], args[i + 1]) and 1 or 0
  end
  return changed
end, ALLOW_OOM)

-- One reservation in seven arguments: id, user, entry, section, HELD or CONFIRMED, expires, seats.
local function apply_arguments(e, args, at)
  local r = {
    id = args[at],
    user = args[at + 1],
    entry = args[at + 2],
    section = args[at + 3],
    expires = args[at + 5],
  }
  return claim_apply(e, r, args[at + 4] == 'CONFIRMED', args[at + 6])
end

-- Arguments: a section and which of its seats are free; then reservations. Returns how much
-- changed.
register('sync', function(keys, args)
  local e, refusal = seats_begin_change(keys, args)
  if not e then return refusal end
  local changed = 0
  for _, seat in ipairs(seats_in(stretches_of(args[5]))) do
    if free_seat(e, args[4], seat) then changed = changed + 1 end
  end
  for at = 6, #args, 7 do
    if apply_arguments(e, args, at) then changed = changed + 1 end
  end
  return changed
end, ALLOW_OOM)

-- Arguments: how many at the most. Returns "section:id" of each.
register('due', function(keys, args)
  local e, refusal = seats_begin(keys, args)
  if not e then return refusal end
  local now = milliseconds(args[3])
  local refs = redis.call('ZRANGEBYSCORE', e.due, '-inf', now, 'LIMIT', 0, args[4])
  for _, due in ipairs(refs) do redis.call('ZADD', e.due, now + DUE_AGAIN_MS, due) end
  return refs
end, ALLOW_OOM)

-- Arguments: the user, the entry ("0": any), and how many at the most. Returns how many there are,
-- and the newest.
register('holds', function(keys, args)
  local e, refusal = seats_begin(keys, args)
  if not e then return refusal end
  local reply = { 0 }
  for id in (redis.call('HGET', e.of, args[4]) or ''):gmatch('%S+') do
    local r = claim_find(e, id)
    if args[5] == '0' or args[5] == r.entry then
      if reply[1] < tonumber(args[6]) then reply[#reply + 1] = claim_info(r) end
      reply[1] = reply[1] + 1
    end
  end
  return reply
end, NO_WRITES)

local function counts_of(e, prefix)
  local counts = redis.call('HMGET', e.counts, prefix .. 'available', prefix .. 'held',
    prefix .. 'confirmed')
  return { tonumber(counts[1] or 0), tonumber(counts[2] or 0), tonumber(counts[3] or 0) }
end

-- Returns the seats available, held and confirmed: of all sections, then of each, with its number.
register('count', function(keys, args)
  local e, refusal = seats_begin(keys, args)
  if not e then return refusal end
  local reply = { counts_of(e, '') }
  for _, key in ipairs(section_keys(e)) do
    local counts = counts_of(e, key .. ':')
    reply[#reply + 1] = { key, counts[1], counts[2], counts[3] }
  end
  return reply
end, NO_WRITES)

-- Arguments: the section, the first seat, and how many at the most. Returns their letters, and the
-- section's seats available, held and confirmed; or nothing when there is no such section.
register('render', function(keys, args)
  local e, refusal = seats_begin(keys, args)
  if not e then return refusal end
  local s = section_of(e, args[4])
  if not s then return {} end
  local first, most = tonumber(args[5]), tonumber(args[6])
  local counts = counts_of(e, s.key .. ':')
  local letters = ''
  if first >= 1 and most >= 1 then
    letters = redis.call('GETRANGE', s.map, first - 1, first + most - 2)
  end
  return { letters, counts[1], counts[2], counts[3] }
end, NO_WRITES)

-- Arguments: a reservation, as sync has it.
register('restore_reservation', function(keys, args)
  if not is_restored(keys[1], args[2]) then return 0 end
  local e, refusal = seats_begin(keys, args)
  if not e then return refusal end
  return apply_arguments(e, args, 4) and 1 or 0
end)

-- The seats of the event had run out once.
register('restore_ran_out', function(keys, args)
  if not is_restored(keys[1], args[2]) then return 0 end
  local e, refusal = seats_begin(keys, args)
  if not e then return refusal end
  redis.call('HSET', e.counts, 'ran_out', 1)
  return 1
end)
