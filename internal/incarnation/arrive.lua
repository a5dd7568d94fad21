-- arrive.lua: ends a rename, when all else has the new name. What was known of the data's age under either name is known under the new one. Composed after NowLua, alive.lua
-- and line.lua.
-- KEYS 1 alive of the old name  2 alive of the new name  ARGV 1 now (µs, 0 = Redis's)  2 what is done, as leave.lua has it
-- returns 1 ended  0 it was before
if redis.call('HGET', KEYS[2], 'moving') ~= ARGV[2] then return 0 end
local now = now_us(ARGV[1])
local old = redis.call('HMGET', KEYS[1], 'line', 'marks', 'at', 'gaps')
local new = redis.call('HMGET', KEYS[2], 'line', 'marks', 'at', 'v')
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'moving', 'entry')
if not old[1] and not new[1] then
  redis.call('DEL', KEYS[2]) -- nobody has served either
  return 1
end
if not new[1] and old[4] then redis.call('HSET', KEYS[2], 'gaps', old[4]) end
local marks = (new[2] or '') .. ' ' .. (old[2] or '')
redis.call('HSET', KEYS[2], 'line', line_with(old[1] or '', new[1] or ''), 'at', int(math.max(tonumber(old[3]) or 0, tonumber(new[3]) or 0)), 'v', alive_changed(new[4], now))
if marks ~= ' ' then redis.call('HSET', KEYS[2], 'marks', string.match(marks, '^%s*(.-)%s*$')) end
return 1
