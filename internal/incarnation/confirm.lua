-- confirm.lua: an operator confirms that calls may go on with the data as it is. A new incarnation begins, with a mark of what its books lack.
-- Composed after NowLua, alive.lua and line.lua.
-- KEYS 1 alive  2 pace  3 feed  ARGV 1 now (µs, 0 = Redis's)  2 v as the caller has seen it  3 name of the new incarnation
-- returns 1 written  0 the data has changed meanwhile: look again
local KEPT = 16
local v = redis.call('HMGET', KEYS[1], 'v', 'line', 'marks', 'df', 'dl', 'ds', 'at')
if v[1] ~= ARGV[2] or not v[4] then return 0 end
local now = now_us(ARGV[1])
local _, _, last, back = alive_fits(KEYS[1], v[1], 0)
if last > now then redis.call('HSET', KEYS[1], 'back', int(back + last - now + 2 * ALIVE_BEAT)) end -- no pulse has seen yet that the clock was set back
local till = math.max(now, tonumber(v[6]) or 0, tonumber(v[7]) or 0) -- this Redis's clock may be behind the one that dated its jobs
local marks = {}
for from, to in string.gmatch(v[3] or '', '(%d+)-(%d+)') do marks[#marks + 1] = {tonumber(from), tonumber(to)} end
marks[#marks + 1] = {math.min(tonumber(v[4]), now), till}
while #marks > KEPT do -- two old ones are merged into one that covers both
  local first = table.remove(marks, 1)
  marks[1] = {math.min(first[1], marks[1][1]), math.max(first[2], marks[1][2])}
end
for i, mark in ipairs(marks) do marks[i] = int(mark[1]) .. '-' .. int(mark[2]) end
local line = line_with(line_with(v[2] or '', v[5] or ''), ARGV[3])
redis.call('HSET', KEYS[1], 'line', line, 'at', int(now), 'v', alive_changed(v[1], now), 'marks', table.concat(marks, ' '))
redis.call('HDEL', KEYS[1], 'gaps', 'df', 'ds', 'dl')
feed_epoch(KEYS[3], now)
-- Everything that can have been called since counts in the limits, whatever the pacer took the snapshot for: see r and c in bucket's reserve.lua. By a clock that is
-- behind, it is unknown since when.
if redis.call('EXISTS', KEYS[2]) == 1 then
  local pace = redis.call('HMGET', KEYS[2], 'c', 'r')
  local behind = (tonumber(pace[1]) or 0) > now or string.sub(pace[2] or '', 1, 7) == 'behind '
  redis.call('HSET', KEYS[2], 'r', 'restored ' .. (behind and '0' or int(math.min(tonumber(v[4]), now))))
end
return 1
