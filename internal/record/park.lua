-- park.lua ends an attempt in the dead-letter store. If look-ups are configured and the job may have been charged, the gateway is asked instead.
-- KEYS
--    1  record
--    2  open
--    3  rate
--    4  counters
--    5  parked:<reason>
--    6  hold
--    7  asking
--    8… those of redisdb.TaskEnd
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  generation
--    4  owner
--    5  "1": the attempt counts
--    6  history line ('' = nothing was written)
--    7  status (0 = none)
--    8  reason. paused, cancelled and awaiting_approval mean that its batch is so. The job is parked as what its batch is now: as rejected if it is none of them any more, and as
--       unknown_outcome if it is cancelled and an earlier call may have charged
--    9  error
--   10  doubt: "1": the call may have charged. "other": the same, and the key belongs to another job, so it does not count as sent. "no": neither it nor an earlier call with the key has
--       charged. "next": the same, and another try takes the next key. '' = nothing new
--   11  "1": the gateway answered, and did not fail
--   12  the brake of batches (books.lua)
--   13  the gateway's own reference, where it has accepted the payment ('' = none)
--   14  "1": it has accepted it
--   15  until the first look-up (µs, 0 = none is configured)
--   16… those of redisdb.TaskEnd
-- returns 1  parked, or done if an earlier call turned out to have succeeded, and the attempt's task is over
--         2  pending, and its task is over
--         0  the record has moved on
local record, id = KEYS[1], ARGV[2]
local now = now_us(ARGV[1])
local job, mine = attempt(record, ARGV[3], ARGV[4])
if not mine then return 0 end
end_attempt({record = record, open = KEYS[2], rate = KEYS[3]}, job, id, now, tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]))
task_end(KEYS, ARGV)
brake_with(ARGV[12], tonumber(ARGV[7]), ARGV[14] == '1')
if ARGV[11] == '1' then did_work(KEYS[6], job) end
if paid_before(record, KEYS[4], now, job) then return 1 end
local when, reason, set, error = stamp(KEYS[4], now), ARGV[8], KEYS[5], ARGV[9]
if reason == 'paused' or reason == 'cancelled' or reason == 'awaiting_approval' then
  local was = reason
  error, reason = books_stopped(record, job.@batch, job.@despite_cancel)
  if not reason then -- its batch was resumed or approved meanwhile
    reason, error = 'rejected', was == 'awaiting_approval' and 'its batch was approved' or 'its batch was paused'
  elseif reason == 'cancelled' and (job.@may_have_charged or ARGV[10] == '1') then
    reason, error = 'unknown_outcome', error .. MAY_HAVE_CHARGED
  end
  set = books_key(record, 'parked:' .. reason)
end
if ARGV[13] ~= '' then redis.call('HSET', record, '@reference', ARGV[13]) end
local says, goes_on = ARGV[10], {paused = true, awaiting_approval = true, rejected = true, unreadable = true}
local unsure = says == '1' or says == 'other' or job.@may_have_charged and says ~= 'no' and says ~= 'next'
if tonumber(ARGV[15]) > 0 and in_doubt(reason, unsure) and not goes_on[reason] then
  if ARGV[6] ~= '' and ARGV[5] ~= '1' then job.set[#job.set + 1], job.set[#job.set + 2] = '@spent', int((tonumber(job.@spent) or 0) + 1) end -- otherwise it could be called for ever
  if ARGV[14] == '1' then job.set[#job.set + 1], job.set[#job.set + 2] = '@accepted_by_gateway', '1' end
  ask_for(record, job, KEYS[7], id, now, ARGV[15], '@error', error)
  doubt(record, says)
  redis.call('HSET', record, '@may_have_charged', '1')
  return 2
end
become_of(record, job, 'parked', '@reason', reason, '@error', error, '@parked_at', int(when))
doubt(record, ARGV[10])
redis.call('ZADD', set, int(when), id)
return 1
