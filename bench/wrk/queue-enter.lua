-- Enters a queue, each request as another user. Arguments: the path, the number of the first user.
-- All names have the same length, so requests differ only in the name and are built from three parts.

local before, after, user

function init(args)
  local mark = string.rep("#", 12)
  local headers = { ["Content-Type"] = "application/json" }
  local whole = wrk.format("POST", args[1], headers, '{"userId":"user' .. mark .. '"}')
  local from, to = whole:find(mark, 1, true)
  before = whole:sub(1, from - 1)
  after = whole:sub(to + 1)
  user = tonumber(args[2])
end

function request()
  user = user + 1
  return before .. string.format("%012d", user) .. after
end
