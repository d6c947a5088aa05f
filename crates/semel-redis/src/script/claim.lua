-- owner fp_v fp parameters lease hold+keep needs_token(0|1) takeover(0|2) not_after grace rest
if now > tonumber(ARGV[9]) then return {-2, now} end
local needs_token, take, attempt, unresolved = ARGV[7] == '1', false, 1, 0
if not here then
  take = not needs_token
  if there and (st == 1 or st == 3) then unresolved = 1 end
elseif ow ~= ARGV[1] then
  attempt = at + 1
  if st == 0 then
    take = not needs_token or bit.band(fl, 1) == 1
  elseif st == 1 and bit.band(fl, 2) == 2 and le + tonumber(ARGV[10]) <= now then
    local made = redis.call('GETRANGE', K, 84, 90)
    local parameters = '\0\0\0\0'
    if #made == 7 and string.byte(made) == 1 then parameters = string.sub(made, 4) end
    take = fpv == tonumber(ARGV[2]) and fp == ARGV[3] and parameters == ARGV[4]
  end
end
if not take then return {0, now, redis.call('GET', K)} end
local fence, lease = math.max((fe or 0) + 1, now), now + tonumber(ARGV[5])
local flags = bit.bor(here and bit.band(fl, 1) or 0, tonumber(ARGV[8]))
put(1, flags, tonumber(ARGV[2]), ARGV[1], fence, lease, lease + tonumber(ARGV[6]), attempt, ARGV[3], ARGV[11])
return {1, now, fence, attempt, unresolved}
