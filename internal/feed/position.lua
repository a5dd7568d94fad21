-- position.lua reads the position of a gateway's outcome feed. Composed after NowLua.
-- KEYS 1 feed  ARGV 1 now (µs, 0 = Redis's)
-- returns {epoch and time of the latest outcome (0 if there was none), now (µs)}
local v = redis.call('HMGET', KEYS[1], 'epoch', 'time')
return {tonumber(v[1] or '') or 0, tonumber(v[2] or '') or 0, now_us(ARGV[1])}
