-- look.lua: all that a gateway's data says of its own age. Reads only. Composed after NowLua.
-- KEYS 1 alive  ARGV 1 now (µs, 0 = Redis's)
-- returns {now, line, at, v, gaps, marks, df, ds, dl, moving} as texts, '' where there is none; fields: internal/redisdb/alive.lua
local v = redis.call('HMGET', KEYS[1], 'line', 'at', 'v', 'gaps', 'marks', 'df', 'ds', 'dl', 'moving')
local seen = {int(now_us(ARGV[1]))}
for i = 1, 9 do seen[i + 1] = v[i] or '' end
return seen
