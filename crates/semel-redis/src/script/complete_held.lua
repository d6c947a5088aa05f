-- Most outcomes find their claim as it was made: then the record is the parts as they came, with its end between them.
-- A token's claim, one that somebody waits for, and all else is for the rest of the script.
-- Numbers for commands are text here: the server writes a number of Lua's in seventeen digits first.
local held = redis.call('GETRANGE', KEYS[1], '0', '47')
if #held == 48 and string.sub(held, 9, 32) == string.sub(ARGV[1], 9, 32) then
  local st, fl = string.byte(held, 5, 6)
  if st == 1 and (fl == 0 or fl == 2) and string.sub(held, 1, 4) == 'SML\1' then
    local t = redis.call('TIME')
    local now = t[1] * 1000000 + t[2]
    if struct.unpack('>I8', held, 41) > now then
      redis.call('SET', KEYS[1], ARGV[1] .. struct.pack('>I8', now + ARGV[3]) .. ARGV[2], 'PX', ARGV[4])
      return {now}
    end
  end
end
