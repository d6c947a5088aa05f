-- A POST with a key that nobody used before: salt of the run, number of the thread, counter.
-- Twelve digits from the start, so that all requests are equally long. The whole text is put together by hand:
-- wrk.format would cost more than some of what is measured.
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("id", threads)
end

function init(args)
  local body = '{"item":"book","quantity":1,"customer":"c-1042","note":"none"}'
  head = "POST /orders HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
    .. "\r\nContent-Type: application/json\r\nContent-Length: " .. #body
    .. "\r\nIdempotency-Key: " .. string.format("%s-%04d-4000-8000-", args[1], id)
  tail = "\r\n\r\n" .. body
  n = 100000000000
end

function request()
  n = n + 1
  return head .. n .. tail
end
