-- books.lua: where the jobs of a gateway are: the books of its batches, the sums of its parked money, and the sets of its parked jobs. A fragment: local functions only.
-- Every change of a job's state goes through become() or books_join(), so the books change in the script that changes the record, and are exact after any crash.
-- Fields of spillway:{gateway}:batch:<name>; PLACE is a state, or parked:<reason>:
--   n:PLACE jobs there   u:PLACE those of them whose amount can't be read
--   m:PLACE:CURRENCY  M:PLACE:CURRENCY their money in minor units: m + M * 10^9, so that neither overflows
--   live jobs that are neither done nor discarded
--   paused or cancelled, why, who  since when the batch is (µs), why, and by whom; only one of them at a time
--   and those of batches that stop themselves (below) and of approval.lua
-- spillway:{gateway}:money has u, m and M for the parked jobs of all batches and of no batch. spillway:{gateway}:counters has b:PLACE, the bytes of
-- their payloads as they are stored: that key is among the KEYS of scripts, which may therefore write it while a cluster's slot moves.
-- spillway:{gateway}:batch-ids:<name> has the ids in the order of acceptance, spillway:{gateway}:batches the names by the first.
-- A batch's keys outlive the last record of its jobs by BOOKS_STAY.
--
-- What follows when a job is parked, besides its entry in the set of its reason:
-- parked:<reason>:b:<batch> has the jobs of parked:<reason> that are of one batch, with the same scores.
-- If a gateway has lanes, routes with limits, or classes, counters has the field flowed, and the jobs parked as rejected are in the parts of their flows too (share.lua):
--      parked:rejected:f:CLASS:ROUTE:LANE  those of one flow, with the same scores
--      parked:rejected:unfit  those that cost more than admission can ever grant; they are in no flow's part
--      parked:flows  the flows that have such a part, or had: the next one to go in first (shelf_turn)
--      flowed        how many jobs are in all of these parts: as many as are parked as rejected, unless jobs are missing there
-- again has the jobs parked as exhausted that may go in by themselves, with the time (µs) before which they don't. That time grows with
-- self_replays, which counts how often that happened. After AGAIN_MOST times, only a person can readmit the job.
local AGAIN_FIRST, AGAIN_MOST = 60000000, 5
local BOOKS_STAY = 3600000 -- ms

-- shelf_key names a key of a record's gateway, which is the same for everything that a script touches until shelf_begin.
local shelf_prefix
local function shelf_key(record, rest)
  shelf_prefix = shelf_prefix or string.match(record, '^spillway:{[^}]*}:')
  return shelf_prefix .. rest
end

-- books_key names one of the books of a record's gateway.
local books_key = shelf_key

-- shelf_id returns the id in a record's key.
local shelf_job
local function shelf_id(record)
  shelf_job = shelf_job or #shelf_key(record, 'job:') + 1
  return string.sub(record, shelf_job)
end

-- shelf_remove removes an id from a set. Between shelf_gather and shelf_gathered it only notes it, so that a script that removes many jobs changes
-- each set once.
local removed -- between shelf_gather and shelf_gathered: the ids to remove from each set
local function shelf_remove(set, id)
  if not removed then return redis.call('ZREM', set, id) end
  local ids = removed[set] or {}
  removed[set] = ids
  ids[#ids + 1] = id
end

local function shelf_gather() removed = {} end

-- shelf_flow_set returns the part of parked:rejected that is of one flow.
local function shelf_flow_set(record, flow) return shelf_key(record, 'parked:rejected:f:' .. flow) end

-- shelf_count counts jobs that came into the parts of flows.
local function shelf_count(record, n)
  if n ~= 0 then redis.call('HINCRBY', shelf_key(record, 'counters'), 'flowed', n) end
end

-- shelf_flowed reports whether the gateway has such parts. It looks once in a script.
local flowed
local function shelf_flowed(record)
  if flowed == nil then flowed = redis.call('HGET', shelf_key(record, 'counters'), 'flowed') and true or false end
  return flowed
end

-- shelf_flow returns the flow of a job.
local function shelf_flow(record)
  local v = redis.call('HMGET', record, '@priority', '@route', '@lane')
  return (v[1] or '') .. ':' .. (v[2] or '') .. ':' .. (v[3] or '')
end

-- shelf_turn returns the score of a flow in parked:flows. The flow with the fewest jobs in the queue goes first; among equal ones, the one that was fed longest ago (µs). Flows
-- that pass go before all others.
local SHELF_TURN, SHELF_TURNS, SHELF_EPOCH = 68719476736, 65535, 157783680000 -- 2^36 times 10 ms, the most jobs that count, and 2020 in 10 ms
local function shelf_turn(queued, passes, fed)
  local since = math.min(math.max(math.floor(fed / 10000) - SHELF_EPOCH, 0), SHELF_TURN - 1)
  return string.format('%.0f', (math.min(queued, SHELF_TURNS) - (passes and SHELF_TURNS + 1 or 0)) * SHELF_TURN + since)
end

-- shelf_drop removes ids from a flow's part, or from those that never fit.
local function shelf_drop(record, flow, ids)
  local n = 0
  for i = 1, #ids, 1000 do
    local some = {unpack(ids, i, math.min(i + 999, #ids))}
    local gone = redis.call('ZREM', shelf_flow_set(record, flow), unpack(some))
    if gone < #some then gone = gone + redis.call('ZREM', shelf_key(record, 'parked:rejected:unfit'), unpack(some)) end
    n = n + gone
  end
  shelf_count(record, -n)
end

-- shelf_unflow removes a job from its flow's part; between shelf_gather and shelf_gathered, it does so at the end.
local unflowed
local function shelf_unflow(record, id)
  local flow = shelf_flow(record)
  if not removed then return shelf_drop(record, flow, {id}) end
  unflowed = unflowed or {record = record, flows = {}}
  local ids = unflowed.flows[flow] or {}
  unflowed.flows[flow] = ids
  ids[#ids + 1] = id
end

local function shelf_gathered()
  for set, ids in pairs(removed) do
    for i = 1, #ids, 1000 do redis.call('ZREM', set, unpack(ids, i, math.min(i + 999, #ids))) end
  end
  for flow, ids in pairs(unflowed and unflowed.flows or {}) do shelf_drop(unflowed.record, flow, ids) end
  removed, unflowed = nil, nil
end

-- shelf_batch returns the part of parked:<reason> that is of one batch. A name is made once in a script.
local shelf_batches = {}
local function shelf_batch(record, reason, batch)
  local of = shelf_batches[reason] or {}
  shelf_batches[reason] = of
  of[batch] = of[batch] or shelf_key(record, 'parked:' .. reason .. ':b:' .. batch)
  return of[batch]
end

-- shelf_free returns how many more jobs may be parked, and how many more bytes of payload. most says how many of each may be, of these reasons: "JOBS BYTES REASON …" (0 = any
-- number, '' = any of both).
local function shelf_free(record, most)
  local jobs, bytes = string.match(most, '^(%d+) (%d+)')
  if not jobs then return math.huge, math.huge end
  local fields, parked, stored = {}, 0, 0
  for reason in string.gmatch(most, ' (%l%S*)') do
    fields[#fields + 1] = 'b:parked:' .. reason
    parked = parked + redis.call('ZCARD', shelf_key(record, 'parked:' .. reason))
  end
  for _, n in ipairs(redis.call('HMGET', shelf_key(record, 'counters'), unpack(fields))) do stored = stored + (tonumber(n or '') or 0) end
  return jobs == '0' and math.huge or tonumber(jobs) - parked, bytes == '0' and math.huge or tonumber(bytes) - stored
end

-- shelf_begin forgets the gateway: what follows belongs to another one.
local function shelf_begin() shelf_prefix, shelf_job, shelf_batches, removed, flowed, unflowed = nil, nil, {}, nil, nil, nil end

-- shelf_put records that a job is parked for a reason, since when (µs).
local function shelf_put(record, reason, batch, when)
  local id = shelf_id(record)
  if batch and batch ~= '' then redis.call('ZADD', shelf_batch(record, reason, batch), when, id) end
  if reason == 'rejected' and shelf_flowed(record) then
    local flow = shelf_flow(record)
    shelf_count(record, redis.call('ZADD', shelf_flow_set(record, flow), when, id))
    redis.call('ZADD', shelf_key(record, 'parked:flows'), 'NX', shelf_turn(0, false, tonumber(when)), flow)
  end
  if reason ~= 'exhausted' then return end
  local times = tonumber(redis.call('HGET', record, '@self_replays')) or 0
  if times >= AGAIN_MOST then return end
  redis.call('ZADD', shelf_key(record, 'again'), string.format('%.0f', tonumber(when) + AGAIN_FIRST * 2 ^ times), id)
end

-- shelf_take records that it is no longer parked.
local function shelf_take(record, reason, batch)
  local id = shelf_id(record)
  if batch and batch ~= '' then shelf_remove(shelf_batch(record, reason, batch), id) end
  if reason == 'exhausted' then shelf_remove(shelf_key(record, 'again'), id) end
  if reason == 'rejected' and shelf_flowed(record) then shelf_unflow(record, id) end
end

-- shelf_move follows a job from one state to another; fields are what its record gets with the new one.
local function shelf_move(record, batch, from, from_reason, to, fields)
  if from == 'parked' then shelf_take(record, from_reason or '', batch) end
  if to ~= 'parked' then return end
  local reason, when = from_reason, nil
  for i = 1, #fields, 2 do
    if fields[i] == '@reason' then reason = fields[i + 1] elseif fields[i] == '@parked_at' then when = fields[i + 1] end
  end
  if when then shelf_put(record, reason, batch, when) end
end

local function books_place(state, reason)
  if state == 'parked' then return 'parked:' .. (reason or '') end
  return state
end

local function books_over(state) return state == 'done' or state == 'discarded' end

-- books_parts splits a job's money into currency, minor units below 10^9, and units of 10^9; it returns nil if the amount can't be read.
local function books_parts(money)
  local digits, currency = string.match(money, '^(-?%d+) (.*)$')
  if not digits then return nil end
  if #digits <= 9 then return currency, tonumber(digits), 0 end
  local sign = string.sub(digits, 1, 1) == '-' and -1 or 1
  return currency, sign * tonumber(string.sub(digits, -9)), tonumber(string.sub(digits, 1, -10)) or 0 -- it may be only a sign
end

-- books_count adds to a field of the books.
local function books_count(key, field, n)
  if n ~= 0 then redis.call('HINCRBY', key, field, int(n)) end -- it may be -0, which Redis does not accept as a number
end

-- books_add adds to the sum of one currency in one place.
local function books_add(key, place, currency, low, high)
  local field = place .. ':' .. currency
  books_count(key, 'm:' .. field, low)
  if high ~= 0 then books_count(key, 'M:' .. field, high) end
end

-- books_money adds a job's money to a place (way 1) or subtracts it (way -1).
local function books_money(key, place, money, way)
  local currency, low, high = books_parts(money)
  if currency then
    books_add(key, place, currency, way * low, way * high)
  else
    books_count(key, 'u:' .. place, way)
  end
end

-- books_none returns the sum of no jobs.
local function books_none() return {jobs = 0, unread = 0, bytes = 0, low = {}, high = {}} end

-- books_sum adds a job with this many bytes of payload to a sum of jobs; money is nil if it has none.
local function books_sum(sum, money, bytes)
  sum.jobs = sum.jobs + 1
  sum.bytes = sum.bytes + bytes
  if not money then return end
  local currency, low, high = books_parts(money)
  if not currency then
    sum.unread = sum.unread + 1
    return
  end
  sum.low[currency] = (sum.low[currency] or 0) + low
  if high ~= 0 then sum.high[currency] = (sum.high[currency] or 0) + high end
end

-- books_sums adds a sum's money to a place (way 1) or subtracts it (way -1).
local function books_sums(key, place, sum, way)
  books_count(key, 'u:' .. place, way * sum.unread)
  for currency, low in pairs(sum.low) do books_add(key, place, currency, way * low, way * (sum.high[currency] or 0)) end
end

-- books_parked adds a sum to a place of parked jobs (way 1) or subtracts it (way -1). It ignores other places.
local function books_parked(record, place, sum, way)
  if string.sub(place, 1, 7) ~= 'parked:' then return end
  books_sums(books_key(record, 'money'), place, sum, way)
  books_count(books_key(record, 'counters'), 'b:' .. place, way * sum.bytes)
end

-- Batches that stop themselves. What becomes of a batch's jobs is watched where its books change (books_move), so that no process must be alive to see it. Fields of the
-- batch's books:
--   answered, refused  how many of its calls were answered with yes or no, and how many with no, until the brake has seen enough of them
--   canary             how many of its first jobs go ahead (canary.lua)
--   ahead              1: the rest waits until they are done; 2: they are done, and shelve.lua readmits the rest; absent: no job waits
--   canary_done        how many of them are done or accepted
--   braked             since when it has been stopped by itself (µs)
-- spillway:{gateway}:braked has the batches that stopped themselves and were not resumed, paused or cancelled since, by the moment.
-- spillway:{gateway}:shelving says what a dispatcher must do with a batch's jobs: pause or release; await or approve (approval.lua); resume, if the operator's act was broken off (stop.lua).
local brake_setting, brake_calls, brake_least, brake_said, brake_accepted, brake_counted = '', 0, math.huge, '', false, false

-- brake_with sets how the brake works ("CALLS REFUSED": it stops a batch if this many of its first calls were refused; '' = never), the status of
-- the present answer (0 = none), and whether the gateway has accepted the payment by it: that is a yes, though the job is parked or pending. counted: the gateway had accepted a pending job before, and that was counted.
local function brake_with(setting, status, accepted, counted)
  if setting ~= brake_setting then
    local calls, least = string.match(setting, '^(%d+) (%d+)$')
    brake_setting, brake_calls, brake_least = setting, tonumber(calls) or 0, tonumber(least) or math.huge
  end
  brake_said = status > 0 and ': HTTP ' .. int(status) or ''
  brake_accepted, brake_counted = accepted, counted
end

-- brake_trail writes into the trail that the batch paused itself, and how many jobs this parks.
local function brake_trail(record, batch, key, now, why)
  local jobs = 0
  for _, n in ipairs(redis.call('HMGET', key, 'n:scheduled', 'n:queued', 'n:retrying', 'n:parked:rejected')) do jobs = jobs + (tonumber(n or '') or 0) end
  local floor = math.floor
  local s = floor(now / 1000000)
  local z = floor(s / 86400) + 719468 -- days since 1 March of the year 0
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local m = floor((5 * doy + 2) / 153) -- from March on
  local month = m < 10 and m + 3 or m - 9
  local at = string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', yoe + era * 400 + (month <= 2 and 1 or 0), month, doy - floor((153 * m + 2) / 5) + 1,
    floor(s / 3600) % 24, floor(s / 60) % 60, s % 60, now % 1000000)
  local named = string.find(batch, '["\\$`!]') and "'" .. string.gsub(batch, "'", "'\\''") .. "'" or '"' .. batch .. '"' -- quoted for a shell
  redis.call('RPUSH', shelf_key(record, 'trail'), '{"at":"' .. at .. '","who":"spillway","what":"batch pause","why":' .. cjson.encode(why) ..
    ',"filter":' .. cjson.encode('--batch ' .. named) .. ',"jobs":' .. int(jobs) .. ',"amount":{},"without_amount":0,"ended":"' .. at .. '"}')
end

-- brake_stop pauses a batch. A dispatcher parks the jobs that wait; until then open.lua keeps them from being called.
local function brake_stop(record, batch, key, why)
  local now = now_us('0')
  brake_trail(record, batch, key, now, why)
  redis.call('HDEL', key, 'ahead', 'answered', 'refused')
  redis.call('HSET', key, 'paused', int(now), 'why', why, 'who', 'spillway', 'braked', int(now))
  redis.call('ZADD', shelf_key(record, 'braked'), int(now), batch)
  redis.call('HSET', shelf_key(record, 'shelving'), batch, 'pause')
end

-- brake_ahead follows the jobs that go ahead. When all of them are done or accepted, the rest goes in; if one of them is discarded, or parked without being accepted, the rest does not.
local function brake_ahead(record, batch, key, jobs, from, to, canary)
  if to == 'done' and (brake_counted or string.sub(from, 1, 7) == 'parked:') then return end -- it was accepted, and was counted then
  if to == 'done' or brake_accepted then
    if redis.call('HINCRBY', key, 'canary_done', int(jobs)) < tonumber(canary) then return end
    redis.call('HSET', key, 'ahead', '2')
    redis.call('HSET', shelf_key(record, 'shelving'), batch, 'release')
    return
  end
  local reason = string.match(to, '^parked:(.*)$')
  local of = canary == '1' and 'its first job' or int(jobs) .. ' of its first ' .. canary .. ' jobs'
  brake_stop(record, batch, key, of .. (reason and ' is parked as ' .. reason or ' was discarded') .. brake_said)
end

-- brake_watch is called when jobs of a batch go from one place of its books to another.
local function brake_watch(record, batch, jobs, from, to)
  local decided = to == 'done' or to == 'discarded' or to == 'pending' and brake_accepted or
    string.sub(to, 1, 7) == 'parked:' and to ~= 'parked:paused' and to ~= 'parked:awaiting_approval' and to ~= 'parked:rejected'
  if not decided or from == 'parked:paused' or from == 'parked:awaiting_approval' then return end
  local key = shelf_key(record, 'batch:' .. batch)
  local v = redis.call('HMGET', key, 'paused', 'cancelled', 'ahead', 'canary', 'answered')
  if v[1] or v[2] then return end
  if v[3] == '1' then return brake_ahead(record, batch, key, jobs, from, to, v[4]) end
  local answered, yes = tonumber(v[5]) or 0, to == 'done' or brake_accepted
  if from ~= 'in_flight' and from ~= 'pending' or not yes and to ~= 'parked:refused' or answered >= brake_calls then return end
  if brake_counted and yes then return end
  if not brake_counted then answered = redis.call('HINCRBY', key, 'answered', int(jobs)) end
  if yes then return end
  local refused = redis.call('HINCRBY', key, 'refused', int(jobs))
  if refused < brake_least then return end
  brake_stop(record, batch, key, int(refused) .. ' of its first ' .. int(answered) .. ' calls were refused' .. brake_said)
end

-- books_move moves jobs from one place to another.
local function books_move(record, batch, sum, from, to)
  books_parked(record, from, sum, -1)
  books_parked(record, to, sum, 1)
  if not batch then return end
  local key = books_key(record, 'batch:' .. batch)
  books_count(key, 'n:' .. from, -sum.jobs)
  books_count(key, 'n:' .. to, sum.jobs)
  books_sums(key, from, sum, -1)
  books_sums(key, to, sum, 1)
  books_count(key, 'live', ((books_over(from) and 1 or 0) - (books_over(to) and 1 or 0)) * sum.jobs)
  if books_over(to) and not books_over(from) and redis.call('HGET', key, 'live') == '0' then feed_batch(record, batch) end --fed
  brake_watch(record, batch, sum.jobs, from, to)
end

-- books_moved moves one job. Between books_gather and books_gathered it only notes it, so that a script that moves many jobs the same way moves
-- them together.
local moving
local function books_moved(record, batch, money, bytes, from, to)
  if not moving then
    local sum = books_none()
    books_sum(sum, money, bytes)
    return books_move(record, batch, sum, from, to)
  end
  local ways = moving[from] or {}
  moving[from] = ways
  local batches = ways[to] or {}
  ways[to] = batches
  local name = batch or ''
  local sum = batches[name] or books_none()
  batches[name], sum.record = sum, record
  books_sum(sum, money, bytes)
end

local function books_gather() moving = {} end

local function books_begin() moving = nil end

local function books_gathered()
  for from, ways in pairs(moving) do
    for to, batches in pairs(ways) do
      for name, sum in pairs(batches) do books_move(sum.record, name ~= '' and name or nil, sum, from, to) end
    end
  end
  moving = nil
end

-- books_awaits is the beginning of the error of jobs whose batch awaits an approval.
local function books_awaits(why) return 'its batch awaits an approval: ' .. (why or '') end

-- books_stopped returns the error and the reason (paused, cancelled or awaiting_approval) with which a job of this batch is parked, or nil if its batch goes on. despite: a person
-- readmitted the job after its batch was cancelled. The third result is ahead if newcomers wait until the first jobs are done, or are all in; the fourth is how many those are.
local function books_stopped(record, batch, despite)
  if not batch or batch == '' then return nil end
  local v = redis.call('HMGET', books_key(record, 'batch:' .. batch), 'paused', 'cancelled', 'why', 'ahead', 'canary', 'awaits', 'over')
  if v[2] and not despite then return 'its batch was cancelled: ' .. (v[3] or ''), 'cancelled' end
  if v[1] then return 'its batch is paused: ' .. (v[3] or ''), 'paused' end
  if v[6] then return books_awaits(v[7]), 'awaiting_approval' end
  return nil, nil, v[4], v[5]
end
