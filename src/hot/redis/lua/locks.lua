-- Named locks (port/locks.h). A lock's keys, in this order:
--   lock:{T:ID}:NAME:holder   HASH fence, until, owner, waited: who has it; not there: nobody
--   lock:{T:ID}:NAME:line     ZSET who waits, by order of arrival
--   lock:{T:ID}:NAME:ends     ZSET who waits, by when that is over
--   lock:{T:ID}:NAME:waiters  HASH who waits: "ARRIVED LEASE", in milliseconds
-- Of all locks of an event:
--   lock:{T:ID}:workers       ZSET NODE:WORKER, by when it was last heard of
--   lock:{T:ID}:fence         the count of the last fence; stays, for fences only grow
--
-- A waiter is NODE:WORKER:NUMBER, and says so again when it repeats a call: then it finds itself
-- holding, or waiting. Its worker is heard of with every call. One that has been silent is passed
-- over, and keeps its place: who is dead is sent away when its wait is over.
--
-- What becomes of a waiter is told to its worker, in the reply when that worker calls, else on its
-- node's channel admitone:locks:NODE, as "WAITER FATE ...":
--   A EPOCH COUNT UNTIL WAITED   it has acquired the lock
--   T WAITED                     its time is over
--   L                            it has left
--   G                            it is neither waiting nor holding
-- A fence is epoch * 2^40 + count: too large for Lua's numbers, so it travels in two parts.

local LOCK_SILENT_MS = 1000
-- Keys outlive what they are for by so much.
local LOCK_KEPT_MS = 60000
local LOCK_STEP = 16

-- Those who have long been silent are forgotten, and all are when nobody waits any more.
local function lock_forget_silent(c)
  redis.call('ZREMRANGEBYSCORE', c.workers, '-inf', text(c.clock - LOCK_KEPT_MS))
  redis.call('PEXPIRE', c.workers, LOCK_KEPT_MS)
end

-- Keys: meta, workers, fence; arguments: epoch, time, worker.
local function lock_begin(keys, args)
  local why = refused(keys[1], args[1])
  if why then return nil, why end
  -- Whether a worker lives is a matter of real time, whatever time the caller goes by.
  local clock = milliseconds('0')
  local c = {
    epoch = args[1],
    now = args[2] == '0' and clock or milliseconds(args[2]),
    clock = clock,
    workers = keys[2],
    fence = keys[3],
    worker = args[3],
    news = {},
  }
  local is_new = redis.call('ZADD', c.workers, text(clock), c.worker) == 1
  if is_new then lock_forget_silent(c) end
  return c, nil
end

local function lock_keys(keys, first)
  return {
    holder = keys[first],
    line = keys[first + 1],
    ends = keys[first + 2],
    waiters = keys[first + 3],
  }
end

local function lock_tell(c, waiter, fate)
  local worker, node = string.match(waiter, '^(([^:]*):[^:]*)')
  if worker == c.worker then
    c.news[#c.news + 1] = waiter .. ' ' .. fate
  else
    redis.call('PUBLISH', 'admitone:locks:' .. node, waiter .. ' ' .. fate)
  end
end

local function lock_tell_acquired(c, holder)
  local fate = 'A ' .. c.epoch .. ' ' .. holder.fence .. ' ' .. holder.ends .. ' ' .. holder.waited
  lock_tell(c, holder.owner, fate)
end

local function lock_grant(c, lock, waiter, arrived, lease)
  local holder = {
    fence = text(redis.call('INCR', c.fence)),
    ends = text(c.now + lease),
    owner = waiter,
    waited = text(math.max(0, c.now - arrived)),
  }
  redis.call('HSET', lock.holder, 'fence', holder.fence, 'until', holder.ends, 'owner', waiter,
    'waited', holder.waited)
  redis.call('PEXPIRE', lock.holder, text(lease + LOCK_KEPT_MS))
  lock_tell_acquired(c, holder)
  return holder
end

local function lock_line_keep(key, milliseconds_more)
  if redis.call('PTTL', key) < milliseconds_more then
    redis.call('PEXPIRE', key, text(milliseconds_more))
  end
end

local function lock_line_add(c, lock, waiter, wait, lease)
  local last = redis.call('ZRANGE', lock.line, -1, -1, 'WITHSCORES')
  redis.call('ZADD', lock.line, text((tonumber(last[2]) or 0) + 1), waiter)
  redis.call('ZADD', lock.ends, text(c.now + wait), waiter)
  redis.call('HSET', lock.waiters, waiter, text(c.now) .. ' ' .. text(lease))
  for _, key in ipairs({ lock.line, lock.ends, lock.waiters }) do
    lock_line_keep(key, wait + LOCK_KEPT_MS)
  end
end

-- When it arrived, and for how long it wants the lock; nil: it is not in the line.
local function lock_line_take(lock, waiter)
  if redis.call('ZREM', lock.line, waiter) == 0 then return nil end
  local said = redis.call('HGET', lock.waiters, waiter)
  redis.call('ZREM', lock.ends, waiter)
  redis.call('HDEL', lock.waiters, waiter)
  local arrived, lease = string.match(said, '^(%S+) (%S+)$')
  return tonumber(arrived), tonumber(lease)
end

-- Sends away who has waited for too long.
local function lock_line_expire(c, lock)
  for _, waiter in ipairs(redis.call('ZRANGE', lock.ends, '-inf', text(c.now), 'BYSCORE')) do
    local arrived = lock_line_take(lock, waiter)
    lock_tell(c, waiter, 'T ' .. text(c.now - arrived))
  end
end

local function lock_is_heard(c, waiter)
  local seen = redis.call('ZSCORE', c.workers, string.match(waiter, '^([^:]*:[^:]*)'))
  return seen and c.clock - tonumber(seen) < LOCK_SILENT_MS
end

-- The first in the line whose worker is alive, or nil.
local function lock_line_next(c, lock)
  local from = 0
  while true do
    local some = redis.call('ZRANGE', lock.line, from, from + LOCK_STEP - 1)
    for _, waiter in ipairs(some) do
      if lock_is_heard(c, waiter) then return waiter end
    end
    if #some < LOCK_STEP then return nil end
    from = from + LOCK_STEP
  end
end

-- Nobody holds it now: the first who still waits does, or nobody.
local function lock_pass_on(c, lock)
  lock_line_expire(c, lock)
  local waiter = lock_line_next(c, lock)
  if not waiter then
    redis.call('DEL', lock.holder)
    return nil
  end
  local arrived, lease = lock_line_take(lock, waiter)
  return lock_grant(c, lock, waiter, arrived, lease)
end

local function lock_holder(lock)
  local found = redis.call('HMGET', lock.holder, 'fence', 'until', 'owner', 'waited')
  if not found[1] then return nil end
  return { fence = found[1], ends = found[2], owner = found[3], waited = found[4] }
end

-- Who holds it at this time, or nil.
local function lock_look(c, lock)
  local holder = lock_holder(lock)
  if holder and c.now < tonumber(holder.ends) then return holder end
  return lock_pass_on(c, lock)
end

-- Arguments: ..., number, how long it waits, lease. Nothing is told of one that waits.
register('lock_acquire', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  local lock = lock_keys(keys, 4)
  local waiter = c.worker .. ':' .. args[4]
  local wait, lease = tonumber(args[5]), tonumber(args[6])
  local holder = lock_look(c, lock)
  if not holder then
    lock_grant(c, lock, waiter, c.now, lease)
  elseif holder.owner == waiter then
    lock_tell_acquired(c, holder)
  elseif not redis.call('ZSCORE', lock.line, waiter) then
    if wait > 0 then
      lock_line_add(c, lock, waiter, wait, lease)
    else
      lock_tell(c, waiter, 'T 0')
    end
  end
  return c.news
end)

-- Whether the fence is that of who holds it at this time. Arguments: ..., the fence's epoch, count.
local function lock_is_theirs(c, lock, args)
  local holder = lock_look(c, lock)
  return holder and args[4] == c.epoch and args[5] == holder.fence
end

-- Arguments: ..., lease. Replies 1 or 0, and the news.
register('lock_renew', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  local lock = lock_keys(keys, 4)
  if not lock_is_theirs(c, lock, args) then return { 0, c.news } end
  local lease = tonumber(args[6])
  redis.call('HSET', lock.holder, 'until', text(c.now + lease))
  redis.call('PEXPIRE', lock.holder, text(lease + LOCK_KEPT_MS))
  return { 1, c.news }
end, ALLOW_OOM)

register('lock_release', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  local lock = lock_keys(keys, 4)
  if not lock_is_theirs(c, lock, args) then return { 0, c.news } end
  lock_pass_on(c, lock)
  return { 1, c.news }
end, ALLOW_OOM)

-- Calls `visit` for every lock, with those of the worker that wait for it. Keys: ..., those of each
-- lock; arguments: ..., for each lock how many wait, and their numbers.
local function lock_each(c, keys, args, visit)
  local at = 4
  for first = 4, #keys, 4 do
    local waiters = {}
    for i = 1, tonumber(args[at]) do waiters[i] = c.worker .. ':' .. args[at + i] end
    visit(lock_keys(keys, first), waiters)
    at = at + 1 + #waiters
  end
end

register('lock_tick', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  lock_forget_silent(c)
  lock_each(c, keys, args, function(lock, waiters)
    local holder = lock_look(c, lock)
    lock_line_expire(c, lock)
    local places = redis.call('ZMSCORE', lock.line, unpack(waiters))
    for i, waiter in ipairs(waiters) do
      if holder and holder.owner == waiter then
        lock_tell_acquired(c, holder)
      elseif not places[i] then
        lock_tell(c, waiter, 'G')
      end
    end
  end)
  return c.news
end, ALLOW_OOM)

-- Whoever has acquired it meanwhile gives it back.
register('lock_leave', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  lock_each(c, keys, args, function(lock, waiters)
    for _, waiter in ipairs(waiters) do
      lock_line_take(lock, waiter)
      lock_tell(c, waiter, 'L')
    end
    local holder = lock_holder(lock)
    for _, waiter in ipairs(waiters) do
      if holder and holder.owner == waiter then lock_pass_on(c, lock) end
    end
  end)
  return c.news
end, ALLOW_OOM)
