-- fence
if not here or st ~= 1 or fe ~= tonumber(ARGV[1]) then return {0, now} end
if bit.band(fl, 8) == 0 then redis.call('SETRANGE', K, 5, string.char(bit.bor(fl, 8))) end
return {1, now}
