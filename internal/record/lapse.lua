-- lapse.lua parks jobs that wait in the queue and have expired, before they are pulled: a slot is not for them. They are looked for near the heads of the lines in which a job waited that was
-- found expired.
-- So are jobs of before a confirmed restore that may have been called since, and have no key that covers another call: they are parked as unknown_outcome, or the gateway is asked about
-- them if look-ups are configured. Any other job that may have been charged stays: open.lua says what becomes of it. The tasks stay, too: papers.lua removes them, and a worker that
-- pulls one before that drops it.
-- KEYS
--    1  pending
--    2  counters
--    3  parked:expired
--    4  alive
--    5  a key that is never written: with it, a cluster refuses the script while the slot moves
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id of the job that was pulled in vain
--    3  prefix of records
--    4  how many tasks of each line are looked at
--    5  the error that expired jobs get
--    6  version of the data ('' = not watched)
--    7  the least sign of life it must have (µs)
--    8  marks of confirmed restores (alive.lua)
--    9  "1": the gateway keeps idempotency keys
--   10  how long it keeps one (µs, 0 = one covers no second call)
--   11  the error of jobs that may have been called
--   12  until the first look-up (µs, 0 = none is configured)
-- returns {how many lines have tasks of such jobs, or stale ones, then of each its key and how many tasks it has, then how many jobs have expired, their ids, and those of the others};
--    all of it as texts
local now, prefix, most = now_us(ARGV[1]), ARGV[3], tonumber(ARGV[4])
if barred(KEYS[4]) or ARGV[6] ~= '' and not alive_fits(KEYS[4], ARGV[6], ARGV[7]) then return {'0', '0'} end
local found = redis.call('HMGET', prefix .. ARGV[2], '@priority', '@route', '@lane')
local class, route, lane = found[1] or '', found[2] or '', found[3] or ''
local lines = {class == '' and KEYS[1] or books_key(prefix, 'first:' .. class)}
for line in string.gmatch('due pending retries replays', '%l+') do
  lines[#lines + 1] = books_key(prefix, line)
  lines[#lines + 1] = books_key(prefix, 'flow:' .. class .. ':' .. route .. ':' .. line .. ':' .. lane)
end
local out, ids, unsure = {}, {}, {}

-- uncovered returns from when on a job may have been called, by a call that these books don't know of, and whether no key covers another call (open.lua).
local function uncovered(job)
  local from, first, rekeyed = restored(job, ARGV[8], tonumber(job.@first_call_at) or 0)
  if not from then return nil end
  return first, rekeyed or tonumber(ARGV[10]) == 0 or not key_covers(KEYS[4], job, first, now, ARGV[9], ARGV[10])
end

-- doubtful takes a job out that may have been called.
local function doubtful(record, job, id, first)
  job.set = {'@may_have_charged', '1', '@first_call_at', int(first)}
  if tonumber(ARGV[12]) > 0 then
    ask_for(record, job, books_key(prefix, 'asking'), id, now, ARGV[12], '@error', ARGV[11])
  else
    local when = int(stamp(KEYS[2], now))
    become_of(record, job, 'parked', '@reason', 'unknown_outcome', '@error', ARGV[11], '@parked_at', when)
    redis.call('ZADD', books_key(prefix, 'parked:unknown_outcome'), when, id)
  end
  unsure[#unsure + 1] = id
  return true
end

-- lapse takes the job of a task out if it has expired or may have been called, and reports whether the task is stale then: it may be so already.
local function lapse(task)
  local id, generation = string.match(task, '^(.+)~(%d+)$')
  if not id then return false end
  local record = prefix .. id
  local job = read(record, '@state', '@generation', '@expires_at', '@may_have_charged', '@reason', '@batch', '@money', '@pieces', '@accepted_at', '@looked_up_at',
    '@late_success', '@failures', '@spent', '@first_call_at', '@first_call_back', '@edited_at')
  if not job.@state then return false end
  if job.@generation ~= generation or job.@state ~= 'queued' and job.@state ~= 'in_flight' then return true end
  if job.@state ~= 'queued' or job.@late_success then return false end
  local first, doubt = uncovered(job)
  if first and not doubt or not first and (job.@may_have_charged or now < (tonumber(job.@expires_at or '') or math.huge)) then return false end
  if job.@failures then outage_forgive(record, books_key(prefix, 'hold'), job.@failures, tonumber(job.@spent or '') or 0) end
  job.drop = {'@due_at', '@despite_cancel', '@counted'}
  if first then return doubtful(record, job, id, first) end
  local when = int(stamp(KEYS[2], now))
  become_of(record, job, 'parked', '@reason', 'expired', '@error', ARGV[5], '@parked_at', when)
  redis.call('ZADD', KEYS[3], when, id)
  ids[#ids + 1] = id
  return true
end

books_gather() -- the books change once for all of them
for _, line in ipairs(lines) do
  local tasks, any = redis.call('LRANGE', line, int(-most), '-1'), false
  for i = #tasks, 1, -1 do
    local ran, stale = pcall(lapse, tasks[i]) -- open.lua finds a record that is damaged: here it must not keep the books of the others from being written
    any = ran and stale or any
  end
  if any then out[#out + 1], out[#out + 2] = line, int(redis.call('LLEN', line)) end
end
books_gathered()
table.insert(out, 1, int(#out / 2))
out[#out + 1] = int(#ids)
for _, id in ipairs(ids) do out[#out + 1] = id end
for _, id in ipairs(unsure) do out[#out + 1] = id end
return out
