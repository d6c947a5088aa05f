-- owner fence fp_v fp attempt ttl rest
local fence = tonumber(ARGV[2])
local own = here and ow == ARGV[1] and fe == fence
if own and (st == 2 or st == 3) then return {1, now, 0} end
if not here or (own and st == 1) or (st < 2 and fe < fence) then
  local flags = here and bit.band(fl, 1) or 0
  put(3, flags, tonumber(ARGV[3]), ARGV[1], fence, now, now + tonumber(ARGV[6]), tonumber(ARGV[5]), ARGV[4], ARGV[7])
  return {1, now, own and 0 or 1}
end
return {0, now, redis.call('GET', K)}
