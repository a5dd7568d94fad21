-- accept.lua takes a chunk of new jobs through admission. Records, books and the queue change in one step.
-- An offer comes again if its answer was lost. The first one may even arrive last, out of a stalled connection. Whichever comes first is carried out, and the other gets its answer.
-- KEYS  The names of records and tasks are made here, with the same hash tag: each argument of a script costs Redis more than making such a text.
--    1  admission
--    2  pending
--    3  parked:rejected
--    4  counters
--    5  scheduled
--    6  costs
--    7  receipt (the number of the sequence's last offer, and its answer)
--    8  receipt of the sequence behind which the offer must come
--    9  the first job's record, so that this is a command on several keys. While a cluster's slot moves, the new node answers TRYAGAIN to such a command if it
--       lacks one of them. It takes a lone key that has not moved yet for a new one, and would accept the job twice
--   10  moments, only if a job has a time: Redis then refuses a user without rights to it before anything is written
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  park | wait | fail; where batches need an approval, also " SUMS VIA/NAME": up to which sums they need none (CURRENCY=SUM in minor units, a comma behind each), and who brings the jobs in
--    3  1: newcomers stay behind parked jobs, else 0; then " N CLASS …": the classes that pass, and how many jobs of each may wait that were never called. These go in whatever room there is
--    4  gateway
--    5  wake channel
--    6  batch of the jobs that name none ('' = none)
--    7  how many jobs
--    8  prefix of records
--    9  prefix of tasks
--   10  '' or "JOBS BYTES REASON …": how much may be parked for a new job to be parked, in jobs and in bytes of payload (0 = any), and the reasons that count
--   11  number of the offer
--   12  how long its answer is kept (ms)
--   13  number of the offer behind which it must come (0 = none)
--   14  when it is too late (µs, 0 = never)
--   15  where room is shared among flows, what share_open reads, else ''
--   16  the jobs' sum (books_join_all) if all ids are different, no job has traits and all money is simple; else ''
--   17  all jobs in one text (admit.go), of each: the lengths in bytes of what follows (1 byte for the id, 3 each for digest, money and traits, 4 for the payload, the highest first),
--         then id, digest, money (books.lua; '' = none), traits, payload
--         traits: '', or "COST AT EXPIRES ROUTE CLASS N LANE BATCH": AT (µs, 0 = now), EXPIRES (µs, 0 = never), N = bytes of LANE, behind a = where jobs name their lanes; the names may be empty
--   18… messages of the tasks (forms_load in record.lua), then the bucket's arguments
-- returns "RETRY RESET K LEFT1 … LEFTK DIGITS", behind ! or # if a job could only be parked, and too many jobs (!) or bytes (#) are: then nothing may go in behind it
--    RETRY   when the first job without room would find some (µs; 0 = unknown, -1 = never)
--    RESET   when the K limits have all of their units again (µs); LEFT: what each has left
--    DIGITS  of each job: 1 enqueued  2 parked  3 duplicate  4 same id, other payload  5 no room (wait, fail), or too many parked; behind one of these, each new job is 5
--            6 the id is an idempotency key that another job has used  7 a key that is read for it is of another type  8 same id and payload, but another route, or lane if jobs name theirs
-- or, with nothing changed, an error: LEAVING (the gateway is being renamed or forgotten), NEWER (its data is of a newer format), SUPERSEDED (the sequence has gone on: nobody waits
--    for the answer), LATE, EARLY (the offer before was not carried out yet), SHUT (nothing goes in behind it)
local ENQUEUED, PARKED, DUPLICATE, CONFLICT, FULL, KEY_TAKEN, DAMAGED, ELSEWHERE = '1', '2', '3', '4', '5', '6', '7', '8'
local NO_ROOM = 'no room at admission'
local offer, lifetime, after, till = unpack(ARGV, 11, 14)
local receipt, receipt_before = KEYS[7], KEYS[8]
do
  local last, answer = string.match(redis.call('GET', receipt) or '0 ', '^(%d+) (.*)$')
  if last == offer then return answer end
  if tonumber(last) > tonumber(offer) then return redis.error_reply('SUPERSEDED a later offer of this sequence has been answered') end
  if till ~= '0' and now_us(ARGV[1]) >= tonumber(till) then return redis.error_reply('LATE this offer was to be carried out by now') end
  if after ~= '0' then
    local carried, shut = string.match(redis.call('GET', receipt_before) or '0 ', '^(%d+) ([!#]?)')
    if tonumber(carried) < tonumber(after) then return redis.error_reply('EARLY the offer before this one was not carried out yet') end
    if shut ~= '' then return redis.error_reply('SHUT nothing goes in behind the offer before this one') end
  end
end

local now, in_order = now_us(ARGV[1]), string.sub(ARGV[3], 1, 1) == '1'
local mode, sums_free, sender = string.match(ARGV[2], '^(%a+) ?(%S*) ?(.*)$')
local refusal, format = barred(books_key(ARGV[8], 'alive'))
if not format then format = redis.call('HGET', KEYS[4], 'format') end -- no dispatcher has begun yet
if format and (tonumber(format) or 0) > FORMAT then refusal = redis.error_reply('NEWER ' .. format) end
if refusal then return refusal end
local bucket = bucket_load(KEYS[1], now, ARGV, forms_load(ARGV, 18))
-- Newcomers stay behind parked jobs, except those at the front that can never go in.
local function others_wait() return redis.call('ZCOUNT', KEYS[3], '(' .. (redis.call('HGET', KEYS[4], 'unfit') or '0'), '+inf') > 0 end
local flows = share_open(ARGV[15], ARGV[8], KEYS[2])
local whole = flows and redis.call('ZCARD', KEYS[3]) == (tonumber(redis.call('HGET', KEYS[4], 'flowed') or '') or 0) -- or what is parked has yet to be put into parts (reflow.lua)
local blocked = in_order and not whole and others_wait()
local idle = redis.call('LLEN', KEYS[2]) == 0
local accepted, retry, moment, since = 0, 0, int(now), int(now) .. '000'
local refused, last = false, nil -- with flows: whether a job found no room, and the flow of the last one that asked for some
local pushed = {} -- tasks for the queue, which gets all tasks of the chunk in one step
local classed = {} -- the same of each class but the usual one: the line, how many waited in it, and tasks
local jobs, call, argv, keys, unpack = tonumber(ARGV[7]), redis.call, ARGV, KEYS, unpack
local sub, alike, text = string.sub, ARGV[16], ARGV[17]
local tilde = string.find(text, '~', 1, true) ~= nil -- without one, no id can be an idempotency key

-- What is known of each job: its id, its record, its digest, and where in the text its money, its traits and its payload begin. Each ends where
-- the next one begins.
local ids, records, digests, money_at, traits_at, payload_at, over_at = {}, {}, {}, {}, {}, {}, {}
local record_prefix, task_prefix, place = ARGV[8], ARGV[9], 1
for i = 1, jobs do
  local id, d3, d2, d1, m3, m2, m1, t3, t2, t1, p4, p3, p2, p1 = string.byte(text, place, place + 13)
  place = place + 14
  ids[i] = sub(text, place, place + id - 1)
  records[i] = record_prefix .. ids[i]
  money_at[i] = place + id + (d3 * 256 + d2) * 256 + d1
  digests[i] = sub(text, place + id, money_at[i] - 1)
  traits_at[i] = money_at[i] + (m3 * 256 + m2) * 256 + m1
  payload_at[i] = traits_at[i] + (t3 * 256 + t2) * 256 + t1
  place = payload_at[i] + ((p4 * 256 + p3) * 256 + p2) * 256 + p1
  over_at[i] = place
end

-- What Redis has of the jobs is read before anything is written: if it can't be read, nothing is changed. In most chunks
-- no job is known, and one question for all of them says so.
local function none_known()
  for i = 1, jobs, 1000 do
    if call('EXISTS', unpack(records, i, math.min(i + 999, jobs))) > 0 then return false end
  end
  return true
end

-- ask asks for what belongs to one job or batch. If the key is of another type it returns nil, so that the other jobs go on.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    if string.sub(reply.err, 1, 9) == 'WRONGTYPE' then return nil end
    return redis.call(...) -- to fail
  end
  return reply
end

local known, route_of, lane_of, damaged, fresh = {}, {}, {}, {}, none_known()
if not fresh then
  for _, record in ipairs(records) do
    local is = ask('HMGET', record, '@digest', '@route', '@lane')
    known[record], route_of[record], lane_of[record], damaged[record] = is and is[1], is and is[2], is and is[3], is == nil
  end
end

-- traits returns what few jobs have: its cost, when it is due and when it expires (as text; nil = none), its batch, its route, its class, its lane, and whether it names that itself.
local usual_batch = ARGV[6]
local function traits(i)
  if traits_at[i] == payload_at[i] then return 1, nil, nil, usual_batch, '', '', '', false end
  local cost, due, expires, route, class, own, n, rest = string.match(sub(text, traits_at[i], payload_at[i] - 1), '^(%d+) (-?%d+) (-?%d+) (%S*) (%S*) (=?)(%d+) (.*)$')
  n = tonumber(n)
  return tonumber(cost), due ~= '0' and due or nil, expires ~= '0' and expires or nil, sub(rest, n + 2), route, class, sub(rest, 1, n), own == '='
end

-- newcomers calls note with the batch and the money of each job that is new.
local function newcomers(note)
  local seen = {}
  for i = 1, jobs do
    local record = records[i]
    if not known[record] and not damaged[record] and not seen[record] then
      seen[record] = true
      local _, _, _, of = traits(i)
      note(of, sub(text, money_at[i], traits_at[i] - 1))
    end
  end
end

-- awaits has, by batch, why it needs an approval once this chunk is in. Then nothing of the chunk goes into the queue, and no waiting job of the batch is called.
local awaits = sums_free ~= '' and approval_awaits(record_prefix, sums_free, newcomers, ask) or {}

local cost, due, expires, batch, route, class, lane -- of the job at hand
local rare = true -- whether it has traits, or is the first
local below = {} -- of jobs with money below nothing that come to a batch: the batch and the money, in turn; where batches need approvals

-- line_of_class returns what this chunk has of a class.
local function line_of_class()
  local line = classed[class]
  if not line then
    local key = first_line(record_prefix, class)
    line = {key = key, waiting = call('LLEN', key), tasks = {}}
    classed[class] = line
  end
  return line
end

-- passes reports whether the job goes in whatever room there is.
local most_of_class, passing = string.match(argv[3], '^%d (%d+)( .*)$')
local function passes()
  if class == '' or not passing or not string.find(passing .. ' ', ' ' .. class .. ' ', 1, true) then return false end
  local line = line_of_class()
  return line.waiting + #line.tasks < tonumber(most_of_class)
end

-- join_all notes jobs that are alike in the books: all together, if all are in one place.
local places, first_place, apart = {}, nil, false
local function join_all()
  if not first_place then return end
  if not apart and accepted == jobs then return books_join_all(records[1], ids, first_place, usual_batch, alike) end
  for i = 1, jobs do
    if places[i] then books_join(records[i], ids[i], places[i], usual_batch, sub(text, money_at[i], traits_at[i] - 1), over_at[i] - payload_at[i]) end
  end
end

-- One table serves the fields of all records, which saves making and growing one for each. Only its first places belong to the present record.
local fields = {'@state', '', '@generation', '1', '@digest', '', '@accepted_at', moment}

-- record_new writes the record of the present job, and its place in the books. fields has what goes with its state from the 9th place on, up to the n-th.
local function record_new(i, state, place, n)
  local record, money = records[i], sub(text, money_at[i], traits_at[i] - 1)
  fields[2], fields[6] = state, digests[i]
  if batch ~= '' then fields[n + 1], fields[n + 2], n = '@batch', batch, n + 2 end
  if rare then
    if cost ~= 1 then fields[n + 1], fields[n + 2], n = '@cost', int(cost), n + 2 end
    if due then fields[n + 1], fields[n + 2], n = '@not_before', due, n + 2 end
    if expires then fields[n + 1], fields[n + 2], n = '@expires_at', expires, n + 2 end
    if route ~= '' then fields[n + 1], fields[n + 2], n = '@route', route, n + 2 end
    if lane ~= '' then fields[n + 1], fields[n + 2], n = '@lane', lane, n + 2 end
    if class ~= '' then fields[n + 1], fields[n + 2], n = '@priority', class, n + 2 end
    route_of[record], lane_of[record] = route, lane
  end
  if money ~= '' then fields[n + 1], fields[n + 2], n = '@money', money, n + 2 end
  call('HSET', record, unpack(fields, 1, payload_put(fields, n, text, payload_at[i], over_at[i] - 1)))
  if alike == '' then
    known[record] = digests[i] -- it may come again
    books_join(record, ids[i], place, batch, money, over_at[i] - payload_at[i])
  else
    places[i], first_place = place, first_place or place
    apart = apart or place ~= first_place
  end
  if batch ~= '' and sums_free ~= '' and sub(money, 1, 1) == '-' then below[#below + 1], below[#below + 2] = batch, money end
  accepted = accepted + 1
end

local function enter(i)
  if due and tonumber(due) > now then
    record_new(i, 'scheduled', 'scheduled', 8)
    schedule(keys[5], books_key(records[i], 'moments'), due, ids[i], now)
    return
  end
  record_new(i, 'queued', 'queued', 8)
  local task_id = ids[i] .. '~1'
  task_new(task_prefix .. task_id, task_id, forms_message(task_id), keys[6], cost, since)
  local tasks = class == '' and pushed or line_of_class().tasks
  tasks[#tasks + 1] = task_id
  if flows then share_enter(share_flow(class, route, lane), true) end
end

local function push_to(line, tasks)
  for i = 1, #tasks, 1000 do call('LPUSH', line, unpack(tasks, i, math.min(i + 999, #tasks))) end
end

-- push_all reports whether a process must be woken.
local function push_all()
  push_to(keys[2], pushed)
  local woken = idle and #pushed > 0
  for _, line in pairs(classed) do
    push_to(line.key, line.tasks)
    woken = woken or line.waiting == 0 and #line.tasks > 0
  end
  return woken
end

-- Parked jobs go into their sets in one step for the whole chunk: shelves has by set score and id in turn, and how many of both.
local shelves, stamped = {}, nil
local function shelve(set, when, id)
  local members = shelves[set]
  if not members then
    members = {n = 0}
    shelves[set] = members
  end
  local n = members.n
  members[n + 1], members[n + 2], members.n = when, id, n + 2
end

local function shelve_all()
  if not stamped then return end
  redis.call('HSET', KEYS[4], 'stamp', int(stamped))
  for set, members in pairs(shelves) do redis.call('ZADD', set, unpack(members)) end
  if flows then share_shelved(now) end
end

local free, free_bytes = shelf_free(record_prefix, argv[10]) -- before anything is written

-- shut is what kept a newcomer from being parked, or nil. Jobs behind that one would overtake it, so they don't go in.
local shut

local function park(i, reason, set, error)
  local bytes = over_at[i] - payload_at[i]
  if free < 1 or free_bytes < bytes then
    shut, retry = free < 1 and '!' or '#', 0
    return FULL
  end
  free, free_bytes = free - 1, free_bytes - bytes
  stamped = stamped and stamped + 1 or stamp(keys[4], now)
  local record, id, when = records[i], ids[i], int(stamped)
  fields[9], fields[10], fields[11], fields[12], fields[13], fields[14] = '@reason', reason, '@error', error, '@parked_at', when
  record_new(i, 'parked', books_place('parked', reason), 14)
  feed_job(record, 'parked') --fed
  shelve(set, when, id)
  if batch ~= '' then shelve(shelf_batch(record, reason, batch), when, id) end
  return PARKED
end

-- stopped_batch is books_stopped with one look for a whole chunk. Its third result says that the batch's keys are not what they should be. The fourth is a table;
-- its field left says how many of the batch's first jobs are still to come, if the rest waits for them. Newcomers behind them wait.
local stopped = {}
local function stopped_batch(record, batch)
  if batch == '' then return nil end
  local known = stopped[batch]
  if not known then
    local whole = ask('HLEN', books_key(record, 'batch:' .. batch)) and ask('LLEN', books_key(record, 'batch-ids:' .. batch))
    known = {nil, nil, not whole}
    if whole then
      local error, reason, ahead, canary = books_stopped(record, batch)
      if not error and awaits[batch] then error, reason = books_awaits(awaits[batch]), 'awaiting_approval' end
      local left = ahead == '1' and math.max(tonumber(canary) - whole, 0) or 0
      local first = canary == '1' and 'first job is' or 'first ' .. (canary or '') .. ' jobs are'
      known = {error, reason, false, ahead and {left = left, error = 'its batch waits until its ' .. first .. ' done'}}
    end
    stopped[batch] = known
  end
  return known[1], known[2], known[3], known[4]
end

-- key_taken reports whether the id is another job's idempotency key: ID~2, of job ID. Two jobs with one key would be one payment. nil: it can't be known.
local function key_taken(record, id)
  if not string.find(id, '~', 1, true) then return false end
  local other, generation = string.match(record, '^(.+)~(%d+)$')
  if not other then return false end
  local last = ask('HGET', other, '@key_generation')
  if last == nil then return nil end
  return (tonumber(last) or 1) >= tonumber(generation) and tonumber(generation) > 1
end

-- takes reports whether a job goes in, and when there may be room for the first that does not.
local function takes()
  if not flows then
    if not blocked and bucket_take(bucket, cost) or passes() then return true end
    if not blocked then
      blocked = true
      retry = bucket_retry(bucket, cost)
    end
    return false
  end
  local f = share_flow(class, route, lane)
  last = f
  if f.behind == nil then f.behind = in_order and call('EXISTS', f.set) == 1 or blocked and not f.passes end
  if f.behind then return false end
  if share_take(f, bucket, cost) then return true end
  if not refused then
    refused = true
    retry = share_retry(f, bucket, cost)
  end
  return false
end

local asked, why, reason, hurt, ahead -- the batch that stopped_batch was last asked about, and its results
local function answer(i)
  local record = records[i]
  local digest = known[record]
  if digest == '-' then -- it was erased (erase.lua): only the money can tell whether this is another payment
    return (redis.call('HGET', record, '@money') or '') == sub(text, money_at[i], traits_at[i] - 1) and DUPLICATE or CONFLICT
  end
  if digest and digest ~= digests[i] then return CONFLICT end
  if digest then
    local _, _, _, _, route, _, lane, own = traits(i)
    return route == (route_of[record] or '') and (not own or lane == (lane_of[record] or '')) and DUPLICATE or ELSEWHERE
  end
  local taken = tilde and key_taken(record, ids[i])
  if taken then return KEY_TAKEN end
  if rare or traits_at[i] ~= payload_at[i] then
    cost, due, expires, batch, route, class, lane = traits(i)
    rare = traits_at[i] ~= payload_at[i]
  end
  if batch ~= asked then asked, why, reason, hurt, ahead = batch, stopped_batch(record, batch) end
  if hurt or taken == nil or damaged[record] then return DAMAGED end
  if shut then return FULL end
  if why then -- it waits for a resume or an approval, in any mode
    return park(i, reason, books_key(record, 'parked:' .. reason), why)
  end
  if ahead and ahead.left < 1 then return park(i, 'paused', books_key(record, 'parked:paused'), ahead.error) end
  if takes() then
    enter(i)
    if ahead then ahead.left = ahead.left - 1 end
    return ENQUEUED
  end
  if mode ~= 'park' then return FULL end
  local parked = park(i, 'rejected', keys[3], NO_ROOM)
  if flows and parked == PARKED then share_shelve(last, int(stamped), ids[i]) end
  if ahead and parked == PARKED then ahead.left = ahead.left - 1 end
  return parked
end

local answers = {}
for i = 1, jobs do answers[i] = answer(i) end
join_all()
local left, reset = bucket_remaining(bucket), bucket_reset(bucket)
if last then left = share_left(last, bucket, left) end
bucket_save(bucket)
local woken = push_all()
if flows then share_close() end
shelve_all()
if sums_free ~= '' then approval_joined(record_prefix, now, awaits, below, sender) end
books_joined(now)
if accepted > 0 then
  call('HINCRBY', keys[4], 'accepted', accepted)
  if not format then call('HSETNX', keys[4], 'format', FORMAT) end
end
if woken then call('PUBLISH', argv[5], argv[4]) end
local reply = {int(retry), int(reset), #left}
for i = 1, #left do reply[3 + i] = int(left[i]) end
reply[#reply + 1] = table.concat(answers)
local told = (shut or '') .. table.concat(reply, ' ')
redis.call('SET', receipt, offer .. ' ' .. told, 'PX', lifetime)
return told
