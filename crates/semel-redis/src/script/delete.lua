-- expected state
if not here or st ~= tonumber(ARGV[1]) then return {0, now} end
redis.call('DEL', K)
tell()
return {1, now}
