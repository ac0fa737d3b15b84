-- Named locks (port/locks.h). A lock's keys, in this order:
--   lock:{T:ID}:NAME:holder   HASH fence, until, owner, waited; absent when the lock is free
--   lock:{T:ID}:NAME:line     ZSET waiters, by order of arrival
--   lock:{T:ID}:NAME:ends     ZSET waiters, by when their wait ends
--   lock:{T:ID}:NAME:waiters  HASH waiter → "ARRIVED LEASE", in milliseconds
-- Of all locks of an event:
--   lock:{T:ID}:workers       ZSET NODE:WORKER, by the time of its last call
--   lock:{T:ID}:fence         the count of the last fence; never deleted, because fences only grow
--
-- A waiter is NODE:WORKER:NUMBER. A repeated call has the same number, and finds that it holds the
-- lock or waits already. A worker is alive if it has called recently. Waiters of a silent worker
-- are skipped and keep their places: they are removed when their wait ends.
--
-- The outcome for a waiter is reported to its worker: in the reply if that worker is calling, else
-- on the channel of its node, admitone:locks:NODE, as "WAITER OUTCOME ...":
--   A EPOCH COUNT UNTIL WAITED   it has acquired the lock
--   T WAITED                     its wait is over
--   L                            it has left the line
--   G                            it is neither waiting nor holding
-- A fence is epoch * 2^40 + count: too large for Lua's numbers, so it is sent in two parts.

local LOCK_SILENT_MS = 1000
-- How much longer keys are kept than they are needed.
local LOCK_KEPT_MS = 60000
local LOCK_PAGE = 16

-- Removes workers that have long been silent; all of them, by expiry, when no worker calls.
local function lock_drop_silent_workers(c)
  redis.call('ZREMRANGEBYSCORE', c.workers, '-inf', text(c.clock - LOCK_KEPT_MS))
  redis.call('PEXPIRE', c.workers, LOCK_KEPT_MS)
end

-- Keys: meta, workers, fence; arguments: epoch, time, worker.
local function lock_begin(keys, args)
  local why = refused(keys[1], args[1])
  if why then return nil, why end
  -- Whether a worker is alive is decided by the real time, even if the caller sets the time.
  local clock = milliseconds('0')
  local c = {
    epoch = args[1],
    now = args[2] == '0' and clock or milliseconds(args[2]),
    clock = clock,
    workers = keys[2],
    fence = keys[3],
    worker = args[3],
    notices = {},
  }
  local is_new = redis.call('ZADD', c.workers, text(clock), c.worker) == 1
  if is_new then lock_drop_silent_workers(c) end
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

local function lock_notify(c, waiter, outcome)
  local worker, node = string.match(waiter, '^(([^:]*):[^:]*)')
  if worker == c.worker then
    c.notices[#c.notices + 1] = waiter .. ' ' .. outcome
  else
    redis.call('PUBLISH', 'admitone:locks:' .. node, waiter .. ' ' .. outcome)
  end
end

local function lock_notify_acquired(c, holder)
  lock_notify(c, holder.owner,
    'A ' .. c.epoch .. ' ' .. holder.fence .. ' ' .. holder.ends .. ' ' .. holder.waited)
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
  lock_notify_acquired(c, holder)
  return holder
end

local function lock_line_extend(key, milliseconds_more)
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
    lock_line_extend(key, wait + LOCK_KEPT_MS)
  end
end

-- Removes the waiter. Returns when it arrived, and its lease; nil: it is not in the line.
local function lock_line_take(lock, waiter)
  if redis.call('ZREM', lock.line, waiter) == 0 then return nil end
  local packed = redis.call('HGET', lock.waiters, waiter)
  redis.call('ZREM', lock.ends, waiter)
  redis.call('HDEL', lock.waiters, waiter)
  local arrived, lease = string.match(packed, '^(%S+) (%S+)$')
  return tonumber(arrived), tonumber(lease)
end

-- Removes the waiters whose wait is over.
local function lock_line_expire(c, lock)
  for _, waiter in ipairs(redis.call('ZRANGE', lock.ends, '-inf', text(c.now), 'BYSCORE')) do
    local arrived = lock_line_take(lock, waiter)
    lock_notify(c, waiter, 'T ' .. text(c.now - arrived))
  end
end

local function lock_worker_is_alive(c, waiter)
  local seen = redis.call('ZSCORE', c.workers, string.match(waiter, '^([^:]*:[^:]*)'))
  return seen and c.clock - tonumber(seen) < LOCK_SILENT_MS
end

-- The first waiter whose worker is alive, or nil.
local function lock_line_next(c, lock)
  local from = 0
  while true do
    local some = redis.call('ZRANGE', lock.line, from, from + LOCK_PAGE - 1)
    for _, waiter in ipairs(some) do
      if lock_worker_is_alive(c, waiter) then return waiter end
    end
    if #some < LOCK_PAGE then return nil end
    from = from + LOCK_PAGE
  end
end

-- Gives the lock, which has no holder now, to the first waiter. nil: there is none.
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

-- The holder at this time, or nil.
local function lock_current_holder(c, lock)
  local holder = lock_holder(lock)
  if holder and c.now < tonumber(holder.ends) then return holder end
  return lock_pass_on(c, lock)
end

-- Arguments: ..., number, how long it waits, lease. The reply has no notice while it waits.
register('lock_acquire', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  local lock = lock_keys(keys, 4)
  local waiter = c.worker .. ':' .. args[4]
  local wait, lease = tonumber(args[5]), tonumber(args[6])
  local holder = lock_current_holder(c, lock)
  if not holder then
    lock_grant(c, lock, waiter, c.now, lease)
  elseif holder.owner == waiter then
    lock_notify_acquired(c, holder)
  elseif not redis.call('ZSCORE', lock.line, waiter) then
    if wait > 0 then
      lock_line_add(c, lock, waiter, wait, lease)
    else
      lock_notify(c, waiter, 'T 0')
    end
  end
  return c.notices
end)

-- Whether the fence is that of the holder at this time. Arguments: ..., the fence's epoch, count.
local function lock_is_theirs(c, lock, args)
  local holder = lock_current_holder(c, lock)
  return holder and args[4] == c.epoch and args[5] == holder.fence
end

-- Arguments: ..., lease. Returns 1 or 0, and the notices.
register('lock_renew', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  local lock = lock_keys(keys, 4)
  if not lock_is_theirs(c, lock, args) then return { 0, c.notices } end
  local lease = tonumber(args[6])
  redis.call('HSET', lock.holder, 'until', text(c.now + lease))
  redis.call('PEXPIRE', lock.holder, text(lease + LOCK_KEPT_MS))
  return { 1, c.notices }
end, ALLOW_OOM)

register('lock_release', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  local lock = lock_keys(keys, 4)
  if not lock_is_theirs(c, lock, args) then return { 0, c.notices } end
  lock_pass_on(c, lock)
  return { 1, c.notices }
end, ALLOW_OOM)

-- Calls `visit` for every lock, with the waiters of this worker. Keys: ..., those of each lock;
-- arguments: ..., for each lock the number of waiters, and their numbers.
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
  lock_drop_silent_workers(c)
  lock_each(c, keys, args, function(lock, waiters)
    local holder = lock_current_holder(c, lock)
    lock_line_expire(c, lock)
    local places = redis.call('ZMSCORE', lock.line, unpack(waiters))
    for i, waiter in ipairs(waiters) do
      if holder and holder.owner == waiter then
        lock_notify_acquired(c, holder)
      elseif not places[i] then
        lock_notify(c, waiter, 'G')
      end
    end
  end)
  return c.notices
end, ALLOW_OOM)

-- Removes waiters. If one of them has acquired the lock, the lock is passed on.
register('lock_leave', function(keys, args)
  local c, why = lock_begin(keys, args)
  if why then return why end
  lock_each(c, keys, args, function(lock, waiters)
    for _, waiter in ipairs(waiters) do
      lock_line_take(lock, waiter)
      lock_notify(c, waiter, 'L')
    end
    local holder = lock_holder(lock)
    for _, waiter in ipairs(waiters) do
      if holder and holder.owner == waiter then lock_pass_on(c, lock) end
    end
  end)
  return c.notices
end, ALLOW_OOM)
