-- line
local t = redis.call('TIME')
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, 9999)
return {1, t[1] * 1000000 + t[2]}
