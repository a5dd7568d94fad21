-- succeeded.lua: a call succeeded; after a hold, the rest may follow. Composed after NowLua.
-- KEYS 1 hold
-- ARGV 1 now (µs, 0 = Redis's)  2 channel  3 gateway
-- Returns 1 if calls are free to go, 0 if the hold still runs or nobody was sent ahead yet: then this success is an
-- older call's, and proves nothing.
local now = now_us(ARGV[1])
local v = redis.call('HMGET', KEYS[1], 'until', 'need', 'probe')
if v[2] ~= '1' then return 1 end
if (tonumber(v[1]) or 0) > now or not v[3] then return 0 end
redis.call('HSET', KEYS[1], 'need', 0, 'clear', int(now))
redis.call('HDEL', KEYS[1], 'probe', 'slot', 'reason')
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
