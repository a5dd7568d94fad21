-- due.lua moves jobs whose back-off or time has passed to the tail of a line of the queue, in the order in which they became due: after a back-off to the retries, jobs that were never
-- called to due.
-- A job whose attempts are used up is parked instead, so that it takes no slot; whether the last attempt met an outage is known by now. If look-ups are configured, the gateway is asked
-- about a job that may have been charged. A job that was put aside for want of its route or of the key of its payload, which is still missing, waits on: it would take a slot for nothing each
-- time.
-- KEYS
--    1  retrying or scheduled
--    2  retries or due
--    3  costs
--    4  hold
--    5  counters
--    6  parked:exhausted
--    7  asking
--    8… for each job: record, task
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  state they are in: retrying | scheduled
--    3  gateway
--    4  wake channel
--    5  attempts allowed
--    6  "1": the gateway keeps idempotency keys
--    7  how long it keeps one (µs)
--    8  until the first look-up (µs, 0 = none is configured)
--    9  the caller's routes, as open.lua has them, behind a blank ('' = not watched)
--   10  how the error of a job begins that was put aside for want of its route
--   11  how long such a job waits on (µs)
--   12  which payloads the caller can open, as seal.Box.Opens has them
--   13  how the error of a job begins that was put aside since its payload can't be opened
--   14… for each job, the first due first: id, generation, new task id, task message
-- returns {how many were moved, how many wait on for want of their route, how many for want of a key, id of a job that was parked, …}, or, with nothing changed, an error: LEAVING (the
--    gateway is being renamed or forgotten), NEWER (its data is of a newer format)
local refusal = barred(books_key(KEYS[1], 'alive'))
if refusal then return refusal end
local now, moved, out = now_us(ARGV[1]), 0, {0, 0, 0}
local idle = redis.call('LLEN', KEYS[2]) == 0

-- used_up reports whether a job has no attempt left and nothing else will become of it: open.lua knows of the other cases.
local function used_up(record, job)
  if not job.@failures or outage_forgive(record, KEYS[4], job.@failures, tonumber(job.@spent) or 0) < tonumber(ARGV[5]) then return false end
  local covers = not job.@may_have_charged or key_covers(books_key(record, 'alive'), job, tonumber(job.@first_call_at) or 0, now, ARGV[6], ARGV[7])
  return covers and not (job.@expires_at and now >= tonumber(job.@expires_at)) and not books_stopped(record, job.@batch)
end

local function unrouted(job)
  return job.@route and not string.find(ARGV[9], ' ' .. job.@route .. ' ', 1, true) and string.sub(job.@error or '', 1, #ARGV[10]) == ARGV[10]
end

-- unopened: a sealed payload begins with a mark of four bytes, the length of its key's id, the id, and four bytes that tell the key from others of that id.
local function unopened(record, job)
  if string.sub(job.@error or '', 1, #ARGV[13]) ~= ARGV[13] then return false end
  local stored = redis.call('HGET', record, '@payload') or redis.call('HGET', record, '@payload1') or ''
  local head = 'plain'
  if string.sub(stored, 1, 3) == '\0sp' then head = string.sub(stored, 1, 9 + (string.byte(stored, 5) or 0)) end
  return not string.find(ARGV[12], head, 1, true)
end

-- lacks returns the place in out of the count of jobs that lack what this one lacks at the caller, or nil.
local function lacks(record, job)
  if ARGV[9] == '' or job.@expires_at and now >= tonumber(job.@expires_at) then return nil end
  return unrouted(job) and 2 or unopened(record, job) and 3 or nil
end

local key, moments = 8, {}
for a = 14, #ARGV, 4 do
  local record, id = KEYS[key], ARGV[a]
  local job = read(record, '@state', '@generation', '@cost', '@failures', '@spent', '@first_call_at', '@first_call_back', '@may_have_charged', '@expires_at', '@batch',
    '@money', '@reason', '@not_before', '@priority', '@route', '@error')
  local due = tonumber(redis.call('ZSCORE', KEYS[1], id))
  if due and due <= now and job.@state == ARGV[2] and job.@generation == ARGV[a + 1] then
    redis.call('ZREM', KEYS[1], id)
    local over, till = used_up(record, job), nil
    local lacking = not over and lacks(record, job)
    if lacking then
      till = int(now + tonumber(ARGV[11]))
      redis.call('ZADD', KEYS[1], till, id)
      out[lacking] = out[lacking] + 1
    elseif over and job.@may_have_charged and tonumber(ARGV[8]) > 0 then
      ask_for(record, job, KEYS[7], id, now, ARGV[8])
      moved = moved + 1
    elseif over then
      local when = stamp(KEYS[5], now)
      become_of(record, job, 'parked', '@reason', 'exhausted', '@parked_at', int(when))
      redis.call('ZADD', KEYS[6], int(when), id)
      out[#out + 1] = id
    else
      become_of(record, job, 'queued', '@generation', int(tonumber(job.@generation) + 1))
      local line = ARGV[2] == 'scheduled' and first_line(record, job.@priority, KEYS[2]) or KEYS[2]
      idle = idle or line ~= KEYS[2]
      pend('LPUSH', line, KEYS[key + 1], ARGV[a + 2], ARGV[a + 3], KEYS[3], tonumber(job.@cost) or 1, now)
      moved = moved + 1
      if job.@not_before then moments[job.@not_before] = true end
    end
    if till then redis.call('HSET', record, '@due_at', till) else redis.call('HDEL', record, '@due_at') end
  elseif due and job.@state ~= ARGV[2] then
    redis.call('ZREM', KEYS[1], id) -- the record says otherwise, and the record is right
  end
  key = key + 2
end
for at in pairs(moments) do redis.call('HDEL', books_key(KEYS[1], 'moments'), at, at .. ':left') end -- no more jobs come for a moment that has passed
if idle and moved > 0 then redis.call('PUBLISH', ARGV[4], ARGV[3]) end
out[1] = moved
return out
