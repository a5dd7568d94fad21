-- withdraw.lua: a person takes waiting jobs out of the queue: they are parked, or parked and discarded in one step. A pending job is only parked, as unknown_outcome. The task
-- of a job that was queued stays: papers.lua removes it, and a worker that pulls it before that drops it.
-- KEYS
--    1  counters
--    2  scheduled
--    3  retrying
--    4  costs
--    5  parked:cancelled
--    6  parked:unknown_outcome
--    7  acts
--    8  asking
--    9… for each job: record
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  park | discard
--    3  the error that the jobs get
--    4  dedupe (ms; of a discard)
--    5  act's place in the trail ('' = none)
--    6  "1": also discard what may have been charged
--    7… for each job: id, generation
-- returns for each job: 1 taken  2 taken, and its task is in the queue or with a worker that has not begun its call  0 it no longer waits like this, or was to
--      be discarded and may have been charged since it was looked at
local now, answers, taken = now_us(ARGV[1]), {}, 0
local from = {scheduled = KEYS[2], retrying = KEYS[3], pending = KEYS[8]}

-- park parks a job for the reason that fits: an earlier call may have charged.
local function park(record, id, may_have_charged)
  local reason, set, error = 'cancelled', KEYS[5], ARGV[3]
  if may_have_charged then reason, set, error = 'unknown_outcome', KEYS[6], error .. MAY_HAVE_CHARGED end
  local when = int(stamp(KEYS[1], now))
  become(record, 'parked', '@reason', reason, '@error', error, '@parked_at', when)
  redis.call('HDEL', record, '@due_at', '@despite_cancel', '@ask_at', '@ask_owner')
  redis.call('ZADD', set, when, id)
  return set, error
end

-- discard ends a job that was just parked; its error stays, since that is what the person said.
local function discard(record, id, set, error)
  redis.call('ZREM', set, id)
  finish(record, KEYS[1], 'discarded', now, ARGV[4])
  redis.call('HSET', record, '@error', error)
end

for i = 9, #KEYS do
  local record, a, answer = KEYS[i], 2 * i - 11, 0
  local id = ARGV[a]
  local v = redis.call('HMGET', record, '@state', '@generation', '@may_have_charged')
  local queued, pending = v[1] == 'queued', v[1] == 'pending'
  local allowed = ARGV[2] == 'park' or not pending and (not v[3] or ARGV[6] == '1')
  if allowed and v[2] == ARGV[a + 1] and (queued or from[v[1]]) then
    if queued then redis.call('HDEL', KEYS[4], id .. '~' .. v[2]) else redis.call('ZREM', from[v[1]], id) end
    local set, error = park(record, id, v[3] or pending)
    if ARGV[2] == 'discard' then discard(record, id, set, error) end
    taken, answer = taken + 1, queued and 2 or 1
  end
  answers[#answers + 1] = answer
end
if taken > 0 and ARGV[5] ~= '' then redis.call('HINCRBY', KEYS[7], ARGV[5], taken) end
return answers
