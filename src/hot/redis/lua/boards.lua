-- Boards: the law of core/board.h and core/soldout.h once more. NAME is "daily:20261225",
-- "weekly:2026-W52", "monthly:202612" and so on; KEY is an event's number in the ledger.
--
--   popularity:ranking:{NAME}   ZSET  TIE:KEY, by reservations
--   performance:{NAME}:info     HASH  epoch, mark; KEY → "reservations seats since"
--
--   ranking:{soldout}           ZSET  TIE:KEY, by how fast it sells
--   performance:{soldout}:info  HASH  epoch, mark; turn, who counts ("until node"); step, the last
--                                     of the pace; KEY → what selling_text writes
--   performance:{soldout}:pace  HASH  KEY → "step=seats step=seats …", seats that it sold by step
--   performance:{soldout}:paced ZSET  KEY, by the first of these steps
--   ranking:{soldout:DAY}       ZSET  KEY, by when it was sold out; perhaps it no longer is
--
-- TIE counts down from when the event's last reservation was made, or it was sold out: so the first of
-- equal ones is the last in Redis' order, and the first in its reverse.
--
-- A mark is "transaction id": all sales up to it are counted on this board. That of {soldout} is the
-- last to move, so whatever is behind it is told again to all of them.
--
-- Boards have an epoch, and what an older incarnation has left is no board. One of a period that is not
-- there is empty; without {soldout} something was lost.

local PACE_STEP_MS = 10000
local PACE_STEPS = 30
local PACE_TURN_MAX = 256
local SHARES = 1000
local SOLD_OUT_SCORE = 2 ^ 52
local TIE_MAX = 9999999999999
local TURN_MS = 2000

local function ranked(since, key)
  return string.format('%013.0f:%s', TIE_MAX - since, key)
end

local function ranked_key(member)
  return member:match(':(.*)$')
end

-- ---- lives and marks ----

-- Why nothing may be done with the board in that incarnation, or nil. The second of its keys is the info.
local function board_refused(keys, epoch)
  local has = redis.call('HGET', keys[2], 'epoch')
  if has == epoch then return nil end
  if has and tonumber(has) > tonumber(epoch) then
    return redis.error_reply('EPOCH the store is in another incarnation')
  end
  redis.call('DEL', unpack(keys))
  return nil
end

-- The same for functions that only read: whether there is a board of this incarnation, and why not to look.
local function board_is_there(keys, epoch)
  local has = redis.call('HGET', keys[2], 'epoch')
  if has == epoch then return true end
  if has and tonumber(has) > tonumber(epoch) then
    return false, redis.error_reply('EPOCH the store is in another incarnation')
  end
  return false
end

local function soldout_refused(keys, epoch)
  local no = board_refused(keys, epoch)
  if no or redis.call('EXISTS', keys[2]) == 1 then return no end
  return redis.error_reply('NOEVENT the store has no boards')
end

-- Who counts has learnt in which incarnation: what was true there is nothing in another one.
local function other_incarnation(epoch, begun)
  if epoch == begun then return nil end
  return redis.error_reply('EPOCH this was begun in another incarnation')
end

-- What the board has of events, as text; nil: nothing.
local function texts_of(keys, events, first)
  if #events < first then return {} end
  return redis.call('HMGET', keys[2], unpack(events, first))
end

-- The first so many, each: its key, and its text.
local function top_of(keys, count)
  local events, rows = {}, {}
  for i, member in ipairs(redis.call('ZREVRANGE', keys[1], 0, tonumber(count) - 1)) do
    events[i] = ranked_key(member)
  end
  local texts = texts_of(keys, events, 1)
  for i, key in ipairs(events) do
    rows[2 * i - 1], rows[2 * i] = key, texts[i]
  end
  return rows
end

local function mark_of(keys)
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

-- A batch of sales comes in sums, with the marks of its first and its last. They are counted when the
-- board has had none of it, and its mark moves; else nothing is done. Returns '' then, or the mark: up
-- to there the board has had it, and who tells sums up what is behind.
local function batch_begin(keys, first, last)
  local mark = mark_of(keys)
  if not is_before(mark, first) then return mark end
  redis.call('HSET', keys[2], 'mark', last)
  return ''
end

-- ---- the board of a period ----

local function tally_of(keys, key)
  local reservations, seats, since =
    (redis.call('HGET', keys[2], key) or '0 0 0'):match('^(-?%d+) (-?%d+) (%d+)$')
  return { reservations = tonumber(reservations), seats = tonumber(seats), since = tonumber(since) }
end

local function tally_text(t)
  return text(t.reservations) .. ' ' .. text(t.seats) .. ' ' .. text(t.since)
end

local function tally_add(keys, key, sum)
  local t = tally_of(keys, key)
  if t.reservations > 0 then redis.call('ZREM', keys[1], ranked(t.since, key)) end
  t.reservations = t.reservations + sum.reservations
  t.seats = t.seats + sum.seats
  t.since = math.max(t.since, sum.since)
  if t.reservations > 0 then redis.call('ZADD', keys[1], t.reservations, ranked(t.since, key)) end
  redis.call('HSET', keys[2], key, tally_text(t))
end

-- All of its keys go by themselves.
local function board_keep(keys, gone, now)
  for _, key in ipairs(keys) do redis.call('PEXPIRE', key, gone - now) end
end

-- Arguments behind the epoch of all functions of one board: the time, and when it is over.

local function tallies_add(keys, args, first)
  for i = first, #args, 4 do
    tally_add(keys, args[i], {
      reservations = tonumber(args[i + 1]),
      seats = tonumber(args[i + 2]),
      since = tonumber(args[i + 3]),
    })
  end
end

-- And then the epoch in which this was begun, the first mark and the last, and for each event, in
-- sum: its key, reservations, seats, since. Returns what batch_begin does; keys: those of the board.
register('board_add', function(keys, args)
  local no = other_incarnation(args[1], args[4]) or board_refused(keys, args[1])
  if no then return no end
  local now, gone = milliseconds(args[2]), tonumber(args[3])
  if gone <= now then return '' end
  redis.call('HSET', keys[2], 'epoch', args[1])
  local had = batch_begin(keys, args[5], args[6])
  if had == '' then tallies_add(keys, args, 7) end
  board_keep(keys, gone, now)
  return had
end, ALLOW_OOM)

-- And then the mark, and for each event: its key, reservations, seats, since.
register('board_restore', function(keys, args)
  local no = board_refused(keys, args[1])
  if no then return no end
  local now, gone = milliseconds(args[2]), tonumber(args[3])
  if gone <= now then return 0 end
  redis.call('HSET', keys[2], 'epoch', args[1], 'mark', args[4])
  tallies_add(keys, args, 5)
  board_keep(keys, gone, now)
  return 1
end)

-- And then how many, and events. Returns of the first so many, each: its key, and its tally as text;
-- and the tallies of the events.
register('board_top', function(keys, args)
  local is_there, no = board_is_there(keys, args[1])
  if no then return no end
  if tonumber(args[3]) <= milliseconds(args[2]) then return { {}, {} } end
  if not is_there then
    local nothing = {}
    for i = 5, #args do nothing[i - 4] = false end
    return { {}, nothing }
  end
  return { top_of(keys, args[4]), texts_of(keys, args, 5) }
end, NO_WRITES)

-- And then an event. Returns its rank (0: none), its tally as text, and the mark.
register('board_find', function(keys, args)
  local is_there, no = board_is_there(keys, args[1])
  if no then return no end
  if not is_there or tonumber(args[3]) <= milliseconds(args[2]) then
    return { 0, '0 0 0', '0 0' }
  end
  local t = tally_of(keys, args[4])
  local rank = redis.call('ZREVRANK', keys[1], ranked(t.since, args[4]))
  return { rank and rank + 1 or 0, rank and tally_text(t) or '0 0 0', mark_of(keys) }
end, NO_WRITES)

-- ---- what sells fastest ----

-- An event: whether it is known what there is to sell (1 or 0), capacity, opened, reservations,
-- seats, since, sold_out, pace.
local SELLING = { 'known', 'capacity', 'opened', 'reservations', 'seats', 'since', 'sold_out', 'pace' }
local NOTHING = '0 0 0 0 0 0 0 0'

local function selling_of(keys, key)
  local s, i = {}, 0
  for number in (redis.call('HGET', keys[2], key) or NOTHING):gmatch('%S+') do
    i = i + 1
    s[SELLING[i]] = tonumber(number)
  end
  return s
end

local function selling_text(s)
  local numbers = {}
  for i, name in ipairs(SELLING) do numbers[i] = text(s[name]) end
  return table.concat(numbers, ' ')
end

-- Its member, and its score; nil: it is not shown.
local function place_of(s, key)
  if s.known == 0 or s.reservations <= 0 then return nil end
  if s.sold_out ~= 0 and s.capacity > 0 and s.seats >= s.capacity then
    return ranked(s.sold_out, key), SOLD_OUT_SCORE - math.max(s.sold_out - s.opened, 0)
  end
  local share = s.capacity > 0 and s.seats * SHARES / s.capacity or 0
  share = share >= 0 and math.floor(share) or math.ceil(share)
  return ranked(s.since, key), s.pace * (SHARES + 1) + share
end

-- `change` gets the event as it is, and leaves it as it shall be.
local function selling_change(keys, key, change)
  local s = selling_of(keys, key)
  local before = place_of(s, key)
  change(s)
  local after, score = place_of(s, key)
  if before and before ~= after then redis.call('ZREM', keys[1], before) end
  if after then redis.call('ZADD', keys[1], text(score), after) end
  redis.call('HSET', keys[2], key, selling_text(s))
end

local function steps_in(packed)
  local steps = {}
  for step, seats in packed:gmatch('(%d+)=(-?%d+)') do steps[tonumber(step)] = tonumber(seats) end
  return steps
end

local function steps_of(keys, key)
  return steps_in(redis.call('HGET', keys[3], key) or '')
end

-- Those behind `last` are no longer counted. Returns the seats of all that are.
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

-- Time has passed. Everybody waits meanwhile, so of many events some are left to the next call, and
-- keep their pace until then. Returns the last step.
local function pace_turn(keys, now)
  local before = tonumber(redis.call('HGET', keys[2], 'step') or 0)
  local last = math.max(before, math.floor(now / PACE_STEP_MS))
  if last > before then redis.call('HSET', keys[2], 'step', last) end
  local ended = { '-inf', last - PACE_STEPS, 'LIMIT', 0, PACE_TURN_MAX }
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', keys[4], unpack(ended))) do
    local pace = steps_put(keys, key, steps_of(keys, key), last)
    selling_change(keys, key, function(s) s.pace = pace end)
  end
  return last
end

-- All functions of {soldout} have its four keys, and behind the epoch the time.

-- And then the node. Returns the number of its turn, which lasts for a while, or 0; and the mark.
register('soldout_begin', function(keys, args)
  local no = soldout_refused(keys, args[1])
  if no then return no end
  local now = milliseconds(args[2])
  pace_turn(keys, now)
  local ends, who = (redis.call('HGET', keys[2], 'turn') or '0 '):match('^(%d+) (.*)$')
  if who ~= args[3] then
    if tonumber(ends) > now then return { 0, mark_of(keys) } end
    redis.call('HINCRBY', keys[2], 'turns', 1)
  end
  redis.call('HSET', keys[2], 'turn', text(now + TURN_MS) .. ' ' .. args[3])
  return { tonumber(redis.call('HGET', keys[2], 'turns')), mark_of(keys) }
end, ALLOW_OOM)

-- And then the epoch in which this was begun, the turn, and for each event: its key, capacity,
-- opened. Returns 0, and does nothing, when another turn has come.
register('soldout_know', function(keys, args)
  local no = other_incarnation(args[1], args[3]) or soldout_refused(keys, args[1])
  if no then return no end
  if redis.call('HGET', keys[2], 'turns') ~= args[4] then return 0 end
  for i = 5, #args, 3 do
    selling_change(keys, args[i], function(s)
      s.known, s.capacity, s.opened = 1, tonumber(args[i + 1]), tonumber(args[i + 2])
    end)
  end
  return 1
end, ALLOW_OOM)

local function selling_add(keys, key, sum, last)
  local steps = steps_of(keys, key)
  for step, seats in pairs(sum.steps) do
    step = math.min(step, last)
    steps[step] = (steps[step] or 0) + seats
  end
  local pace = steps_put(keys, key, steps, last)
  selling_change(keys, key, function(s)
    s.reservations = s.reservations + sum.reservations
    s.seats = s.seats + sum.seats
    s.since = math.max(s.since, sum.since)
    s.sold_out = math.max(s.sold_out, sum.sold_out)
    s.pace = pace
  end)
end

-- And then the epoch in which this was begun, the first mark and the last, and for each event, in
-- sum: its key, reservations, seats, since, sold_out, and its steps as text, which may be later than
-- the last. Returns what batch_begin does.
register('soldout_add', function(keys, args)
  local no = other_incarnation(args[1], args[3]) or soldout_refused(keys, args[1])
  if no then return no end
  local last = pace_turn(keys, milliseconds(args[2]))
  local had = batch_begin(keys, args[4], args[5])
  if had ~= '' then return had end
  for i = 6, #args, 6 do
    selling_add(keys, args[i], {
      reservations = tonumber(args[i + 1]),
      seats = tonumber(args[i + 2]),
      since = tonumber(args[i + 3]),
      sold_out = tonumber(args[i + 4]),
      steps = steps_in(args[i + 5]),
    }, last)
  end
  return had
end, ALLOW_OOM)

-- And then the mark, and for each event: its key, itself as text, and its steps as text.
register('soldout_restore', function(keys, args)
  local no = board_refused(keys, args[1])
  if no then return no end
  redis.call('HSET', keys[2], 'epoch', args[1], 'mark', args[3])
  for i = 4, #args, 3 do
    local key = args[i]
    redis.call('HSET', keys[2], key, args[i + 1])
    redis.call('HSET', keys[3], key, args[i + 2])
    local pace = steps_put(keys, key, steps_of(keys, key), 0)
    selling_change(keys, key, function(s) s.pace = pace end)
  end
  return 1
end)

local function soldout_look(keys, args)
  local no = soldout_refused(keys, args[1])
  if no then return no end
  pace_turn(keys, milliseconds(args[2]))
  return nil
end

-- And then how many. Returns of the first so many, each: its key, and itself as text.
register('soldout_top', function(keys, args)
  local no = soldout_look(keys, args)
  if no then return no end
  return top_of(keys, args[3])
end, ALLOW_OOM)

-- And then an event. Returns its rank (0: none), itself as text, and the mark.
register('soldout_find', function(keys, args)
  local no = soldout_look(keys, args)
  if no then return no end
  local s = selling_of(keys, args[3])
  local member = place_of(s, args[3])
  local rank = member and redis.call('ZREVRANK', keys[1], member) + 1 or 0
  return { rank, rank > 0 and selling_text(s) or NOTHING, mark_of(keys) }
end, ALLOW_OOM)

-- And then events. Returns each as text; nil: it has nothing.
register('soldout_rows', function(keys, args)
  local no = soldout_look(keys, args)
  if no then return no end
  return texts_of(keys, args, 3)
end, ALLOW_OOM)

-- ---- who was sold out on a day ----

-- Arguments: the time, when the day's board is over, and for each event: its key, and when.
register('soldout_day_add', function(keys, args)
  local now, gone = milliseconds(args[2]), tonumber(args[3])
  if gone <= now then return 0 end
  for i = 4, #args, 2 do redis.call('ZADD', keys[1], 'GT', args[i + 1], args[i]) end
  board_keep(keys, gone, now)
  return 1
end, ALLOW_OOM)

-- Arguments: the time, and when the day's board is over. Returns the events.
register('soldout_day', function(keys, args)
  if tonumber(args[3]) <= milliseconds(args[2]) then return {} end
  return redis.call('ZRANGE', keys[1], 0, -1)
end, NO_WRITES)
