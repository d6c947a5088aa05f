-- owner fence('' = whatever it is) counts(0|1) to(0|4) keep rest
if not here then return {1, now, 0} end
local to = tonumber(ARGV[4])
local own = ow == ARGV[1] and (ARGV[2] == '' or fe == tonumber(ARGV[2]))
if own and st == to then return {1, now, 0} end
if not own or st ~= 1 then return {0, now, redis.call('GET', K)} end
local attempt = ARGV[3] == '1' and at or math.max(at - 1, 0)
put(to, bit.band(fl, 1), 0, ow, fe, 0, now + tonumber(ARGV[5]), attempt, NOTHING, ARGV[6])
return {1, now, 0}
