-- The limits on arrival (port/limits.h). Of each bucket that nodes have taken much from:
--   admitone:{limits}:KIND:BITS:PREFIX   STRING: when it will be, or was, full again, in microseconds
--                                        of the clock of Redis
-- KIND is p (places) or r (requests), PREFIX the first BITS bits of the address, in hex. These keys
-- belong to no incarnation: they are not rebuilt, and it does no harm if they are lost.

local LIMITS_DEBT_MOST = 1e14
-- A node tells what it has taken some time ago. For so long a bucket that has become full is kept, so
-- that what several nodes tell about the same time adds up.
local LIMITS_KEPT_MS = 600000

-- So many microseconds were taken from a bucket, or given back, since the time `since`. Returns how
-- long it takes until it is full.
local function limits_spend(key, now, spent, since)
  local full = math.max(tonumber(redis.call('GET', key) or '0'), since) + spent
  local debt = math.min(math.max(full - now, 0), LIMITS_DEBT_MOST)
  redis.call('SET', key, text(math.min(full, now + debt)), 'PX',
    text(math.ceil(debt / 1000) + LIMITS_KEPT_MS))
  return debt
end

-- Keys: buckets; the time, and for each what was taken from it, and how long ago it was begun → how
-- long each takes until it is full.
register('limits_spend', function(keys, args)
  local now = milliseconds(args[2]) * 1000
  local debts = {}
  for i, key in ipairs(keys) do
    debts[i] = limits_spend(key, now, tonumber(args[1 + 2 * i]), now - tonumber(args[2 + 2 * i]))
  end
  return debts
end)
