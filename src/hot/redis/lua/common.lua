-- What all functions share. The library is common.lua, queue.lua, seat_map.lua, seats.lua, locks.lua
-- and boards.lua, one behind the other; its name carries its version, so that nodes of two versions
-- don't overwrite each other's.
--
-- Every function that is about an event has queue:{T:ID}:meta as its first key, and the epoch, the
-- event's key in the ledger and the time as its first arguments: a time of 0 is the server's own.
-- Those of locks.lua have no event's key. The meta hash has the fields: epoch, key, version, deleted
-- (1 when the event was removed), next_ms (see below), and the event's rules.
--
-- Three keys are about all events together, so that no node asks event by event. T:ID stands
-- for an event:
--   admitone:{hot}:ticks    ZSET   T:ID → when the event next needs `admit`, in ms; 0: at every tick.
--                                  An event without one has nothing to do. meta.next_ms repeats it
--                                  (absent: never), so that most calls need not write it. A member
--                                  "-" is there from the filling on: without it the key was lost
--   admitone:{hot}:ticked   ZSET   T:ID → when `admit` last ran, in ms. Every change asks for a tick,
--                                  so this also tells which events may have changed since a time
--   admitone:{hot}:buyers   HASH   user → the events T:ID in which the user has live reservations,
--                                  with blanks in between

local VERSION = '6'

local TICKS = 'admitone:{hot}:ticks'
local TICKED = 'admitone:{hot}:ticked'
local BUYERS = 'admitone:{hot}:buyers'

-- Redis at its maxmemory refuses every function without flags. Functions that take something new
-- have none. Those that end, finish or repair something have ALLOW_OOM, though they may need a few
-- bytes for it: without them memory would never become free. Those that only read have NO_WRITES,
-- and go on also while Redis accepts no write at all (MISCONF, NOREPLICAS).
local ALLOW_OOM = { 'allow-oom' }
local NO_WRITES = { 'no-writes' }

local function register(name, run, flags)
  redis.register_function({
    function_name = 'admitone_' .. VERSION .. '_' .. name,
    callback = run,
    flags = flags or {},
  })
end

local function milliseconds(argument)
  local given = tonumber(argument)
  if given ~= 0 then return given end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Whole numbers up to 2^53 as text without an exponent: what Lua's own tostring does not do.
local function text(number)
  return string.format('%.0f', number)
end

-- Why nothing may be done to the event whose meta this is, or nil. An event that is made again under
-- the name of a removed one has a higher key: who means the old one has not heard of that yet, and
-- who means a later one knows of it before the store does. A `key` of nil is whichever is there.
local function meta_refused(meta, epoch, key)
  if not meta.epoch then return redis.error_reply('NOEVENT the store does not know the event') end
  if meta.epoch ~= epoch then return redis.error_reply('EPOCH the store is in another incarnation') end
  if key and key ~= meta.key and tonumber(key) > tonumber(meta.key) then
    return redis.error_reply('NOEVENT the store knows an older event of that name')
  end
  if meta.deleted or (key and key ~= meta.key) then
    return redis.error_reply('GONE the event was removed')
  end
  return nil
end

-- And if it may, the event's next_ms.
local function refused(meta_key, epoch, key)
  local meta = redis.call('HMGET', meta_key, 'epoch', 'deleted', 'key', 'next_ms')
  return meta_refused({ epoch = meta[1], deleted = meta[2], key = meta[3] }, epoch, key), meta[4]
end

-- "T:ID"
local function tag_of(meta_key)
  return string.match(meta_key, '{(.*)}')
end

-- The event has changed: the next tick sees to it. `next_ms` is what its meta has.
local function wake(meta_key, next_ms)
  if next_ms == '0' then return end
  redis.call('ZADD', TICKS, 0, tag_of(meta_key))
  redis.call('HSET', meta_key, 'next_ms', '0')
end

-- Whether it is this event that the store has been filled with, and none that was removed since the
-- ledger had what is restored.
local function is_restored(meta_key, key)
  return redis.call('HGET', meta_key, 'key') == key
end

-- A hash as a table.
local function fields(key)
  local flat = redis.call('HGETALL', key)
  local table_of = {}
  for i = 1, #flat, 2 do table_of[flat[i]] = flat[i + 1] end
  return table_of
end

-- What the event's state amounts to at that time, by its meta: DRAFT, OPEN, PAUSED, DRAINING,
-- CLOSED. As event_state_at of core/event.h; opens_at_ms is empty when there is no time.
local function event_state(meta, now)
  local opens_at_ms = tonumber(meta.opens_at_ms)
  if not opens_at_ms or meta.state == 'CLOSED' then return meta.state end
  if now < opens_at_ms then return 'DRAFT' end
  return meta.state == 'DRAFT' and 'OPEN' or meta.state
end

-- An entry of queue:{T:ID}:entry, which is text: "STEP lane joined_ms at user". The steps are those
-- of core/queue.c: ENTERING, WAITING, ADMITTING, ACTIVATING, ACTIVE, COMPLETED, LEFT, EXPIRED. `at`
-- is when an active's time ends, and before its admission what it was promised, in seconds (-1:
-- nothing). All are strings; nil: no such entry is known.
local function entry_parse(packed)
  if not packed then return nil end
  local step, lane, joined_ms, at, user =
    string.match(packed, '^(%u+) (%d+) (-?%d+) (-?%d+) (.*)$')
  return { step = step, lane = lane, joined_ms = joined_ms, at = at, user = user }
end

-- seat_map.lua defines these two; configure, restore_event and remove of queue.lua call them, as a
-- part of their own step. The keys of all sections that the event has or had are declared behind
-- the queue's.
--   seats_configure(tag, sections, fresh)  `tag` is "T:ID"; a section has key, capacity, mode,
--                                          status, id: all strings. fresh: the event is new
--   seats_remove(tag)                      everything
local seats_configure, seats_remove

-- queue.lua defines this one, for functions of seats.lua whose keys and arguments begin as its own.
--   in_room(keys, args, seq, act)  ends actives whose time is over, then calls
--                                  act(rules, now, entry) with the entry of that number. Returns
--                                  the time, who was ended (as enter does), and what `act` returned
local in_room

-- The incarnation of that epoch ends: an event is missing that was there.
register('disown', function(keys, args)
  if redis.call('HGET', keys[1], 'epoch') ~= args[1] then return 0 end
  return redis.call('DEL', keys[1])
end, ALLOW_OOM)

-- Does nothing. Redis refuses it whenever it refuses functions that take something new: so nodes
-- find out whether it does.
register('probe', function() return 1 end)

-- Why nothing may be said of all events together, or nil.
local function all_refused(incarnation_key, epoch)
  if redis.call('HGET', incarnation_key, 'epoch') ~= epoch then
    return redis.error_reply('EPOCH the store is in another incarnation')
  end
  if not redis.call('ZSCORE', TICKS, '-') then
    return redis.error_reply('NOEVENT the store has lost which events need a tick')
  end
  return nil
end

-- Keys: ticks, and the incarnation's; the time → the events T:ID that need a tick now.
register('ticks', function(keys, args)
  local no = all_refused(keys[2], args[1])
  if no then return no end
  return redis.call('ZRANGEBYSCORE', TICKS, '-inf', milliseconds(args[2]))
end, NO_WRITES)

-- Keys: ticks, ticked, and the incarnation's; the time, and since when → the time, and the events T:ID that
-- may have changed since. Should the clock have been set back, all that are known.
register('ticked', function(keys, args)
  local no = all_refused(keys[3], args[1])
  if no then return no end
  local now, since = milliseconds(args[2]), tonumber(args[3])
  local tags = redis.call('ZRANGEBYSCORE', TICKED, since > now and '-inf' or since, '+inf')
  table.insert(tags, 1, text(now))
  return tags
end, NO_WRITES)

-- Keys: of each event meta, queue:…:waiting, queue:…:active, section:…:counts; the time, and each
-- event's key → for each how many wait, how many are active, and the seats by state as counts has
-- them; nothing when the event is not there.
register('event_counts', function(keys, args)
  local reply = {}
  for i = 3, #args do
    local at = (i - 3) * 4
    local no = refused(keys[at + 1], args[1], args[i])
    reply[#reply + 1] = no and {} or {
      redis.call('ZCARD', keys[at + 2]), redis.call('ZCARD', keys[at + 3]),
      redis.call('HGETALL', keys[at + 4]),
    }
  end
  return reply
end, NO_WRITES)

-- Keys: buyers, ticks, and the incarnation's; the time, and a user → the events T:ID in which the user has
-- live reservations.
register('buyer', function(keys, args)
  local no = all_refused(keys[3], args[1])
  if no then return no end
  return redis.call('HGET', BUYERS, args[3]) or ''
end, NO_WRITES)
