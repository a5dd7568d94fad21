-- arrive.lua ends a rename, when everything else has the new name. The data is that of the old name, and so is its age: a process that remembers the old name finds out if it is an old
-- snapshot. The incarnations of the new name come before it. If the old name's present incarnation is among them, this state is older than what the new name has had:
-- it is doubted. Composed after NowLua, alive.lua and line.lua.
-- KEYS 1 alive of the old name  2 alive of the new name  ARGV 1 now (µs, 0 = Redis's)  2 what is done, as leave.lua has it
-- returns 1 ended  0 it had ended before
if redis.call('HGET', KEYS[2], 'moving') ~= ARGV[2] then return 0 end
local now = now_us(ARGV[1])
local old = redis.call('HMGET', KEYS[1], 'line', 'marks', 'at', 'gaps', 'format', 'back', 'seen')
local new = redis.call('HMGET', KEYS[2], 'line', 'marks', 'at', 'v', 'format', 'back', 'seen')
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'moving', 'entry')
if not old[1] and not new[1] then
  redis.call('DEL', KEYS[2]) -- no dispatcher has served either
  return 1
end
local format = math.max(tonumber(old[5]) or 0, tonumber(new[5]) or 0)
if format > 0 then redis.call('HSET', KEYS[2], 'format', int(format)) end
-- Jobs of both names know by how much their clock was set back before their first call: of two amounts, the larger makes no key younger.
local back, seen = math.max(tonumber(old[6] or '') or 0, tonumber(new[6] or '') or 0), old[1] and old[7] or new[7]
if back > 0 then redis.call('HSET', KEYS[2], 'back', int(back)) end
if seen then redis.call('HSET', KEYS[2], 'seen', seen) end
if not new[1] and old[4] then redis.call('HSET', KEYS[2], 'gaps', old[4]) end
local present, line = string.match(old[1] or '', '%S+$'), line_with(new[1] or '', old[1] or '')
local older = present and string.find(' ' .. (new[1] or '') .. ' ', ' ' .. present .. ' ', 1, true)
local at = int(tonumber(old[1] and old[3] or new[3]) or 0)
local marks = (new[2] or '') .. ' ' .. (old[2] or '')
redis.call('HSET', KEYS[2], 'line', line, 'at', at, 'v', alive_changed(new[4], now))
if older then redis.call('HSET', KEYS[2], 'df', at, 'ds', int(math.max(tonumber(new[3]) or 0, tonumber(old[3]) or 0)), 'dl', line) end
if marks ~= ' ' then redis.call('HSET', KEYS[2], 'marks', string.match(marks, '^%s*(.-)%s*$')) end
return 1
