-- the mark to put where there is none
local t = redis.call('TIME')
local m = redis.call('GET', KEYS[1])
if not m then
  redis.call('SET', KEYS[1], ARGV[1])
  m = ARGV[1]
end
return {1, t[1] * 1000000 + t[2], m}
