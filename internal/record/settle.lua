-- settle.lua puts a task that no worker holds any more (active without a living lease, or in one of asynq's own sets) where its record says.
-- A job that goes back to the queue gets a new generation, so that the task of a worker that was only stalled is stale.
-- KEYS
--    1  record
--    2  task
--    3  active
--    4  lease
--    5  due
--    6  new task
--    7  costs
--    8  retries
--    9… asynq's own sets: retry, archived, scheduled, completed
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  task id
--    3  generation
--    4  grace after the lease's end (µs)
--    5  new task id
--    6  new task message
--    7  gateway
--    8  wake channel
--    9  the lease's end (s) at which it was seen to stay ('' = it had none)
-- returns none | queued (back at the head) | removed (a task of a job that has moved on)
local now, task_id = now_us(ARGV[1]), ARGV[2]
local lease = redis.call('ZSCORE', KEYS[4], task_id)
local over = lease and tonumber(lease) * 1000000 + tonumber(ARGV[4]) <= now
local aside = false
for i = 9, #KEYS do aside = aside or redis.call('ZSCORE', KEYS[i], task_id) end
if not aside and lease and not over and lease ~= ARGV[9] then return 'none' end

local v = redis.call('HMGET', KEYS[1], '@state', '@generation', '@cost', '@history', '@priority')
local present = v[2] == ARGV[3]
-- The attempt is judged by its own deadline; until then its worker may be alive, and its task's lease still extended.
if not aside and lease and not over and present and v[1] == 'in_flight' then return 'none' end
local held = redis.call('LREM', KEYS[3], 0, task_id)
redis.call('ZREM', KEYS[4], task_id)
for i = 9, #KEYS do redis.call('ZREM', KEYS[i], task_id) end
if held == 0 and not aside then return 'none' end

redis.call('DEL', KEYS[2])
if v[1] ~= 'queued' or not present then return 'removed' end
local cost = tonumber(v[3]) or 1
if cost > 1 then redis.call('HDEL', KEYS[7], task_id) end
redis.call('HSET', KEYS[1], '@generation', int(tonumber(v[2]) + 1))
pend('RPUSH', line_of(KEYS[1], v[5], v[4], KEYS[5], KEYS[8]), KEYS[6], ARGV[5], ARGV[6], KEYS[7], cost, now)
redis.call('PUBLISH', ARGV[8], ARGV[7])
return 'queued'
