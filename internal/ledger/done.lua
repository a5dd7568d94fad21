-- done.lua: the call succeeded. A success is never forgotten: one that comes after its attempt was given up
-- (a stall) takes the job out of wherever it went meanwhile, unless another call of it is under way.
-- KEYS 1 record  2 open  3 rate  4 counters  5 retrying  6 scheduled, then parked:<reason> of every reason
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 generation  4 owner  5 status  6 history line  7 dedupe (ms)
-- returns 1 done now  2 done already  0 another attempt is under way, or the record is gone
local record, id = KEYS[1], ARGV[2]
local now = now_us(ARGV[1])
local mine, state = owned(record, ARGV[3], ARGV[4])
if not state or (state == 'in_flight' and not mine) then return 0 end
if state == 'done' then return 2 end
if not mine then
  if state == 'discarded' then redis.call('HINCRBY', KEYS[4], 'discarded', -1) end
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZREM', KEYS[6], id)
  for i = 7, #KEYS do redis.call('ZREM', KEYS[i], id) end
end
end_attempt({record = record, open = KEYS[2], rate = KEYS[3]}, id, now, 0, ARGV[6], tonumber(ARGV[5]))
redis.call('HSET', record, 's', 'done', 'fin', int(now))
redis.call('HDEL', record, 'p', 'due', 'r', 'e', 'pa', 'x', 'at', 'f', 'am')
redis.call('HINCRBY', KEYS[4], 'done', 1)
redis.call('PEXPIRE', record, ARGV[7])
return 1
