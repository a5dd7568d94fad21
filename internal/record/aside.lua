-- aside.lua: the record of a job is of another type, or its generation is not a number, because something else wrote to it. What is there is kept under another name, and the job is parked as
-- unreadable. So it stops no other job, and a person decides: it may have been charged, and its payload is gone.
-- KEYS 1 record  2 where its contents are kept  3 counters  4 parked:unreadable  5… the sets that the job may be in
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 a generation that no task of the job has  4 error
-- returns 1 done  0 the record is not damaged: nothing was written
local is = redis.call('TYPE', KEYS[1]).ok
if is == 'none' or is == 'hash' and string.find(redis.call('HGET', KEYS[1], '@generation') or '', '^%d+$') then return 0 end
local now = now_us(ARGV[1])
local when = int(stamp(KEYS[3], now))
if is == 'hash' then
  local v = redis.call('HMGET', KEYS[1], '@state', '@reason', '@money')
  if v[1] == 'parked' then
    local sum = books_none()
    books_sum(sum, v[3], payload_bytes(KEYS[1]))
    books_parked(KEYS[1], books_place('parked', v[2]), sum, -1)
  end
end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], '@state', 'parked', '@generation', ARGV[3], '@digest', '', '@accepted_at', int(now), '@pieces', '0', '@reason', 'unreadable',
  '@error', ARGV[4], '@parked_at', when, '@may_have_charged', '1')
for i = 5, #KEYS do redis.call('ZREM', KEYS[i], ARGV[2]) end
redis.call('ZADD', KEYS[4], when, ARGV[2])
feed_job(KEYS[1], 'parked') --fed
return 1
