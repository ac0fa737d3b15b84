-- Puts `count` events one after the other, each time with another title. Arguments: the admin key,
-- count.

local count, sent

function init(args)
  wrk.method = "PUT"
  wrk.headers["Authorization"] = "Bearer " .. args[1]
  wrk.headers["Content-Type"] = "application/json"
  count = tonumber(args[2])
  sent = 0
end

function request()
  sent = sent + 1
  local json = '{"title":"Winter tour ' .. sent .. '","startsAt":"2026-12-25T10:00:00Z",'
    .. '"sections":[{"id":"A","name":"Floor A","capacity":100,"price":150000}]}'
  return wrk.format(nil, "/admin/events/BENCH/" .. sent % count, nil, json)
end
