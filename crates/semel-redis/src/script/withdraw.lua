if not here or st ~= 0 or bit.band(fl, 1) == 0 then return {0, now} end
drop()
tell()
return {1, now}
