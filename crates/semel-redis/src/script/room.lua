-- changes nothing, and is refused whenever a claim would be: at the memory limit, without replicas, on a server that takes
-- no writes
redis.call('SETRANGE', KEYS[1], 0, '')
return {1, 0}
