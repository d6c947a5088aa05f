-- Most outcomes find their claim as it was made: then the record is what came, with the end that its bringer reckoned.
-- A token's claim, one that somebody waits for, and all else is for the rest of the script; so is no reckoning, or one by
-- which another time has passed since the claim than by the server's clock, which the key's own end tells for less than TIME does.
-- Numbers for commands are text here: the server writes a number of Lua's in seventeen digits first.
local held = redis.call('GETRANGE', KEYS[1], '4', '47')
if #held == 44 and string.sub(held, 5, 28) == string.sub(ARGV[1], 9, 32) then
  local st, fl = string.byte(held, 1, 2)
  if st == 1 and bit.band(fl, 221) == 0 then
    local ends = struct.unpack('>I8', held, 37)
    local now = struct.unpack('>I8', ARGV[1], 41) - (ARGV[2] - 2000) * 1000
    local left = redis.pcall('PTTL', KEYS[1])
    if type(left) == 'number' and math.abs(ends + 604802000000 - left * 1000 - now) < 100000 and now < ends then
      redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
      return {now}
    end
  end
end
