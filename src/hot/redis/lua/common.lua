-- What all functions share. The library is common.lua, queue.lua, seats.lua and locks.lua, one
-- behind the other; its name carries its version, so that nodes of two versions don't overwrite
-- each other's.
--
-- Every function that is about an event has queue:{T:ID}:meta as its first key, and the epoch and
-- the time as its first two arguments: a time of 0 is the server's own. The meta hash has
-- the fields: epoch, key, version, deleted (1 when the event was removed), and the event's rules.

local VERSION = '1'

local function register(name, run)
  redis.register_function('admitone_' .. VERSION .. '_' .. name, run)
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

-- Why nothing may be done to the event, or nil.
local function refused(meta_key, epoch)
  local meta = redis.call('HMGET', meta_key, 'epoch', 'deleted')
  if not meta[1] then return redis.error_reply('NOEVENT the store does not know the event') end
  if meta[1] ~= epoch then return redis.error_reply('EPOCH the store is in another life') end
  if meta[2] then return redis.error_reply('GONE the event was removed') end
  return nil
end
