-- back.lua ends an attempt whose job goes on: to the head of its line of the queue, or into a back-off.
-- KEYS
--    1  record
--    2  open
--    3  rate
--    4  due
--    5  new task
--    6  retrying
--    7  costs
--    8  counters
--    9  hold
--   10  retries
--   11… those of redisdb.TaskEnd
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  generation
--    4  owner
--    5  "1": the attempt counts
--    6  history line ('' = nothing was written)
--    7  status (0 = none)
--    8  back-off (µs, 0 = to the head of the queue)
--    9  error ('' = none)
--   10  new task id
--   11  task message
--   12  gateway
--   13  wake channel
--   14  doubt: "1": the call may have charged, only its key makes another call safe. "other": the same, and the key belongs to another job, so it does not count as sent. "next": neither it nor
--       an earlier call has charged, and the job continues with the next key. '' = nothing new
--   15  "1": the gateway answered, and did not fail
--   16  when its failure was counted (µs, 0 = it did not fail)
--   17  beginning of the outage that the failure belongs to (µs, 0 = of none so far)
--   18… those of redisdb.TaskEnd
-- returns 1  given back, and the attempt's task is over
--         0  the record has moved on
local record, id = KEYS[1], ARGV[2]
local now = now_us(ARGV[1])
local job, mine = attempt(record, ARGV[3], ARGV[4])
if not mine then return 0 end
local line = line_of(record, job.@priority, (job.@history or '') .. ARGV[6], KEYS[4], KEYS[10])
end_attempt({record = record, open = KEYS[2], rate = KEYS[3]}, job, id, now, tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]))
task_end(KEYS, ARGV)
if ARGV[15] == '1' then did_work(KEYS[9], job) end
if ARGV[17] ~= '0' then outage_met(record, tonumber(ARGV[17])) end
if ARGV[5] == '1' and ARGV[16] ~= '0' then outage_spent(record, tonumber(ARGV[16])) end
if paid_before(record, KEYS[8], now, job) then return 1 end
doubt(record, ARGV[14])
if ARGV[9] ~= '' then redis.call('HSET', record, '@error', ARGV[9]) end
local wait = tonumber(ARGV[8])
if wait > 0 then
  become_of(record, job, 'retrying', '@due_at', int(now + wait))
  redis.call('ZADD', KEYS[6], int(now + wait), id)
  return 1
end
become_of(record, job, 'queued', '@generation', int(tonumber(ARGV[3]) + 1))
if pend('RPUSH', line, KEYS[5], ARGV[10], ARGV[11], KEYS[7], tonumber(job.@cost) or 1, now) == 1 then
  redis.call('PUBLISH', ARGV[13], ARGV[12])
end
return 1
