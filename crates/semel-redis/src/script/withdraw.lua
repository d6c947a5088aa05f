if not here or st ~= 0 or bit.band(fl, 1) == 0 then return {0, now} end
redis.call('DEL', K)
tell()
return {1, now}
