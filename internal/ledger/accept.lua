-- accept.lua: a chunk of new jobs goes through admission; the record, the books and the queue change in one step.
-- KEYS 1 admission  2 pending  3 parked:rejected  4 counters  5 scheduled  6 costs, then the records of all jobs, then their tasks
-- ARGV 1 now (µs, 0 = Redis's)  2 mode: park | wait | fail  3 "1": newcomers stay behind parked jobs  4 gateway  5 wake channel
--      6 the batch of jobs that say nothing else ('' = none)  7… the bucket's arguments, then for each job seven and its payload:
--      id, task id, task message, digest, money (batch.lua; '' = none),
--      what few have: '' or "cost at expires batch" (at µs, 0 = now; expires µs, 0 = never; batch may be nothing),
--      how many pieces the payload is kept in (record.lua), 0 for whole, then the pieces, or the whole
-- returns {retry_us, reset_us, K, left1 … leftK, a1, a2, …}: 1 enqueued  2 parked  3 duplicate  4 same id, other payload  5 no room (wait, fail)
--      6 the id is an idempotency key that another job has used;
--      after the first 5 every new job is 5. retry_us: when the first of them would find room (0: not known, -1: never)
--      K limits have so many units of cost left each; reset_us: until they have all of them again
local ENQUEUED, PARKED, DUPLICATE, CONFLICT, FULL, KEY_TAKEN = 1, 2, 3, 4, 5, 6
local now, mode, in_order = now_us(ARGV[1]), ARGV[2], ARGV[3] == '1'
local bucket, at = bucket_load(KEYS[1], now, ARGV, 7)
local blocked = in_order and redis.call('EXISTS', KEYS[3]) == 1
local idle = redis.call('LLEN', KEYS[2]) == 0
local accepted, retry, answers, moment = 0, 0, {}, int(now)
local pushed = {} -- tasks for the queue, which gets them in one step for all of the chunk
local jobs, call = (#KEYS - 6) / 2, redis.call

-- What is known of the jobs is read before anything is written: where that can't be read nothing is changed. Most chunks
-- have no job that is known, and one question for all of them says so.
local function none_known()
  for i = 7, 6 + jobs, 1000 do
    if call('EXISTS', unpack(KEYS, i, math.min(i + 999, 6 + jobs))) > 0 then return false end
  end
  return true
end

local known = {}
if not none_known() then
  for i = 7, 6 + jobs do known[KEYS[i]] = call('HGET', KEYS[i], 'd') end
end

-- traits returns what few jobs have: its cost, when it is due and when it expires (as text), and its batch.
local function traits(text)
  if text == '' then return 1, '0', '0', ARGV[6] end
  local cost, due, expires, batch = string.match(text, '^(%d+) (-?%d+) (-?%d+) (.*)$')
  return tonumber(cost), due, expires, batch
end

local cost, due, expires, batch, pieces -- of the job at hand

-- One table serves the fields of all records, which spares making and growing one for each; so many of its places are the present one's.
local fields, filled = {'s', '', 'g', '1', 'd', '', 't', moment}, 8
local function put(name, value)
  fields[filled + 1], fields[filled + 2] = name, value
  filled = filled + 2
end

-- record_new writes the record of the job at hand. more are names and values in turn that go with its state.
local function record_new(record, a, state, reason, more)
  local money = ARGV[a + 4]
  fields[2], fields[6], filled = state, ARGV[a + 3], 8
  for i = 1, more and #more or 0, 2 do put(more[i], more[i + 1]) end
  if cost ~= 1 then put('c', int(cost)) end
  if due ~= '0' then put('at', due) end
  if expires ~= '0' then put('x', expires) end
  if batch ~= '' then put('b', batch) end
  if money ~= '' then put('m', money) end
  if pieces == 0 then put('p', ARGV[a + 7]) else put('pn', pieces) end
  for i = 1, pieces do put(PAYLOAD[2 + i], ARGV[a + 6 + i]) end
  call('HSET', record, unpack(fields, 1, filled))
  books_join(record, ARGV[a], books_place(state, reason), batch, money)
  known[record] = ARGV[a + 3]
  accepted = accepted + 1
end

local function enter(record, task, a)
  if due ~= '0' and tonumber(due) > now then
    record_new(record, a, 'scheduled')
    redis.call('ZADD', KEYS[5], due, ARGV[a])
    return
  end
  record_new(record, a, 'queued')
  task_new(task, ARGV[a + 1], ARGV[a + 2], KEYS[6], cost, moment)
  pushed[#pushed + 1] = ARGV[a + 1]
end

local function push_all()
  for i = 1, #pushed, 1000 do redis.call('LPUSH', KEYS[2], unpack(pushed, i, math.min(i + 999, #pushed))) end
end

-- What is parked goes into its sets in one step for all of the chunk: shelves is by set, score and id in turn.
local shelves, stamped = {}, nil
local function shelve(set, when, id)
  local members = shelves[set] or {}
  shelves[set] = members
  members[#members + 1] = when
  members[#members + 1] = id
end

local function shelve_all()
  if not stamped then return end
  redis.call('HSET', KEYS[4], 'stamp', int(stamped))
  for set, members in pairs(shelves) do redis.call('ZADD', set, unpack(members)) end
end

local function park(record, a, reason, set, error)
  stamped = stamped and stamped + 1 or stamp(KEYS[4], now)
  local when = int(stamped)
  record_new(record, a, 'parked', reason, {'r', reason, 'e', error, 'pa', when})
  shelve(set, when, ARGV[a])
  if batch ~= '' then shelve(shelf_batch(record, reason, batch), when, ARGV[a]) end
end

-- stopped_batch returns the error that jobs of a batch get, false if it is neither paused nor cancelled: one look for a chunk.
local stopped = {}
local function stopped_batch(record, batch)
  if stopped[batch] == nil then stopped[batch] = books_stopped(record, batch) or false end
  return stopped[batch]
end

-- key_taken says that the id is another job's idempotency key: ID~2, of job ID. Two jobs with one key would be one payment.
local function key_taken(record, id)
  if not string.find(id, '~', 1, true) then return false end
  local other, generation = string.match(record, '^(.+)~(%d+)$')
  if not other then return false end
  return (tonumber(redis.call('HGET', other, 'k')) or 1) >= tonumber(generation) and tonumber(generation) > 1
end

local function answer(record, task, a)
  local digest = known[record]
  if digest then return digest == ARGV[a + 3] and DUPLICATE or CONFLICT end
  if key_taken(record, ARGV[a]) then return KEY_TAKEN end
  cost, due, expires, batch = traits(ARGV[a + 5])
  local why = stopped_batch(record, batch)
  if why then -- it waits for resume, in whatever mode
    park(record, a, 'cancelled', books_key(record, 'parked:cancelled'), why)
    return PARKED
  end
  if not blocked and bucket_take(bucket, cost) then
    enter(record, task, a)
    return ENQUEUED
  end
  if not blocked then
    blocked = true
    retry = bucket_retry(bucket, cost)
  end
  if mode ~= 'park' then return FULL end
  park(record, a, 'rejected', KEYS[3], 'no room at admission')
  return PARKED
end

for i = 1, jobs do
  pieces = tonumber(ARGV[at + 6])
  answers[i] = answer(KEYS[6 + i], KEYS[6 + jobs + i], at)
  at = at + 7 + math.max(1, pieces)
end
local left, reset = bucket_remaining(bucket), bucket_reset(bucket)
bucket_save(bucket)
push_all()
shelve_all()
books_joined(now)
if accepted > 0 then redis.call('HINCRBY', KEYS[4], 'accepted', accepted) end
if idle and #pushed > 0 then redis.call('PUBLISH', ARGV[5], ARGV[4]) end
local reply = {retry, reset, #left}
for i = 1, #left do reply[3 + i] = left[i] end
local before = #reply
for i = 1, jobs do reply[before + i] = answers[i] end
return reply
