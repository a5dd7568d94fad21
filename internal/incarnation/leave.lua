-- leave.lua begins to rename a gateway, or to forget one. From then on it is not called, and no job goes in. The same step checks what that requires. Composed after
-- NowLua and alive.lua.
-- KEYS 1 alive  2 open  3 counters  4 trail, and, to rename, of the new name too: 5 alive  6 counters
-- ARGV 1 now (µs, 0 = Redis's)  2 what is done, "rename OLD NEW" or "forget NAME": it is in both alive, as moving  3 how long without a sign of life means that no dispatcher
--      serves it (µs)  4 an entry for the trail ('' = none)
-- returns {what, a number}: begun, and again if it was begun before, both with the place of the entry in the trail, and to forget, with when that was (µs). With any other, nothing
-- was changed: other, with what is being done instead; served (1 the old name, 2 the new one); doubted; open, with how many attempts; taken, with how many jobs the new name has had
local now, what, two = now_us(ARGV[1]), ARGV[2], #KEYS > 4
local function seen(alive)
  local v = redis.call('HMGET', alive, 'v', 'df', 'moving', 'entry')
  local _, _, last = alive_fits(alive, v[1], 0)
  return {v = v[1], last = last, doubted = v[2], moving = v[3], entry = v[4]}
end
local old, new = seen(KEYS[1]), two and seen(KEYS[5])
if old.moving == what then return {'again', old.entry} end
if old.moving or new and new.moving then return {'other', old.moving or new.moving} end
if now - old.last <= tonumber(ARGV[3]) then return {'served', '1'} end
if new and now - new.last <= tonumber(ARGV[3]) then return {'served', '2'} end
if old.doubted or new and new.doubted then return {'doubted', '0'} end
local open = redis.call('ZCARD', KEYS[2])
if open > 0 then return {'open', int(open)} end
local taken = two and tonumber(redis.call('HGET', KEYS[6], 'accepted') or '') or 0
if taken > 0 then return {'taken', int(taken)} end
local entry = int(now)
if ARGV[4] ~= '' then entry = int(redis.call('RPUSH', KEYS[4], ARGV[4]) - 1) end
redis.call('HSET', KEYS[1], 'moving', what, 'entry', entry, 'v', alive_changed(old.v, now))
if new then redis.call('HSET', KEYS[5], 'moving', what, 'entry', entry, 'v', alive_changed(new.v, now)) end
return {'begun', entry}
