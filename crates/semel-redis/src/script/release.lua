-- owner fence('' = whatever it is) counts(0|1) to(0|4) keep rest
local any = ARGV[2] == ''
if any then
  -- A copy of the claim may be under way, one without a script, which looks for no more than whether something is here: for a
  -- quarter of an hour something is.
  if there then
    fl = bit.bor(fl, 128)
    redis.call('PEXPIREAT', K, goes(st, fl, fe, ex))
    redis.call('SETRANGE', K, '5', string.char(fl))
  else
    husk(192)
  end
end
if not here then return {1, now, 0} end
local to = tonumber(ARGV[4])
local own = ow == ARGV[1] and (any or fe == tonumber(ARGV[2]))
if own and st == to then return {1, now, 0} end
if not own or st ~= 1 then return {0, now, redis.call('GET', K)} end
-- a fence so far ahead was given to nobody
if any and bit.band(fl, 32) == 32 and fe > now + 1000000 then fe = now end
local attempt = ARGV[3] == '1' and at or math.max(at - 1, 0)
put(to, bit.band(fl, 1), 0, ow, fe, 0, now + tonumber(ARGV[5]), attempt, NOTHING, ARGV[6])
return {1, now, 0}
