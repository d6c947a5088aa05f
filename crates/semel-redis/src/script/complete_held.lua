-- Most outcomes find their claim as it was made: then the record is the parts as they came, with its end between them.
-- A token's claim, one that somebody waits for, and all else is for the rest of the script.
local held = redis.call('GETRANGE', KEYS[1], 0, 47)
if #held == 48 then
  local m, st, fl, fpv, z, holder, le, ex = struct.unpack('>c4BBBBc24I8I8', held)
  if m == 'SML\1' and st == 1 and (fl == 0 or fl == 2) and holder == string.sub(ARGV[1], 9, 32) then
    local t = redis.call('TIME')
    local now = t[1] * 1000000 + t[2]
    if ex > now then
      local ends = now + ARGV[4]
      redis.call('SET', KEYS[1], ARGV[1] .. struct.pack('>I8', ends) .. ARGV[2] .. ARGV[3],
        'PXAT', math.ceil(ends / 1000))
      return {now}
    end
  end
end
