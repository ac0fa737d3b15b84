-- Posts one body for many users in rotation. Arguments: the path, the body, a file with a token per
-- line; optional: the average pause of a connection before a request, in milliseconds.

local requests, sent

function init(args)
  requests = {}
  for token in io.lines(args[3]) do
    local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. token }
    requests[#requests + 1] = wrk.format("POST", args[1], headers, args[2])
  end
  sent = 0
  -- wrk looks whether there is such a function.
  if args[4] then
    local most = 2 * tonumber(args[4])
    function delay() return math.random(0, most) end
  end
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
