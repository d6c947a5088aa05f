-- owner fence lease keep
if not here then return {2, now} end
if ow ~= ARGV[1] or fe ~= tonumber(ARGV[2]) or st ~= 1 then return {0, now, redis.call('GET', K)} end
local ends = math.max(le, math.min(now + tonumber(ARGV[3]), ex - tonumber(ARGV[4])))
if ends > le then redis.call('SETRANGE', K, 32, struct.pack('>I8', ends)) end
return {1, now, math.max(ends - now, 0)}
