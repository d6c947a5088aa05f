-- expected state
if not here or st ~= tonumber(ARGV[1]) then return {0, now} end
drop()
tell()
return {1, now}
