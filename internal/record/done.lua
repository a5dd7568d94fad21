-- done.lua records that a call succeeded. A success is never forgotten. If it comes after its attempt was given up (a stall), the job is taken out of wherever it went meanwhile. If
-- another call of it is in flight, the success is recorded for the end of that call.
-- KEYS
--    1  record
--    2  open
--    3  rate
--    4  counters
--    5  retrying
--    6  scheduled
--    7  hold
--    8… those of redisdb.TaskEnd
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  generation
--    4  owner
--    5  status
--    6  history line
--    7  dedupe (ms)
--    8  when the job was accepted (µs): after the dedupe window an id may begin another life
--    9  the gateway's own reference ('' = none)
--   10  the brake of batches (books.lua)
--   11… those of redisdb.TaskEnd
-- returns 1  done now, and its task is over
--         2  done already, perhaps by this very attempt, whose answer was lost; its task is over
--         3  another attempt is in flight and will end as done
--         0  it is no longer this job
local record, id = KEYS[1], ARGV[2]
local now = now_us(ARGV[1])
local job, mine = attempt(record, ARGV[3], ARGV[4])
if not job.@state or job.@accepted_at ~= ARGV[8] then return 0 end
if job.@state == 'done' then
  task_end(KEYS, ARGV)
  return 2
end
if job.@state == 'in_flight' and not mine then
  history(record, ARGV[6])
  redis.call('HSET', record, '@late_success', ARGV[7])
  if ARGV[9] ~= '' then redis.call('HSET', record, '@reference', ARGV[9]) end
  return 3
end
if not mine then
  job.given_up = true
  if job.@erased_at then redis.call('HDEL', record, '@erased_at') end -- what comes now was not erased
  if job.@state == 'discarded' then redis.call('HINCRBY', KEYS[4], 'discarded', -1) end
  redis.call('ZREM', KEYS[5], id)
  redis.call('ZREM', KEYS[6], id)
  if job.@state == 'pending' then redis.call('ZREM', books_key(record, 'asking'), id) end
  if job.@state == 'parked' then redis.call('ZREM', books_key(record, books_place('parked', job.@reason)), id) end
end
end_attempt({record = record, open = KEYS[2], rate = KEYS[3]}, job, id, now, 0, ARGV[6], tonumber(ARGV[5]))
local asked, told = string.match(job.@history or '', '(%d+) %d+ (%d+) hold\n$') -- it was told to wait a while ago: that was not the job's own trouble
if told and told ~= '401' and told ~= '403' and now - tonumber(asked) < 30000000 then
  for i, of in ipairs(holds_of(KEYS[7], job)) do
    if i == 1 or redis.call('EXISTS', of) == 1 then redis.call('HSET', of, 'heeded', int(now)) end
  end
end
if ARGV[9] ~= '' then job.set[#job.set + 1], job.set[#job.set + 2] = '@reference', ARGV[9] end
brake_with(ARGV[10], 0, false, job.@accepted_by_gateway == '1')
did_work(KEYS[7], job)
finish(record, KEYS[4], 'done', now, ARGV[7], job, job)
task_end(KEYS, ARGV)
return 1
