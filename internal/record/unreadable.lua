-- unreadable.lua: something in a gateway's queue that is not a job is parked as it is.
-- KEYS 1 record  2 counters  3 parked:unreadable
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 what it holds  4 digest  5 error
-- returns 1 parked, now or before  0 the id belongs to something else: nothing was written
local known = redis.call('HGET', KEYS[1], '@digest')
if known then return known == ARGV[4] and 1 or 0 end
local now = now_us(ARGV[1])
local when = int(stamp(KEYS[2], now))
redis.call('HSET', KEYS[1], '@state', 'parked', '@generation', '1', '@digest', ARGV[4], '@accepted_at', int(now), '@payload', ARGV[3],
  '@reason', 'unreadable', '@error', ARGV[5], '@parked_at', when)
books_count(KEYS[2], 'b:parked:unreadable', #ARGV[3])
redis.call('ZADD', KEYS[3], when, ARGV[2])
feed_job(KEYS[1], 'parked') --fed
redis.call('HINCRBY', KEYS[2], 'accepted', 1)
return 1
