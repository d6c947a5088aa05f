-- A POST with one of 32 keys per thread: all but the first of each are answered from the record.
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("id", threads)
end

function init(args)
  local body = '{"item":"book","quantity":1,"customer":"c-1042","note":"none"}'
  all = {}
  for i = 1, 32 do
    all[i] = "POST /orders HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
      .. "\r\nContent-Type: application/json\r\nContent-Length: " .. #body
      .. "\r\nIdempotency-Key: " .. string.format("%s-%04d-4000-9000-%012d", args[1], id, i)
      .. "\r\n\r\n" .. body
  end
  n = 0
end

function request()
  n = n % 32 + 1
  return all[n]
end
