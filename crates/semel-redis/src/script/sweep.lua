-- What stands for nothing goes by itself.
if not there or here or bit.band(fl, 64) == 64 then return {0, now} end
drop()
return {1, now, (st == 1 or st == 3) and 1 or 0}
