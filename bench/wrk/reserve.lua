-- Posts one body for many users in turn. Arguments: the path, the body, a file with a token per line.

local requests, sent

function init(args)
  requests = {}
  for token in io.lines(args[3]) do
    local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. token }
    requests[#requests + 1] = wrk.format("POST", args[1], headers, args[2])
  end
  sent = 0
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
