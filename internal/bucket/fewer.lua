-- fewer.lua: the gateway takes fewer calls at once than are in flight, so their number is halved. Composed after NowLua.
-- KEYS 1 hold  2 flight  3 active
-- ARGV 1 now (µs, 0 = Redis's)  2 channel  3 gateway
-- returns the new cap, or 0 if one call at once was too many already: then only a hold can help.
-- Fields of the hold: few (the cap)  fewat (since when, µs)  fewfrom (calls in flight then).
-- News within SETTLE of the last halving comes from calls that had left before it, and changes nothing. reserve.lua lets the cap
-- recover by one call each second (additive increase, multiplicative decrease), until as many are allowed as had been too many.
redis.call('HDEL', KEYS[1], '') -- a full Redis lets a script that has begun to write continue, and this must be written down
local SETTLE, SECOND = 1000000, 1000000
local now = now_us(ARGV[1])
local v = redis.call('HMGET', KEYS[1], 'few', 'fewat', 'fewfrom')
local few, at = tonumber(v[1]), tonumber(v[2]) or 0
local flying = math.max(redis.call('ZCOUNT', KEYS[2], int(now), '+inf'), redis.call('LLEN', KEYS[3]), 1)
local cap = few and few + math.floor((now - at) / SECOND)
if cap and cap > 1 and cap >= (tonumber(v[3]) or 0) then cap = nil end -- recovered
if few and few > 1 and now - at < SETTLE then return few end
if cap then flying = math.min(flying, cap) end
if flying <= 1 then return 0 end
few = math.floor(flying / 2)
redis.call('HSET', KEYS[1], 'few', int(few), 'fewat', int(now), 'fewfrom', int(flying))
redis.call('PUBLISH', ARGV[2], ARGV[3])
return few
