-- request_ask.lua records what a person asks for and a second person must approve. Composed before act.lua.
-- KEYS 1 the request  2 requests
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 for how long it may be approved (µs)  4 how many there may be at once  5… fields and values in turn: what, who, person, via, why
-- returns 1 written  0 there are as many already: nothing was written
local now = now_us(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now)) -- those that were not decided in time
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then return 0 end
local last = int(now + tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'state', 'asked', 'asked', int(now), 'until', last, unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], REQUEST_STAY)
redis.call('ZADD', KEYS[2], last, ARGV[2])
return 1
