-- unpull.lua: a task that was pulled, and that asynq never took, goes back to the head of its line. Composed after NowLua.
-- KEYS 1 active  2 lease  3 due  4 task  5 retries  6 the job's record  7 classes
-- ARGV 1 task id
-- returns 1, or 0 if it is no longer active: a sweep was faster.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[4], 'state', 'pending', 'pending_since', int(now_us('0')) .. '000')
local job = redis.call('HMGET', KEYS[6], '@history', '@priority')
local line = job[1] and KEYS[5] or KEYS[3]
if not job[1] and job[2] then
  line = string.match(KEYS[6], '^spillway:{[^}]*}:') .. 'first:' .. job[2]
  redis.call('HSETNX', KEYS[7], job[2], '0') -- the file of another dispatcher may no longer have the class: it looks for jobs of the classes that are named here
end
redis.call('RPUSH', line, ARGV[1])
return 1
