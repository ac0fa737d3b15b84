-- Definitions that all functions share. The library is the concatenation of common.lua, queue.lua,
-- seat_map.lua, seats.lua, locks.lua, boards.lua and limits.lua. Its name contains its version, so
-- that nodes of two versions do not overwrite each other's library. Raise VERSION with every change of a function;
-- if the stored data change too, rename INCARNATION_KEY in ../link.h as well.
--
-- Every function about an event has queue:{T:ID}:meta as its first key, and as its first arguments
-- the epoch, the event's key in the ledger and the time (0: the clock of Redis). Those of locks.lua
-- have no event's key. The meta hash has the fields epoch, key, version, deleted (1 when the event
-- was removed), next_ms (see below), and the event's rules.
--
-- Three keys are about all events together, so that nodes need not ask for each event. T:ID stands
-- for an event:
--   admitone:{hot}:ticks    ZSET   T:ID → when the event next needs `admit`, in ms; 0: at every
--                                  tick. An event that is not in it needs none. meta.next_ms has
--                                  the same value (absent: never), so that most calls need not
--                                  write it. The member "-" is added by the rebuild: if it is
--                                  missing, the key was lost
--   admitone:{hot}:ticked   ZSET   T:ID → when `admit` last ran, in ms. Every change requests a
--                                  tick, so this also shows which events may have changed
--   admitone:{hot}:buyers   HASH   user → the events T:ID in which the user has live reservations,
--                                  with blanks in between

local VERSION = '9'

local TICKS = 'admitone:{hot}:ticks'
local TICKED = 'admitone:{hot}:ticked'
local BUYERS = 'admitone:{hot}:buyers'

-- Redis at its maxmemory refuses every function without flags. Functions that add data have none.
-- Those that end, finish or repair something have ALLOW_OOM, though they may need a few bytes:
-- without them memory would never become free. Those that only read have NO_WRITES, and are
-- executed even while Redis accepts no writes at all (MISCONF, NOREPLICAS).
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

-- Whole numbers up to 2^53 as text without an exponent, which tostring would write.
local function text(number)
  return string.format('%.0f', number)
end

-- The error with which an operation on the event with this meta is refused, or nil. An event that
-- is created again under the name of a removed one has a higher key: a node with the lower key does
-- not know of the removal yet, and a node with a higher key knows of an event that Redis does not
-- have yet. A `key` of nil accepts any.
local function meta_refused(meta, epoch, key)
  if not meta.epoch then return redis.error_reply('NOEVENT the store does not know the event') end
  if meta.epoch ~= epoch then
    return redis.error_reply('EPOCH the store is in another incarnation')
  end
  if key and key ~= meta.key and tonumber(key) > tonumber(meta.key) then
    return redis.error_reply('NOEVENT the store knows an older event of that name')
  end
  if meta.deleted or (key and key ~= meta.key) then
    return redis.error_reply('GONE the event was removed')
  end
  return nil
end

-- The same for the meta at this key; and the event's next_ms.
local function refused(meta_key, epoch, key)
  local meta = redis.call('HMGET', meta_key, 'epoch', 'deleted', 'key', 'next_ms')
  return meta_refused({ epoch = meta[1], deleted = meta[2], key = meta[3] }, epoch, key), meta[4]
end

-- "T:ID"
local function tag_of(meta_key)
  return string.match(meta_key, '{(.*)}')
end

-- The event has changed: the next tick processes it. `next_ms` is the value of its meta.
local function request_tick(meta_key, next_ms)
  if next_ms == '0' then return end
  redis.call('ZADD', TICKS, 0, tag_of(meta_key))
  redis.call('HSET', meta_key, 'next_ms', '0')
end

-- Whether Redis is being rebuilt with this event, and not with a later one of the same name.
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

-- As event_is_over of core/event.h. Times that are not set are empty.
local function event_is_over(rules, now)
  local closes_at_ms = tonumber(rules.closes_at_ms)
  return closes_at_ms ~= nil and now >= closes_at_ms
end

-- The effective state of the event at that time: DRAFT, OPEN, PAUSED, DRAINING, CLOSED. As
-- event_state_at of core/event.h.
local function event_state(rules, now)
  local state = rules.state
  local opens_at_ms = tonumber(rules.opens_at_ms)
  if opens_at_ms and state ~= 'CLOSED' then
    if now < opens_at_ms then state = 'DRAFT' elseif state == 'DRAFT' then state = 'OPEN' end
  end
  return state ~= 'DRAFT' and event_is_over(rules, now) and 'CLOSED' or state
end

-- An entry of queue:{T:ID}:entry, which is text: "STEP lane joined_ms at user". The steps are those
-- of core/queue.c: ENTERING, WAITING, ADMITTING, ACTIVATING, ACTIVE, COMPLETED, LEFT, EXPIRED. `at`
-- is when the time of an ACTIVE entry ends, and before its admission its estimated wait, in
-- seconds (-1: none). All are strings; nil: there is no such entry.
local function entry_parse(packed)
  if not packed then return nil end
  local step, lane, joined_ms, at, user =
    string.match(packed, '^(%u+) (%d+) (-?%d+) (-?%d+) (.*)$')
  return { step = step, lane = lane, joined_ms = joined_ms, at = at, user = user }
end

-- seat_map.lua defines these two; configure, restore_event and remove of queue.lua call them. The
-- keys of all sections that the event has or had are declared after those of the queue.
--   seats_configure(tag, sections, fresh)  `tag` is "T:ID"; a section has key, capacity, mode,
--                                          status, id: all strings. fresh: the event is new
--   seats_remove(tag)                      everything
local seats_configure, seats_remove

-- queue.lua defines this one, for functions of seats.lua whose first keys and arguments are those
-- of queue.lua.
--   with_queue(keys, args, seq, act)  ends ACTIVE entries whose time is over, then calls
--                                     act(rules, now, entry) with the entry of that number. Returns
--                                     the time, the ended entries (as enter does), and the result
--                                     of `act`
local with_queue

-- Ends the incarnation of that epoch: Redis has lost an event.
register('disown', function(keys, args)
  if redis.call('HGET', keys[1], 'epoch') ~= args[1] then return 0 end
  return redis.call('DEL', keys[1])
end, ALLOW_OOM)

-- Does nothing. Redis refuses it whenever it refuses functions that add data: nodes call it to find
-- out.
register('probe', function() return 1 end)

-- The error with which a question about all events is refused, or nil.
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
  local refusal = all_refused(keys[2], args[1])
  if refusal then return refusal end
  return redis.call('ZRANGEBYSCORE', TICKS, '-inf', milliseconds(args[2]))
end, NO_WRITES)

-- Keys: ticks, ticked, and the incarnation's; the time, and since when → the time, and the events
-- T:ID that may have changed since. All events, if the clock was set back.
register('ticked', function(keys, args)
  local refusal = all_refused(keys[3], args[1])
  if refusal then return refusal end
  local now, since = milliseconds(args[2]), tonumber(args[3])
  local tags = redis.call('ZRANGEBYSCORE', TICKED, since > now and '-inf' or since, '+inf')
  table.insert(tags, 1, text(now))
  return tags
end, NO_WRITES)

-- The counts of an event in its meta, since it was created.
local COUNTS = {
  'entered', 'rejected', 'admitted', 'completed', 'left', 'expired', 'waited_ms', 'waited_ms_max',
}

-- Waiting, active, the counts and the rate of the event with these keys; then the fields of
-- section:…:counts.
local function counts_of(meta_key, waiting_key, active_key, section_key)
  local counts = redis.call('HMGET', meta_key, 'rate', unpack(COUNTS))
  local reply = { redis.call('ZCARD', waiting_key), redis.call('ZCARD', active_key) }
  for i = 2, #counts do reply[#reply + 1] = tonumber(counts[i]) or 0 end
  reply[#reply + 1] = counts[1] or '0'
  reply[#reply + 1] = redis.call('HGETALL', section_key)
  return reply
end

-- Keys: of each event meta, queue:…:waiting, queue:…:active, section:…:counts; the time, and each
-- event's key → for each what counts_of says; nothing for an event that is not there.
register('event_counts', function(keys, args)
  local reply = {}
  for i = 3, #args do
    local at = (i - 3) * 4
    local refusal = refused(keys[at + 1], args[1], args[i])
    reply[#reply + 1] = refusal and {}
      or counts_of(keys[at + 1], keys[at + 2], keys[at + 3], keys[at + 4])
  end
  return reply
end, NO_WRITES)

-- Keys: buyers, ticks, and the incarnation's; the time, and a user → the events T:ID in which the
-- user has live reservations.
register('buyer', function(keys, args)
  local refusal = all_refused(keys[3], args[1])
  if refusal then return refusal end
  return redis.call('HGET', BUYERS, args[3]) or ''
end, NO_WRITES)
