-- Most outcomes find their claim as a SET made it: then the record is what came, with the end that its bringer reckoned. One that a
-- script gave or somebody waits for, and all else, is for the rest of the script; so is an outcome whose bringer does not know the
-- time, which is later than anything then.
-- Numbers for commands are text here: the server writes a number of Lua's in seventeen digits first.
local held = redis.call('GETRANGE', KEYS[1], '4', '47')
if #held == 44 and string.sub(held, 1, 28) == ARGV[3] and struct.unpack('>I8', held, 37) > ARGV[4] + 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
