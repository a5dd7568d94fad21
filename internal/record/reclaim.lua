-- reclaim.lua ends an attempt whose deadline has passed: its worker died during the call, or before it parked the job.
-- KEYS
--    1  record
--    2  open
--    3  due
--    4  new task
--    5  old task
--    6  active
--    7  lease
--    8  costs
--    9  counters
--   10  parked:unknown_outcome
--   11  parked:exhausted
--   12  rate
--   13  alive
--   14  retries
--   15  asking
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  generation
--    4  old task id
--    5  new task id
--    6  task message
--    7  "1": the gateway keeps idempotency keys
--    8  how long it keeps one (µs)
--    9  attempts allowed
--   10  gateway
--   11  wake channel
--   12  how long after a silence of Redis living workers have to end their attempts (µs)
--   13  until the first look-up (µs, 0 = none is configured)
-- returns what it did: none | done | queued | pending | unknown_outcome | exhausted
local record, id = KEYS[1], ARGV[2]
local now = now_us(ARGV[1])
local job = read(record, '@state', '@generation', '@deadline', '@reason', '@batch', '@money', '@first_call_at', '@first_call_back', '@cost',
  '@opened_at', '@priority', '@history', '@pieces', '@late_success', '@calls', '@replays', '@spent')
if job.@state ~= 'in_flight' or job.@generation ~= ARGV[3] then
  local again = tonumber(redis.call('ZSCORE', KEYS[2], id))
  if job.@state ~= 'in_flight' and again and again <= now then redis.call('ZREM', KEYS[2], id) end
  return 'none'
end
if (tonumber(job.@deadline) or 0) > now then
  redis.call('ZADD', KEYS[2], job.@deadline, id) -- the record is right
  return 'none'
end

-- A silence has just ended: no worker could record what a call came to, and this one may live.
local silence = string.match(redis.call('HGET', KEYS[13], 'gaps') or '', '-(%d+)$')
if silence and now < tonumber(silence) + tonumber(ARGV[12]) then return 'none' end

-- The dead worker's task goes too, once asynq's lease has run out. A living worker's task is left to it.
local lease = tonumber(redis.call('ZSCORE', KEYS[7], ARGV[4]))
if not lease or lease * 1000000 < now then
  redis.call('LREM', KEYS[6], 0, ARGV[4])
  redis.call('ZREM', KEYS[7], ARGV[4])
  redis.call('DEL', KEYS[5])
end
local sent = job.@opened_at -- if not, it was opened only to be parked
local ending = sent and int(now) .. ' 0 0 cut_off' or ''
end_attempt({record = record, open = KEYS[2], rate = KEYS[12]}, job, id, now, sent and 1 or 0, ending, 0)

if paid_before(record, KEYS[9], now, job) then return 'done' end
if sent then redis.call('HSET', record, '@may_have_charged', '1') end

local function park(reason, set, error)
  if tonumber(ARGV[13]) > 0 then
    ask_for(record, job, KEYS[15], id, now, ARGV[13], '@error', error)
    return 'pending'
  end
  local when = stamp(KEYS[9], now)
  become_of(record, job, 'parked', '@reason', reason, '@error', error, '@parked_at', int(when))
  redis.call('ZADD', set, int(when), id)
  return reason
end
if sent and not key_covers(KEYS[13], job, tonumber(job.@first_call_at) or 0, now, ARGV[7], ARGV[8]) then
  return park('unknown_outcome', KEYS[10], 'the worker died while the call was under way')
end
if sent and tonumber(redis.call('HGET', record, '@spent')) >= tonumber(ARGV[9]) then
  return park('exhausted', KEYS[11], 'the worker died while the call was under way, at the last attempt')
end
become_of(record, job, 'queued', '@generation', int(tonumber(job.@generation) + 1))
pend('RPUSH', line_of(record, job.@priority, (job.@history or '') .. ending, KEYS[3], KEYS[14]), KEYS[4], ARGV[5], ARGV[6], KEYS[8], tonumber(job.@cost) or 1, now)
redis.call('PUBLISH', ARGV[11], ARGV[10])
return 'queued'
