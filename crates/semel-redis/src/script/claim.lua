-- head(magic state flags fp_v 0 owner) tail(attempt fp rest) asks(not_after lease hold+keep how parameters grace seen) px
-- how: 0 as usual, 1 only a token, 2 what this owner wrote without a script under the fence seen, 3 the same just now
local m1, s1, flags, version, z1, owner = struct.unpack('>c4BBBBc16', ARGV[1])
local n1, print = struct.unpack('>I4c32', ARGV[2])
local asked, grace, seen = struct.unpack('>c4I8I8', ARGV[3], 26)
local mine = there and st == 1 and bit.band(fl, 32) == 32 and ow == owner and fe == seen
if now > not_after then
  -- nobody was given what came too late
  if mine and how == 3 then
    fe = now
    husk(64)
  end
  return {-2, now}
end
if mine and here and math.abs(fe - now) <= 1000000 and (how == 2 or le > now) then
  -- as good as any, and its owner's
  redis.call('SETRANGE', K, '5', string.char(bit.band(fl, 223)))
  return {0, now, redis.call('GET', K)}
end
local needs_token, take, attempt, unresolved = how == 1, false, 1, 0
if not here then
  take = not needs_token
  if there and (st == 1 or st == 3) and not mine then unresolved = 1 end
elseif mine then
  take = true
elseif ow ~= owner then
  attempt = at + 1
  if st == 0 then
    take = not needs_token or bit.band(fl, 1) == 1
  elseif st == 1 and bit.band(fl, 2) == 2 and le + grace <= now then
    local made = redis.call('GETRANGE', K, 84, 90)
    local parameters = '\0\0\0\0'
    if #made == 7 and (string.byte(made) == 1 or string.byte(made) == 2) then parameters = string.sub(made, 4) end
    take = fpv == version and fp == print and parameters == asked
  end
end
if not take then return {0, now, redis.call('GET', K)} end
local fence, lease = math.max((fe or 0) + 1, now), now + asked_lease
-- a fence so far ahead was given to nobody
if mine and fe > now + 1000000 then fence = now end
flags = bit.bor(here and bit.band(fl, 1) or 0, flags)
put(1, flags, version, owner, fence, lease, lease + asked_more, attempt, print, string.sub(ARGV[2], 37))
return {1, now, fence, attempt, unresolved}
