-- settle.lua: a task that asynq holds as active without a living lease, or in its retry set, is put where its record says.
-- A job that goes back to the queue gets a new generation: a worker that was only stalled finds its paper stale.
-- KEYS 1 record  2 task  3 active  4 lease  5 pending  6 asynq's retry set  7 new task  8 costs
-- ARGV 1 now (µs, 0 = Redis's)  2 task id  3 generation  4 grace after the lease's end (µs)  5 new task id  6 new task message
--      7 gateway  8 wake channel
-- returns 'none' | 'queued' (back at the head) | 'removed' (paper of a job that has moved on)
local now, task_id = now_us(ARGV[1]), ARGV[2]
local lease = tonumber(redis.call('ZSCORE', KEYS[4], task_id))
local retry = redis.call('ZSCORE', KEYS[6], task_id)
if not retry and lease and lease * 1000000 + tonumber(ARGV[4]) > now then return 'none' end
local held = redis.call('LREM', KEYS[3], 0, task_id)
redis.call('ZREM', KEYS[4], task_id)
redis.call('ZREM', KEYS[6], task_id)
if held == 0 and not retry then return 'none' end

redis.call('DEL', KEYS[2])
local v = redis.call('HMGET', KEYS[1], 's', 'g', 'c')
if v[1] ~= 'queued' or v[2] ~= ARGV[3] then return 'removed' end
local cost = tonumber(v[3]) or 1
if cost > 1 then redis.call('HDEL', KEYS[8], task_id) end
redis.call('HSET', KEYS[1], 'g', int(tonumber(v[2]) + 1))
pend('RPUSH', KEYS[5], KEYS[7], ARGV[5], ARGV[6], KEYS[8], cost, now)
redis.call('PUBLISH', ARGV[8], ARGV[7])
return 'queued'
