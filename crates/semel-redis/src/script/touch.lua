local b = redis.call('GETRANGE', KEYS[1], 0, 0)
if b ~= '' then redis.call('SETRANGE', KEYS[1], 0, b) end
return 1
