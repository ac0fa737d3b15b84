-- Boards: the rules of core/board.h and core/soldout.h in Lua. NAME is "daily:20261225",
-- "weekly:2026-W52", "monthly:202612" and so on; KEY is an event's number in the ledger.
--
--   popularity:ranking:{NAME}   ZSET  TIE:KEY, by reservations
--   performance:{NAME}:info     HASH  epoch, mark; KEY → "reservations seats since"
--
--   ranking:{soldout}           ZSET  TIE:KEY, by how fast it sells
--   performance:{soldout}:info  HASH  epoch, mark; lease: of the node that counts, "until node";
--                                     lease_number: how many leases there were; step: the last one
--                                     of the pace; KEY → text of sales_text
--   performance:{soldout}:pace  HASH  KEY → "step=seats step=seats …": seats sold in each step
--   performance:{soldout}:paced ZSET  KEY, by the first of these steps
--   ranking:{soldout:DAY}       ZSET  KEY, by when it was sold out; it may not be any more
--
-- TIE decreases with the time of the event's last reservation, or of its being sold out: so of
-- equal events the earlier one has the higher member, and is first in the reverse order of Redis.
--
-- A mark is a watermark, "transaction id": all sales up to it are counted on this board. That of
-- {soldout} moves last, so the sales after it are sent again to all boards.
--
-- A board of an older epoch counts as absent. An absent board of a period is empty; if {soldout} is
-- absent, Redis has lost data.

local PACE_STEP_MS = 10000
local PACE_STEPS = 30
local PACE_ADVANCE_MAX = 256
local SHARES = 1000
local SOLD_OUT_SCORE = 2 ^ 52
local TIE_MAX = 9999999999999
local LEASE_MS = 2000

local function member_of(since, key)
  return string.format('%013.0f:%s', TIE_MAX - since, key)
end

local function member_key(member)
  return member:match(':(.*)$')
end

-- ---- incarnations and watermarks ----

-- The error with which a change of the board in that incarnation is refused, or nil. Deletes a
-- board of an older one. The second key is the info.
local function board_refused(keys, epoch)
  local has = redis.call('HGET', keys[2], 'epoch')
  if has == epoch then return nil end
  if has and tonumber(has) > tonumber(epoch) then
    return redis.error_reply('EPOCH the store is in another incarnation')
  end
  redis.call('DEL', unpack(keys))
  return nil
end

-- For functions that only read: whether there is a board of this incarnation; or the error.
local function board_is_there(keys, epoch)
  local has = redis.call('HGET', keys[2], 'epoch')
  if has == epoch then return true end
  if has and tonumber(has) > tonumber(epoch) then
    return false, redis.error_reply('EPOCH the store is in another incarnation')
  end
  return false
end

local function soldout_refused(keys, epoch)
  local refusal = board_refused(keys, epoch)
  if refusal or redis.call('EXISTS', keys[2]) == 1 then return refusal end
  return redis.error_reply('NOEVENT the store has no boards')
end

-- The node has read the watermark in one incarnation: it says nothing about another one.
local function other_incarnation(epoch, begun)
  if epoch == begun then return nil end
  return redis.error_reply('EPOCH this was begun in another incarnation')
end

-- The texts of events on the board; nil: the board does not have the event.
local function read_texts(keys, events, first)
  if #events < first then return {} end
  return redis.call('HMGET', keys[2], unpack(events, first))
end

-- The best rows, each: the event's key, and its text.
local function read_top(keys, count)
  local events, rows = {}, {}
  for i, member in ipairs(redis.call('ZREVRANGE', keys[1], 0, tonumber(count) - 1)) do
    events[i] = member_key(member)
  end
  local texts = read_texts(keys, events, 1)
  for i, key in ipairs(events) do
    rows[2 * i - 1], rows[2 * i] = key, texts[i]
  end
  return rows
end

local function watermark_of(keys)
  return redis.call('HGET', keys[2], 'mark') or '0 0'
end

local function mark_numbers(mark)
  local transaction, id = mark:match('^(%d+) (%d+)$')
  return tonumber(transaction), tonumber(id)
end

local function is_before(a, b)
  local a_transaction, a_id = mark_numbers(a)
  local b_transaction, b_id = mark_numbers(b)
  return a_transaction < b_transaction or (a_transaction == b_transaction and a_id < b_id)
end

-- A batch of sales is sent as sums, with the marks of its first and its last sale. If the board has
-- none of them, its watermark moves, '' is returned, and the caller counts the sums. Else nothing
-- is changed, and the board's watermark is returned: the node then sends the sums of the sales
-- after it.
local function batch_begin(keys, first, last)
  local mark = watermark_of(keys)
  if not is_before(mark, first) then return mark end
  redis.call('HSET', keys[2], 'mark', last)
  return ''
end

-- ---- the board of a period ----

local function board_sales_read(keys, key)
  local reservations, seats, since =
    (redis.call('HGET', keys[2], key) or '0 0 0'):match('^(-?%d+) (-?%d+) (%d+)$')
  return { reservations = tonumber(reservations), seats = tonumber(seats), since = tonumber(since) }
end

local function board_sales_text(t)
  return text(t.reservations) .. ' ' .. text(t.seats) .. ' ' .. text(t.since)
end

local function board_sales_add(keys, key, sum)
  local t = board_sales_read(keys, key)
  if t.reservations > 0 then redis.call('ZREM', keys[1], member_of(t.since, key)) end
  t.reservations = t.reservations + sum.reservations
  t.seats = t.seats + sum.seats
  t.since = math.max(t.since, sum.since)
  if t.reservations > 0 then
    redis.call('ZADD', keys[1], t.reservations, member_of(t.since, key))
  end
  redis.call('HSET', keys[2], key, board_sales_text(t))
end

-- All keys of a board expire.
local function board_expire(keys, ends, now)
  for _, key in ipairs(keys) do redis.call('PEXPIRE', key, ends - now) end
end

-- All functions of a board have these arguments after the epoch: the time, and when it expires.

local function board_sales_add_all(keys, args, first)
  for i = first, #args, 4 do
    board_sales_add(keys, args[i], {
      reservations = tonumber(args[i + 1]),
      seats = tonumber(args[i + 2]),
      since = tonumber(args[i + 3]),
    })
  end
end

-- Then the epoch in which counting began, the first mark and the last, and for each event the sums:
-- its key, reservations, seats, since. Returns the result of batch_begin. Keys: those of the board.
register('board_add', function(keys, args)
  local refusal = other_incarnation(args[1], args[4]) or board_refused(keys, args[1])
  if refusal then return refusal end
  local now, ends = milliseconds(args[2]), tonumber(args[3])
  if ends <= now then return '' end
  redis.call('HSET', keys[2], 'epoch', args[1])
  local watermark = batch_begin(keys, args[5], args[6])
  if watermark == '' then board_sales_add_all(keys, args, 7) end
  board_expire(keys, ends, now)
  return watermark
end, ALLOW_OOM)

-- Then the mark, and for each event: its key, reservations, seats, since.
register('board_restore', function(keys, args)
  local refusal = board_refused(keys, args[1])
  if refusal then return refusal end
  local now, ends = milliseconds(args[2]), tonumber(args[3])
  if ends <= now then return 0 end
  redis.call('HSET', keys[2], 'epoch', args[1], 'mark', args[4])
  board_sales_add_all(keys, args, 5)
  board_expire(keys, ends, now)
  return 1
end)

-- Then how many rows, and events. Returns the best rows, each: its key, and its sales as text; and
-- the sales of the events.
register('board_top', function(keys, args)
  local is_there, refusal = board_is_there(keys, args[1])
  if refusal then return refusal end
  if tonumber(args[3]) <= milliseconds(args[2]) then return { {}, {} } end
  if not is_there then
    local nothing = {}
    for i = 5, #args do nothing[i - 4] = false end
    return { {}, nothing }
  end
  return { read_top(keys, args[4]), read_texts(keys, args, 5) }
end, NO_WRITES)

-- Then an event. Returns its rank (0: none), its sales as text, and the watermark.
register('board_find', function(keys, args)
  local is_there, refusal = board_is_there(keys, args[1])
  if refusal then return refusal end
  if not is_there or tonumber(args[3]) <= milliseconds(args[2]) then
    return { 0, '0 0 0', '0 0' }
  end
  local t = board_sales_read(keys, args[4])
  local rank = redis.call('ZREVRANK', keys[1], member_of(t.since, args[4]))
  return { rank and rank + 1 or 0, rank and board_sales_text(t) or '0 0 0', watermark_of(keys) }
end, NO_WRITES)

-- ---- the events that sell fastest ----

-- The fields of an event; `known`: whether its capacity was set (1 or 0).
local SELLING = {
  'known', 'capacity', 'opened', 'reservations', 'seats', 'since', 'sold_out', 'pace',
}
local NOTHING = '0 0 0 0 0 0 0 0'

local function sales_read(keys, key)
  local s, i = {}, 0
  for number in (redis.call('HGET', keys[2], key) or NOTHING):gmatch('%S+') do
    i = i + 1
    s[SELLING[i]] = tonumber(number)
  end
  return s
end

local function sales_text(s)
  local numbers = {}
  for i, name in ipairs(SELLING) do numbers[i] = text(s[name]) end
  return table.concat(numbers, ' ')
end

-- The member of the event, and its score; nil: it is not shown.
local function sales_place(s, key)
  if s.known == 0 or s.reservations <= 0 then return nil end
  if s.sold_out ~= 0 and s.capacity > 0 and s.seats >= s.capacity then
    return member_of(s.sold_out, key), SOLD_OUT_SCORE - math.max(s.sold_out - s.opened, 0)
  end
  local share = s.capacity > 0 and s.seats * SHARES / s.capacity or 0
  share = share >= 0 and math.floor(share) or math.ceil(share)
  return member_of(s.since, key), s.pace * (SHARES + 1) + share
end

-- `change` changes the fields of the event; its rank follows.
local function sales_change(keys, key, change)
  local s = sales_read(keys, key)
  local before = sales_place(s, key)
  change(s)
  local after, score = sales_place(s, key)
  if before and before ~= after then redis.call('ZREM', keys[1], before) end
  if after then redis.call('ZADD', keys[1], text(score), after) end
  redis.call('HSET', keys[2], key, sales_text(s))
end

local function steps_parse(packed)
  local steps = {}
  for step, seats in packed:gmatch('(%d+)=(-?%d+)') do steps[tonumber(step)] = tonumber(seats) end
  return steps
end

local function steps_read(keys, key)
  return steps_parse(redis.call('HGET', keys[3], key) or '')
end

-- Stores the steps that still count at step `last`. Returns the sum of their seats.
local function steps_put(keys, key, steps, last)
  local packed, first, pace = {}, nil, 0
  for step, seats in pairs(steps) do
    if step > last - PACE_STEPS and seats ~= 0 then
      packed[#packed + 1] = text(step) .. '=' .. text(seats)
      first = math.min(first or step, step)
      pace = pace + seats
    end
  end
  if first then
    redis.call('HSET', keys[3], key, table.concat(packed, ' '))
    redis.call('ZADD', keys[4], first, key)
  else
    redis.call('HDEL', keys[3], key)
    redis.call('ZREM', keys[4], key)
  end
  return pace
end

-- Advances the pace to the current time. Redis is blocked in that time, so at most PACE_ADVANCE_MAX
-- events are updated; the others keep their pace until the next call. Returns the last step.
local function pace_advance(keys, now)
  local before = tonumber(redis.call('HGET', keys[2], 'step') or 0)
  local last = math.max(before, math.floor(now / PACE_STEP_MS))
  if last > before then redis.call('HSET', keys[2], 'step', last) end
  local ended = { '-inf', last - PACE_STEPS, 'LIMIT', 0, PACE_ADVANCE_MAX }
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', keys[4], unpack(ended))) do
    local pace = steps_put(keys, key, steps_read(keys, key), last)
    sales_change(keys, key, function(s) s.pace = pace end)
  end
  return last
end

-- All functions of {soldout} have its four keys, and the time after the epoch.

-- Then the node. Returns the number of its lease to count, or 0 if another node has it; and the
-- watermark.
register('soldout_begin', function(keys, args)
  local refusal = soldout_refused(keys, args[1])
  if refusal then return refusal end
  local now = milliseconds(args[2])
  pace_advance(keys, now)
  local ends, holder = (redis.call('HGET', keys[2], 'lease') or '0 '):match('^(%d+) (.*)$')
  if holder ~= args[3] then
    if tonumber(ends) > now then return { 0, watermark_of(keys) } end
    redis.call('HINCRBY', keys[2], 'lease_number', 1)
  end
  redis.call('HSET', keys[2], 'lease', text(now + LEASE_MS) .. ' ' .. args[3])
  return { tonumber(redis.call('HGET', keys[2], 'lease_number')), watermark_of(keys) }
end, ALLOW_OOM)

-- Then the epoch in which counting began, the lease, and for each event: its key, capacity, opened.
-- Returns 0, and changes nothing, if there is a newer lease.
register('soldout_set_events', function(keys, args)
  local refusal = other_incarnation(args[1], args[3]) or soldout_refused(keys, args[1])
  if refusal then return refusal end
  if redis.call('HGET', keys[2], 'lease_number') ~= args[4] then return 0 end
  for i = 5, #args, 3 do
    sales_change(keys, args[i], function(s)
      s.known, s.capacity, s.opened = 1, tonumber(args[i + 1]), tonumber(args[i + 2])
    end)
  end
  return 1
end, ALLOW_OOM)

local function sales_add(keys, key, sum, last)
  local steps = steps_read(keys, key)
  for step, seats in pairs(sum.steps) do
    step = math.min(step, last)
    steps[step] = (steps[step] or 0) + seats
  end
  local pace = steps_put(keys, key, steps, last)
  sales_change(keys, key, function(s)
    s.reservations = s.reservations + sum.reservations
    s.seats = s.seats + sum.seats
    s.since = math.max(s.since, sum.since)
    s.sold_out = math.max(s.sold_out, sum.sold_out)
    s.pace = pace
  end)
end

-- Then the epoch in which counting began, the first mark and the last, and for each event the sums:
-- its key, reservations, seats, since, sold_out, and its steps as text, which may be later than the
-- last step. Returns the result of batch_begin.
register('soldout_add', function(keys, args)
  local refusal = other_incarnation(args[1], args[3]) or soldout_refused(keys, args[1])
  if refusal then return refusal end
  local last = pace_advance(keys, milliseconds(args[2]))
  local watermark = batch_begin(keys, args[4], args[5])
  if watermark ~= '' then return watermark end
  for i = 6, #args, 6 do
    sales_add(keys, args[i], {
      reservations = tonumber(args[i + 1]),
      seats = tonumber(args[i + 2]),
      since = tonumber(args[i + 3]),
      sold_out = tonumber(args[i + 4]),
      steps = steps_parse(args[i + 5]),
    }, last)
  end
  return watermark
end, ALLOW_OOM)

-- Then the mark, and for each event: its key, its text, and its steps as text.
register('soldout_restore', function(keys, args)
  local refusal = board_refused(keys, args[1])
  if refusal then return refusal end
  redis.call('HSET', keys[2], 'epoch', args[1], 'mark', args[3])
  for i = 4, #args, 3 do
    local key = args[i]
    redis.call('HSET', keys[2], key, args[i + 1])
    redis.call('HSET', keys[3], key, args[i + 2])
    local pace = steps_put(keys, key, steps_read(keys, key), 0)
    sales_change(keys, key, function(s) s.pace = pace end)
  end
  return 1
end)

local function soldout_read_begin(keys, args)
  local refusal = soldout_refused(keys, args[1])
  if refusal then return refusal end
  pace_advance(keys, milliseconds(args[2]))
  return nil
end

-- Then how many. Returns the best rows, each: its key, and its text.
register('soldout_top', function(keys, args)
  local refusal = soldout_read_begin(keys, args)
  if refusal then return refusal end
  return read_top(keys, args[3])
end, ALLOW_OOM)

-- Then an event. Returns its rank (0: none), its text, and the watermark.
register('soldout_find', function(keys, args)
  local refusal = soldout_read_begin(keys, args)
  if refusal then return refusal end
  local s = sales_read(keys, args[3])
  local member = sales_place(s, args[3])
  local rank = member and redis.call('ZREVRANK', keys[1], member) + 1 or 0
  return { rank, rank > 0 and sales_text(s) or NOTHING, watermark_of(keys) }
end, ALLOW_OOM)

-- Then events. Returns the text of each; nil: the board does not have it.
register('soldout_rows', function(keys, args)
  local refusal = soldout_read_begin(keys, args)
  if refusal then return refusal end
  return read_texts(keys, args, 3)
end, ALLOW_OOM)

-- ---- the events that were sold out on a day ----

-- Arguments: the time, when the day's board expires, and for each event: its key, and when.
register('soldout_day_add', function(keys, args)
  local now, ends = milliseconds(args[2]), tonumber(args[3])
  if ends <= now then return 0 end
  for i = 4, #args, 2 do redis.call('ZADD', keys[1], 'GT', args[i + 1], args[i]) end
  board_expire(keys, ends, now)
  return 1
end, ALLOW_OOM)

-- Arguments: the time, and when the day's board expires. Returns the events.
register('soldout_day', function(keys, args)
  if tonumber(args[3]) <= milliseconds(args[2]) then return {} end
  return redis.call('ZRANGE', keys[1], 0, -1)
end, NO_WRITES)
