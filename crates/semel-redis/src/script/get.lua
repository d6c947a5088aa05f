local t = redis.call('TIME')
return {1, t[1] * 1000000 + t[2], redis.call('GET', KEYS[1])}
