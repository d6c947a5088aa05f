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
  here = ex > now and bit.band(fl, 64) == 0
end
local NOBODY, NOTHING = string.rep('\0', 16), string.rep('\0', 32)
-- whoever remembers what was here hears of it
local function tell()
  redis.pcall('PUBLISH', string.match(K, '^[^:]*') .. ':wake', '!' .. string.sub(K, -64))
end
-- When a key goes: two seconds after its record's end, and its fence; a week later where nobody told the outcome, so that the end
-- can be told; and not while a stray claim may come (see release.lua).
local function goes(s, f, n, e)
  local ends = math.max(n, e) + 2000000
  if s == 1 or s == 3 then ends = ends + 604800000000 end
  if bit.band(f, 128) == 128 then ends = math.max(ends, now + 900000000) end
  return string.format('%d', math.ceil(ends / 1000))
end
local function put(s, f, v, o, n, l, e, a, p, body)
  if there then f = bit.bor(f, bit.band(fl, 128)) end
  redis.call('SET', K, struct.pack(H, 'SML\1', s, f, v, 0, o, n, l, e, a, p) .. body, 'PXAT', goes(s, f, n, e))
  if here and bit.band(fl, 8) == 8 then
    redis.pcall('PUBLISH', string.match(K, '^[^:]*') .. ':wake', string.sub(K, -64))
  end
end
-- What stands for nothing, and is there: whoever claims next is answered by a script, and given a fence above this one.
local function husk(flags)
  local fence = math.max(fe or 0, now)
  put(0, flags, 0, NOBODY, fence, 0, fence, 0, NOTHING, '')
end
-- Gone; but for a fence so young that a claim without a script could be given a lower one, and where a stray claim may come.
local function drop()
  if fe > now - 2000000 or bit.band(fl, 128) == 128 then husk(64) else redis.call('DEL', K) end
end
