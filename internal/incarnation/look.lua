-- look.lua reads everything that a gateway's data says about its own age. Composed after NowLua and alive.lua.
-- KEYS 1 alive  2 counters  ARGV 1 now (µs, 0 = Redis's)
-- returns {now, line, at, v, gaps, marks, df, ds, dl, moving, format, the last sign of life on the clock as it was set since, by how much that was set back in all} as texts, '' if there is none; fields: internal/redisdb/alive.lua. If no dispatcher has
--      written the format, it is the one that producers have written
local v = redis.call('HMGET', KEYS[1], 'line', 'at', 'v', 'gaps', 'marks', 'df', 'ds', 'dl', 'moving', 'format')
local seen = {int(now_us(ARGV[1]))}
for i = 1, 10 do seen[i + 1] = v[i] or '' end
if not v[10] then
  local format = redis.pcall('HGET', KEYS[2], 'format')
  seen[11] = type(format) == 'string' and format or ''
end
local _, _, last, back = alive_fits(KEYS[1], '', 0)
seen[12], seen[13] = int(last), int(back)
return seen
