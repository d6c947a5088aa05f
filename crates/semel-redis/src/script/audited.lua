-- how many
local t = redis.call('TIME')
return {1, t[1] * 1000000 + t[2], redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)}
