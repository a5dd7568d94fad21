-- settle.lua: a task that asynq holds as active without a living lease, or in its retry set, is put where its record says.
-- KEYS 1 record  2 task  3 active  4 lease  5 pending  6 asynq's retry set
-- ARGV 1 now (µs, 0 = Redis's)  2 task id  3 generation  4 grace after the lease's end (µs)  5 task message
-- returns 'none' | 'queued' (back at the head) | 'removed' (paper of a job that has moved on)
local now, id = now_us(ARGV[1]), ARGV[2]
local lease = tonumber(redis.call('ZSCORE', KEYS[4], id))
local retry = redis.call('ZSCORE', KEYS[6], id)
if not retry and lease and lease * 1000000 + tonumber(ARGV[4]) > now then return 'none' end
local held = redis.call('LREM', KEYS[3], 0, id)
if held == 0 and not retry then
  redis.call('ZREM', KEYS[4], id)
  return 'none'
end
redis.call('ZREM', KEYS[4], id)
redis.call('ZREM', KEYS[6], id)
local v = redis.call('HMGET', KEYS[1], 's', 'g')
if v[1] == 'queued' and v[2] == ARGV[3] then
  redis.call('HSET', KEYS[2], 'msg', ARGV[5], 'state', 'pending', 'pending_since', int(now) .. '000')
  redis.call('RPUSH', KEYS[5], id)
  return 'queued'
end
redis.call('DEL', KEYS[2])
return 'removed'
