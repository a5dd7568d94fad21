-- look.lua: what keeps a gateway's calls back. Composed after NowLua.
-- KEYS 1 hold
-- ARGV 1 now (µs, 0 = Redis's)
-- Returns {held until (µs, 0 = not held), reason, 1 if one call goes first, 1 if paused, why, 1 if the circuit is open}
local v = redis.call('HMGET', KEYS[1], 'until', 'reason', 'need', 'paused', 'why', 'circuit')
local held = tonumber(v[1]) or 0
if held <= now_us(ARGV[1]) then held = 0 end
local paused = v[4] == '1'
return {int(held), v[2] or '', v[3] == '1' and held == 0 and 1 or 0, paused and 1 or 0, paused and v[5] or '', v[6] and 1 or 0}
