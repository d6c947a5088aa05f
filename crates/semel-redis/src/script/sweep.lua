if not there or here then return {0, now} end
redis.call('DEL', K)
return {1, now, (st == 1 or st == 3) and 1 or 0}
