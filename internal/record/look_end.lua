-- look_end.lua records the result of a look-up of a pending job, and what becomes of the job. Only the owner of the claim may do so: if its claim ran out, the next look-up finds the answer.
-- "No such payment" is believed only when two look-ups in a row say so and the second was made late enough after the end of the call. If Redis has forgotten calls since, one of them may
-- have been this job's. Then its end counts as the latest possible one, and earlier look-ups prove nothing.
-- KEYS
--    1  record
--    2  asking
--    3  counters
--    4  hold
--    5  retries
--    6  new task
--    7  costs
--    8  parked:refused
--    9  parked:exhausted
--   10  parked:unknown_outcome
--   11  looks
--   12  alive
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  generation
--    4  owner
--    5  done | refused | later | not_done | failed (it says nothing) | '' (it was not made)
--    6  until the next one: with failed and '' so long (µs); else as the schedule has it (µs, -1 = it was the last one)
--    7  the least time between two of them (µs)
--    8  when this one was claimed (µs)
--    9  not_done is believed so long after the call ended (µs)
--   10  what it saw
--   11  status
--   12  the gateway's reference ('' = none)
--   13  history line ('' = none)
--   14  dedupe (ms)
--   15  the brake of batches (books.lua)
--   16  attempts allowed
--   17  "1": the gateway keeps idempotency keys
--   18  how long it keeps one (µs)
--   19  digest of what a call is made of now ('' = not watched)
--   20  new task id
--   21  new task message
--   22  gateway
--   23  wake channel
--   24  for how long no look-up of the gateway is made (µs, 0 = they go on)
-- returns gone (it is not this owner's any more: nothing was written) | pending | done | queued | refused | exhausted | unknown_outcome
local record, id, verdict = KEYS[1], ARGV[2], ARGV[5]
local now = now_us(ARGV[1])
local job = read_all(record)
if job.@state ~= 'pending' or job.@generation ~= ARGV[3] or job.@ask_owner ~= ARGV[4] then return 'gone' end
local made, absent = (tonumber(job.@asked) or 0) + 1, verdict == 'not_done' and (tonumber(job.@absent) or 0) + 1 or 0
local ended, claimed, least, seen = tonumber(job.@call_ended_at) or now, tonumber(ARGV[8]), tonumber(ARGV[7]), ARGV[10]
redis.call('ZREM', KEYS[2], id) -- first, because Redis lets a script that has begun to write continue, even if its memory is full
if ARGV[24] ~= '0' then redis.call('HSET', KEYS[11], 'until', int(now + tonumber(ARGV[24]))) end
brake_with(ARGV[15], tonumber(ARGV[11]), false, job.@accepted_by_gateway == '1')
job.set, job.drop = {}, {'@ask_owner'}
local function put(name, value) job.set[#job.set + 1], job.set[#job.set + 2] = name, value end
local function drop(...)
  for _, name in ipairs({...}) do job.drop[#job.drop + 1] = name end
end
local forgotten = math.max(alive_forgotten(redis.call('HGET', KEYS[12], 'marks') or '', ended) or 0, tonumber(redis.call('HGET', KEYS[4], 'lost') or '') or 0)
if forgotten > ended then
  ended, absent = forgotten, claimed >= forgotten and math.min(absent, 1) or 0
  put('@call_ended_at', int(ended))
  put('@absent', int(absent))
end
local function noted()
  if ARGV[13] == '' then return end
  put('@history', history_with(job.@history, ARGV[13]))
  put('@calls', int(calls_made(job)))
end

-- again makes the job wait for its next look-up.
local function again(wait)
  local at = int(now + math.max(wait, 1))
  put('@ask_at', at)
  redis.call('HSET', record, unpack(job.set))
  redis.call('HDEL', record, unpack(job.drop))
  redis.call('ZADD', KEYS[2], at, id)
  return 'pending'
end

local function park(reason, set, error)
  local when = stamp(KEYS[3], now)
  drop('@ask_at')
  become_of(record, job, 'parked', '@reason', reason, '@error', error, '@parked_at', int(when))
  redis.call('ZADD', set, int(when), id)
  return reason
end

-- used_up reports whether the last call under the key was answered, and the answer settled nothing although the key lived. The gateway has saved that answer, and the key
-- brings no other.
local function used_up()
  local status
  for line in string.gmatch(job.@history or '', '[^\n]+') do
    if not string.find(line, ' look_', 1, true) then status = string.match(line, '^%d+ %d+ (%d+) unknown$') end
  end
  return status ~= nil and status ~= '0'
end

-- key_lives reports whether the next call may carry the same key: the gateway takes it for the same call, even if this one arrives later.
local function key_lives()
  if used_up() then return false end
  return key_covers(KEYS[12], job, tonumber(job.@first_call_at) or 0, now, ARGV[17], ARGV[18]) and not (ARGV[19] ~= '' and job.@sent_digest and job.@sent_digest ~= ARGV[19])
end

-- goes_on continues a job that was not charged: it goes into the queue, or is parked if its attempts are used up.
local function goes_on()
  drop('@asked', '@absent', '@ask_failed', '@ask_failing', '@seen', '@call_ended_at', '@accepted_by_gateway', '@may_have_charged', '@reference')
  put('@looked_up_at', int(now))
  noted()
  local key = tonumber(job.@key_generation) or 1
  if not key_lives() then
    key = next_key(record, key)
    put('@key_generation', int(key))
    drop('@first_call_at')
  end
  put('@absent_key', int(key))
  local spent = tonumber(job.@spent) or 0
  if job.@failures then spent = outage_forgive(record, KEYS[4], job.@failures, spent) end
  if spent >= tonumber(ARGV[16]) then return park('exhausted', KEYS[9], job.@error or '') end
  drop('@ask_at')
  become_of(record, job, 'queued', '@generation', int(tonumber(job.@generation) + 1))
  if pend('LPUSH', KEYS[5], KEYS[6], ARGV[20], ARGV[21], KEYS[7], tonumber(job.@cost) or 1, now) == 1 then redis.call('PUBLISH', ARGV[23], ARGV[22]) end
  return 'queued'
end

if verdict == '' then return again(tonumber(ARGV[6])) end
if ARGV[12] ~= '' then put('@reference', ARGV[12]) end
if verdict == 'done' then
  noted()
  finish(record, KEYS[3], 'done', now, ARGV[14], job, job)
  return 'done'
end
put('@seen', seen)
if verdict == 'failed' then
  put('@ask_failed', int((tonumber(job.@ask_failed) or 0) + 1))
  if not job.@ask_failing then put('@ask_failing', int(now)) end
  return again(tonumber(ARGV[6]))
end
put('@asked', int(made))
put('@absent', int(absent))
drop('@ask_failed', '@ask_failing')
if verdict == 'refused' then
  drop('@may_have_charged', '@accepted_by_gateway')
  put('@status', ARGV[11])
  noted()
  return park('refused', KEYS[8], seen)
end
local next_in = tonumber(ARGV[6])
if absent > 0 then
  local from = ended + tonumber(ARGV[9])
  if absent > 1 and claimed >= from then return goes_on() end
  local believable = math.max(from - now, least)
  next_in = next_in < 0 and believable or math.min(next_in, believable)
end
if next_in >= 0 then return again(next_in) end
return park('unknown_outcome', KEYS[10], 'asked for it ' .. (made == 1 and 'once' or int(made) .. ' times') .. ', and its outcome is still unknown; last seen: ' .. seen)
