-- succeeded.lua: a call succeeded; after a hold, the rest may follow. Composed after NowLua and outage.lua.
-- KEYS 1 hold
-- ARGV 1 now (µs, 0 = Redis's)  2 channel  3 gateway  4 slot of the call (µs)
-- Returns 1 if calls are free to go, 2 if so and this closed the circuit, 0 if the hold still runs, nobody was sent ahead yet,
-- or the call had left before the hold ended: its success is old news, and proves nothing.
local now = now_us(ARGV[1])
local v = redis.call('HMGET', KEYS[1], 'until', 'need', 'probe', 'circuit', 'outages')
local held = tonumber(v[1]) or 0
if v[2] ~= '1' then return 1 end
if held > now or not v[3] or tonumber(ARGV[4]) < held then return 0 end
redis.call('HSET', KEYS[1], 'need', 0, 'clear', int(now))
redis.call('HDEL', KEYS[1], 'probe', 'slot', 'reason', 'circuit')
if v[4] then redis.call('HSET', KEYS[1], 'outages', outage_end(v[5], now)) end
redis.call('PUBLISH', ARGV[2], ARGV[3])
return v[4] and 2 or 1
