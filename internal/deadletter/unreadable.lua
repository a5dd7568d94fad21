-- unreadable.lua: something in a gateway's queue that is not a job is parked as it is.
-- KEYS 1 record  2 counters  3 parked:unreadable
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 what it holds  4 digest  5 error
-- returns 1 parked  0 a record of that id is there already
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local now = now_us(ARGV[1])
local when = int(stamp(KEYS[2], now))
redis.call('HSET', KEYS[1], 's', 'parked', 'g', '1', 'd', ARGV[4], 't', int(now), 'p', ARGV[3],
  'r', 'unreadable', 'e', ARGV[5], 'pa', when)
redis.call('ZADD', KEYS[3], when, ARGV[2])
redis.call('HINCRBY', KEYS[2], 'accepted', 1)
return 1
