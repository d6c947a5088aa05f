-- owner fence fp_v fp flags attempt ttl rest
local fence = tonumber(ARGV[2])
local own = here and ow == ARGV[1] and fe == fence
if own and st == 2 then return {1, now, 0} end
if not here or st == 0 or (own and (st == 1 or st == 3)) or (st ~= 2 and fe < fence) then
  local flags = bit.bor(here and bit.band(fl, 1) or 0, tonumber(ARGV[5]))
  put(2, flags, tonumber(ARGV[3]), ARGV[1], fence, 0, now + tonumber(ARGV[7]), tonumber(ARGV[6]), ARGV[4], ARGV[8])
  return {1, now, own and 0 or 1}
end
return {0, now, redis.call('GET', K)}
