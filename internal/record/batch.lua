-- batch.lua: the books of a batch, and of the parked money. A fragment: local functions only. Every change of a job's state
-- goes through become() or books_join(), so the books change in the script that changes the record, and are exact after any crash.
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
local BOOKS_STAY = 3600000 -- ms

-- books_key returns the name of a key of the books of a record's gateway.
local books_key = shelf_key

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

-- moment_left records that a scheduled job leaves before its moment. moments (see schedule) also counts how many left: a place is given out once,
-- and both counts go with the last job.
local function moment_left(record)
  local at, moments = redis.call('HGET', record, '@not_before'), books_key(record, 'moments')
  local came = at and tonumber(redis.call('HGET', moments, at))
  if came and redis.call('HINCRBY', moments, at .. ':left', '1') >= came then redis.call('HDEL', moments, at, at .. ':left') end
end

-- A hash whose values all have at most 64 bytes takes half the memory (hash-max-listpack-value). So a payload of up to eight times
-- that is cut into pieces. A longer one stays whole: too little would be saved.
local PIECE_BYTES, PIECES = 64, 8

-- payload_bytes returns the length of a record's payload as it is stored (payload_put). pieces is its field of that name, or nil if it was not read.
local function payload_bytes(record, pieces)
  if pieces == nil then pieces = redis.call('HGET', record, '@pieces') end
  if not pieces then return redis.call('HSTRLEN', record, '@payload') end
  local n = tonumber(pieces)
  if not n or n < 1 or n > PIECES or n ~= math.floor(n) then return 0 end
  local last = redis.call('HSTRLEN', record, '@payload' .. int(n))
  return last > 0 and PIECE_BYTES * (n - 1) + last or 0
end

-- become_of changes the state of a job whose state, reason, batch and money are known (it reads pieces if that is nil), and the
-- fields that go with the state. It also sets the fields in job.set and deletes those in job.drop, and clears both lists.
local function become_of(record, job, state, ...)
  local fields, reason, set = {...}, job.@reason, job.set or {}
  local n = #set
  for i = 1, #fields do set[n + i] = fields[i] end
  if job.@state == 'scheduled' and state ~= 'queued' then moment_left(record) end -- due.lua queues it, and handles its moment itself
  local bytes = (job.@state == 'parked' or state == 'parked') and payload_bytes(record, job.@pieces) or 0
  redis.call('HSET', record, '@state', state, unpack(set))
  if job.drop then redis.call('HDEL', record, unpack(job.drop)) end
  job.set, job.drop = nil, nil
  feed_job(record, state) --fed
  shelf_move(record, job.@batch, job.@state, reason, state, fields)
  if not job.@batch and not job.@money and bytes == 0 then return end
  for i = 1, #fields, 2 do
    if fields[i] == '@reason' then reason = fields[i + 1] end
  end
  local from, to = books_place(job.@state, job.@reason), books_place(state, reason)
  if from ~= to then books_moved(record, job.@batch, job.@money, bytes, from, to) end
end

-- become does it for any other job.
local function become(record, state, ...)
  local v = redis.call('HMGET', record, '@state', '@reason', '@batch', '@money')
  become_of(record, {@state = v[1], @reason = v[2], @batch = v[3], @money = v[4]}, state, ...)
end

-- books_join notes a new job; batch and money are '' if it has none. books_joined writes all that were noted, so that a chunk costs little more than
-- one job. joining has the batches by name; '' are parked jobs without one.
local joining, joining_order, joining_record = {}, {}, nil

local function books_joining(record, batch)
  local b = {key = books_key(record, 'batch:' .. batch), list = books_key(record, 'batch-ids:' .. batch),
    names = books_key(record, 'batches'), jobs = 0, ids = {}, places = {}}
  joining[batch], joining_record = b, record
  joining_order[#joining_order + 1] = batch
  return b
end

-- books_joining_sum returns the sum of one place in a table of sums.
local function books_joining_sum(sums, place)
  local sum = sums[place] or books_none()
  sums[place] = sum
  return sum
end

local function books_join(record, id, place, batch, money, bytes)
  if money == '' then money = nil end
  if batch == '' and string.sub(place, 1, 7) ~= 'parked:' then return end
  local b = joining[batch] or books_joining(record, batch)
  b.jobs = b.jobs + 1
  b.ids[b.jobs] = id
  books_sum(books_joining_sum(b.places, place), money, bytes)
end

-- books_join_all is books_join for all jobs of a chunk, if they are in one place. sums is their sum: "bytes unread CURRENCY=m,M ...", which are the bytes of the payloads,
-- the number of amounts that can't be read, and the money by currency.
local function books_join_all(record, ids, place, batch, sums)
  if batch == '' and string.sub(place, 1, 7) ~= 'parked:' then return end
  local b, bytes, unread = books_joining(record, batch), string.match(sums, '^(%d+) (%d+)')
  local sum = books_joining_sum(b.places, place)
  b.jobs, b.ids, sum.jobs, sum.bytes, sum.unread = #ids, ids, #ids, tonumber(bytes), tonumber(unread)
  for currency, low, high in string.gmatch(sums, ' (%u*)=(-?%d+),(-?%d+)') do sum.low[currency], sum.high[currency] = tonumber(low), tonumber(high) end
end

local function books_joined(now)
  for _, batch in ipairs(joining_order) do
    local b = joining[batch]
    for place, sum in pairs(b.places) do books_parked(joining_record, place, sum, 1) end
    if batch ~= '' then
      redis.call('ZADD', b.names, 'NX', int(now), batch)
      for place, sum in pairs(b.places) do
        books_count(b.key, 'n:' .. place, sum.jobs)
        books_sums(b.key, place, sum, 1)
      end
      redis.call('HINCRBY', b.key, 'live', b.jobs)
      for i = 1, b.jobs, 1000 do redis.call('RPUSH', b.list, unpack(b.ids, i, math.min(i + 999, b.jobs))) end
      redis.call('PERSIST', b.key)
      redis.call('PERSIST', b.list)
    end
  end
end
