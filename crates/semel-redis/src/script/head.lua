local H = '>c4BBBBc16I8I8I8I4c32'
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local K = KEYS[1]
local h = redis.call('GETRANGE', K, 0, 83)
local there = #h > 0
local here = false
local m, st, fl, fpv, z, ow, fe, le, ex, at, fp
-- a record that was cut to nothing is somebody's all the same
if not there and redis.call('GET', K) then return {-1, now, ''} end
if there then
  if #h < 84 or string.sub(h, 1, 4) ~= 'SML\1' or string.byte(h, 5) > 4 then
    return {-1, now, redis.call('GET', K)}
  end
  m, st, fl, fpv, z, ow, fe, le, ex, at, fp = struct.unpack(H, h)
  here = ex > now
end
local NOBODY, NOTHING = string.rep('\0', 16), string.rep('\0', 32)
-- whoever remembers what was here hears of it
local function tell()
  redis.pcall('PUBLISH', string.match(K, '^[^:]*') .. ':wake', '!' .. string.sub(K, -64))
end
local function put(s, f, v, o, n, l, e, a, p, body)
  local stays = e
  if s == 1 or s == 3 then stays = e + 604800000000 end
  redis.call('SET', K, struct.pack(H, 'SML\1', s, f, v, 0, o, n, l, e, a, p) .. body,
    'PXAT', string.format('%d', math.ceil(stays / 1000)))
  if here and bit.band(fl, 8) == 8 then
    redis.pcall('PUBLISH', string.match(K, '^[^:]*') .. ':wake', string.sub(K, -64))
  end
end
