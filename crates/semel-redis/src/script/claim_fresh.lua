-- Most claims find nothing: then the record is the parts as they came, with the times between them, and SET looks by itself.
-- Most others find what nobody may take. All else is for the rest of the script. At the memory limit SET refuses unseen.
local not_after, asked_lease, asked_more, how = struct.unpack('>i8I8I8B', ARGV[3])
if how == 0 then
  local t = redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  if now > not_after then return {-2, now} end
  local lease = now + asked_lease
  local set = redis.pcall('SET', KEYS[1],
    ARGV[1] .. struct.pack('>I8I8I8', now, lease, lease + asked_more) .. ARGV[2], 'NX', 'PX', ARGV[4])
  if set and set.ok then return {now} end
  local found = redis.call('GET', KEYS[1])
  if found and #found >= 84 and string.sub(found, 1, 4) == 'SML\1' then
    local st, fl = string.byte(found, 5, 6)
    local stays = (st == 1 and bit.band(fl, 2) == 0) or (st > 1 and st <= 4)
    if stays and struct.unpack('>I8', found, 41) > now then return {0, now, found} end
  end
end
