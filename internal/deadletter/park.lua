-- park.lua: an attempt ends in the dead-letter store.
-- KEYS 1 record  2 open  3 rate  4 counters  5 parked:<reason>  6 hold
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 generation  4 owner  5 "1": the attempt counts  6 history line  7 status
--      8 reason: cancelled means that its batch is paused or cancelled, and is rejected if it is not any more  9 error  10 "1": the call may have charged  11 "1": the gateway answered, and did not fail
-- returns 1 parked  0 the record has moved on
local record, id = KEYS[1], ARGV[2]
local now = now_us(ARGV[1])
if not owned(record, ARGV[3], ARGV[4]) then return 0 end
end_attempt({record = record, open = KEYS[2], rate = KEYS[3]}, id, now, tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]))
if ARGV[11] == '1' then outage_over(KEYS[6]) end
if paid_before(record, KEYS[4], now) then return 1 end
local when, reason, set, error = stamp(KEYS[4], now), ARGV[8], KEYS[5], ARGV[9]
if reason == 'cancelled' and not books_stopped(record, redis.call('HGET', record, 'b')) then -- its batch was resumed meanwhile
  reason, set, error = 'rejected', books_key(record, 'parked:rejected'), 'its batch was paused'
end
become(record, 'parked', 'r', reason, 'e', error, 'pa', int(when))
if ARGV[10] == '1' then redis.call('HSET', record, 'am', '1') end
redis.call('ZADD', set, int(when), id)
return 1
