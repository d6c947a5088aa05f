-- ttl max_life rest
if here then return {0, now} end
local ttl, life = tonumber(ARGV[1]), tonumber(ARGV[2])
local ends = now + math.min(ttl, life)
local unresolved = there and (st == 1 or st == 3) and 1 or 0
put(0, 1, 0, NOBODY, fe or 0, now + life, ends, 0, NOTHING, ARGV[3])
return {1, now, ends, unresolved}
