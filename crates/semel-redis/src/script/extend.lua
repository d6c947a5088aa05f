-- ttl
if not here then return {0, now, false} end
if st ~= 0 or bit.band(fl, 1) == 0 then return {0, now, redis.call('GET', K)} end
local ends = math.max(ex, math.min(now + tonumber(ARGV[1]), le))
if ends > ex then
  redis.call('SETRANGE', K, 40, struct.pack('>I8', ends))
  redis.call('PEXPIREAT', K, goes(st, fl, fe, ends))
end
return {1, now, ends}
