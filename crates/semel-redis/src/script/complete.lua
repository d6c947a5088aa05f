-- record px(two seconds more than the time to live)
local m1, s1, kept, version, z1, owner, fence = struct.unpack('>c4BBBBc16I8', ARGV[1])
local own = here and ow == owner and fe == fence
if own and st == 2 then return {1, now, 0} end
if not here or st == 0 or (own and (st == 1 or st == 3)) or (st ~= 2 and fe < fence) then
  local flags = bit.bor(here and bit.band(fl, 1) or 0, kept)
  local attempt, print = struct.unpack('>I4c32', ARGV[1], 49)
  put(2, flags, version, owner, fence, 0, now + (ARGV[2] - 2000) * 1000, attempt, print, string.sub(ARGV[1], 85))
  return {1, now, own and 0 or 1}
end
return {0, now, redis.call('GET', K)}
