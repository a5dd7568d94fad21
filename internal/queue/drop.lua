-- drop.lua removes a stray task from asynq's keys. Composed after NowLua.
-- KEYS 1 active  2 lease  3 asynq's retry set  4 asynq's archive  5 task
-- ARGV 1 a lease that ended this long ago is dead (s)  2 task id
-- returns 1, or 0 if it is no longer a stray: a worker has it, or it waits in the queue.
local lease = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[2]))
if lease and lease >= now_us('0') / 1000000 - tonumber(ARGV[1]) then return 0 end
local found = redis.call('LREM', KEYS[1], 0, ARGV[2]) + redis.call('ZREM', KEYS[3], ARGV[2]) + redis.call('ZREM', KEYS[4], ARGV[2])
if found == 0 then return 0 end
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[5])
return 1
