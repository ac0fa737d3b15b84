-- Requests the status of many places in rotation. Arguments: the path, a file with a token per line.

local requests, sent

function init(args)
  requests = {}
  for token in io.lines(args[2]) do
    requests[#requests + 1] = wrk.format("GET", args[1], { ["Authorization"] = "Bearer " .. token })
  end
  sent = 0
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
