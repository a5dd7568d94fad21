-- doubt.lua: a process has seen data that this Redis does not have. From now on no dispatcher on any machine calls the gateway, until an operator
-- settles it. Of several doubts, the one that reaches back furthest counts. Composed after NowLua, alive.lua and line.lua.
-- KEYS 1 alive  2 pace  3 feed
-- ARGV 1 now (µs, 0 = Redis's)  2 v as the caller has seen it ('' = none)  3 from when on the data knows nothing (µs)
--      4 the last sign of life that the caller knows of (µs)  5 the incarnations that it knows
-- returns 1 written  0 the data has changed meanwhile: look again
local v = redis.call('HMGET', KEYS[1], 'v', 'df', 'ds', 'dl')
if (v[1] or '') ~= ARGV[2] then return 0 end
local from = math.min(tonumber(v[2]) or math.huge, tonumber(ARGV[3]))
local seen = math.max(tonumber(v[3]) or 0, tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], 'v', alive_changed(v[1], now_us(ARGV[1])), 'df', int(from), 'ds', int(seen), 'dl', line_with(v[4] or '', ARGV[5]))
feed_epoch(KEYS[3], now_us(ARGV[1]))
return 1
