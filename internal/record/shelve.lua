-- shelve.lua: a stretch of a batch's jobs, in the order of the file, is parked as paused, as cancelled or as awaiting_approval. Or what a pause or a missing approval has parked goes in
-- again, behind all jobs that wait for room. The tasks of jobs that were queued stay: papers.lua removes them, and a worker that pulls one before that drops it.
-- A dispatcher does this for a batch that has stopped itself, or whose first jobs are done (pause and release, books.lua), and goes on with a resume that was broken off. A release lets newcomers in with its last stretch, so
-- that none of them overtakes those that wait.
-- A cancel parks jobs as unknown_outcome if an earlier call may have charged, or has the gateway asked about them if look-ups are configured. A pause leaves such jobs: once resumed, they continue with their key.
-- KEYS
--    1  the batch's ids
--    2  counters
--    3  scheduled
--    4  retrying
--    5  parked:rejected
--    6  parked:cancelled
--    7  acts
--    8  parked:unknown_outcome
--    9  parked:paused
--   10  asking
--   11  parked:awaiting_approval
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  batch
--    3  cancel | pause | await | resume | release | approve (a resume after which the first jobs go ahead as before)
--    4  the error that the jobs get
--    5  prefix of records
--    6  place of the first
--    7  how many
--    8  act's place in the trail ('' = none)
--    9  until the first look-up (µs, 0 = none is configured)
-- returns {how many of these places there are (-1: another of these was done to the batch since, so that this one is over), for each job that was changed its money ('' = none), after a ?
--    if it may have been charged: it is parked as unknown_outcome, or pending, …}, or an error, with nothing changed: LEAVING (the gateway is being renamed or forgotten), NEWER (its
--    data is of a newer format)
local now, batch, what = now_us(ARGV[1]), ARGV[2], ARGV[3]
local refusal = barred(books_key(ARGV[5], 'alive'))
if refusal then return refusal end
local books, shelving = books_key(ARGV[5], 'batch:' .. batch), books_key(ARGV[5], 'shelving')
local mark = redis.call('HMGET', books, 'paused', 'cancelled', 'ahead', 'awaits', 'canary')
local is = mark[2] and 'cancel' or mark[1] and 'pause' or mark[4] and 'await' or mark[3] == '2' and 'release' or 'resume'
if is ~= what and not (what == 'approve' and (is == 'release' or is == 'resume')) then
  if redis.call('HGET', shelving, batch) == what then
    if is == 'await' then redis.call('HSET', shelving, batch, is) else redis.call('HDEL', shelving, batch) end
  end
  return {'-1'}
end
local first = what == 'approve' and mark[3] == '1' and tonumber(mark[5]) -- how many jobs go ahead, while the rest waits for them
local released = what == 'release' or what == 'approve' and mark[3] == '2'
local ids = redis.call('LRANGE', KEYS[1], ARGV[6], int(tonumber(ARGV[6]) + tonumber(ARGV[7]) - 1))
local changed = {int(#ids)}

local function park(record, id, reason, set, more)
  local when = stamp(KEYS[2], now)
  become(record, 'parked', '@reason', reason, '@error', ARGV[4] .. (more or ''), '@parked_at', int(when))
  redis.call('HDEL', record, '@due_at', '@despite_cancel')
  redis.call('ZADD', set, int(when), id)
end

-- paused_set returns the set of a job that a pause or a missing approval has parked, or nil. Older versions parked it as cancelled on a pause, and the error tells
-- which it was.
local PAUSED_AS_CANCELLED = 'its batch is paused: '
local function paused_set(state, reason, error)
  if state ~= 'parked' then return nil end
  if reason == 'paused' then return KEYS[9] end
  if reason == 'awaiting_approval' then return KEYS[11] end
  return reason == 'cancelled' and string.sub(error or '', 1, #PAUSED_AS_CANCELLED) == PAUSED_AS_CANCELLED and KEYS[6] or nil
end

-- shelve returns what comes before a job's money in the result, or false if it was not changed.
local SURE, DOUBT = '', '?'
local function shelve(record, id, place)
  local v = redis.call('HMGET', record, '@state', '@reason', '@batch', '@error', '@despite_cancel', '@may_have_charged')
  if v[3] ~= batch then return false end
  if v[5] and what == 'cancel' then redis.call('HDEL', record, '@despite_cancel') end
  local paused = paused_set(v[1], v[2], v[4])
  if what == 'resume' or what == 'release' or what == 'approve' then
    if not paused or first and place >= first and v[2] == 'paused' then return false end
    redis.call('ZREM', paused, id)
    if first and place >= first then park(record, id, 'paused', KEYS[9]) else park(record, id, 'rejected', KEYS[5]) end
    return SURE
  end
  if what == 'pause' and v[2] == 'paused' or what == 'await' and v[2] == 'awaiting_approval' then return false end
  local from = ({scheduled = KEYS[3], retrying = KEYS[4]})[v[1]] or (v[1] == 'parked' and v[2] == 'rejected' and KEYS[5]) or paused
  if not from and v[1] ~= 'queued' then return false end
  if from then redis.call('ZREM', from, id) end
  if v[6] and what == 'cancel' and tonumber(ARGV[9]) > 0 then
    local job = read(record, '@state', '@reason', '@batch', '@money', '@pieces')
    job.drop = {'@due_at', '@despite_cancel', '@reason', '@parked_at'}
    ask_for(record, job, KEYS[10], id, now, ARGV[9], '@error', ARGV[4] .. MAY_HAVE_CHARGED)
    return DOUBT
  elseif v[6] and what == 'cancel' then
    park(record, id, 'unknown_outcome', KEYS[8], MAY_HAVE_CHARGED)
    return DOUBT
  end
  local reason, set = 'paused', KEYS[9]
  if what == 'cancel' then reason, set = 'cancelled', KEYS[6] elseif what == 'await' then reason, set = 'awaiting_approval', KEYS[11] end
  park(record, id, reason, set)
  return SURE
end

for i, id in ipairs(ids) do
  local record = ARGV[5] .. id
  local did = shelve(record, id, tonumber(ARGV[6]) + i - 1)
  if did then changed[#changed + 1] = did .. (redis.call('HGET', record, '@money') or '') end
end
if (released or what == 'approve' or what == 'resume') and #ids < tonumber(ARGV[7]) then
  if released then redis.call('HDEL', books, 'ahead') end
  redis.call('HDEL', shelving, batch)
end
if ARGV[8] ~= '' and #changed > 1 then redis.call('HINCRBY', KEYS[7], ARGV[8], #changed - 1) end
return changed
