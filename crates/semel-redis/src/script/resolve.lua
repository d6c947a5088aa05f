-- completed(0|1) fence resolver flags ttl rest
if not here then return {0, now, false} end
local unclear = st == 3 or st == 4 or (st == 1 and le <= now)
if not unclear or fe ~= tonumber(ARGV[2]) then return {0, now, redis.call('GET', K)} end
local fence, ends, flags = math.max(fe + 1, now), now + tonumber(ARGV[5]), bit.band(fl, 1)
if ARGV[1] == '1' then
  put(2, bit.bor(flags, tonumber(ARGV[4])), fpv, ARGV[3], fence, 0, ends, at, fp, ARGV[6])
else
  put(0, flags, 0, ARGV[3], fence, 0, ends, at, NOTHING, ARGV[6])
end
tell()
return {1, now, fence}
