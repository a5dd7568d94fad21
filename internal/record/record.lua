-- record.lua: the layout of a job's record, and what every change of state does to it. A fragment: local functions only, behind gather.lua.
-- A state is changed by become(), never by HSET alone.
-- Fields of spillway:{gateway}:job:<id>, all optional but s, g, d, t:
--   s state   g generation of the task   d digest of the payload   t accepted at (µs)
--   p payload; or, of one that is neither short nor long, pn the number of its pieces and p1, p2 … the pieces (payload_put)
--   c cost (absent: 1)   b batch   m money (batch.lua)   at not before (µs)   x expires (µs)
--   n attempts spent since it was last admitted   ca calls made since then (absent: see calls_made)   y replays
--   k key generation (absent: 1)   f first call with the present key (µs)
--   sd digest of what a request is made of but for the payload, at the present key's first call (job.SentDigest)
--   am a call with the present key may have charged ("1")   kn a person settled what earlier calls came to (µs)
--   o owner of the open attempt   od its deadline (µs)   oa opened at (µs; absent: only to park the job, nothing is sent)
--   due end of the back-off (µs)   r reason of parking   e error   pa parked at (µs)
--   paid a success that came while another call was under way: the dedupe window (ms) it asks for
--   ya how often it went in by itself after it was parked as exhausted (shelf.lua)
--   rc a person took it in again after its batch was cancelled ("1")
--   fl, fo, fq  failures, and the outages of the gateway: see outage.lua
--   ed when a person last gave the job another payload (µs); not before pa: it was not taken in since
--   by how a person last settled what its calls came to: "done" or "not_done", when (µs), and the act's place in the trail, which says who and why
--   ref the gateway's own reference for the payment   fin finished at (µs)   st last HTTP status   h history: one line a call, "at_us took_us status verdict"
local HISTORY_BYTES = 2000

local PAYLOAD = {'p', 'pn', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6', 'p7', 'p8'} -- every field that a payload may have

-- payload_put puts a payload, which stands in text between two places, behind the first n of fields, which are names and values in turn. It
-- returns how many there are then.
local sub, DIGITS = string.sub, {'1', '2', '3', '4', '5', '6', '7', '8'} -- Redis takes a long time to turn a number into text
local function payload_put(fields, n, text, from, to)
  local size = to - from + 1
  if size <= PIECE_BYTES or size > PIECE_BYTES * PIECES then
    fields[n + 1], fields[n + 2] = 'p', sub(text, from, to)
    return n + 2
  end
  local pieces = math.ceil(size / PIECE_BYTES)
  fields[n + 1], fields[n + 2] = 'pn', DIGITS[pieces]
  n = n + 2
  for i = 1, pieces do
    fields[n + 1], fields[n + 2] = PAYLOAD[2 + i], sub(text, from, math.min(from + PIECE_BYTES - 1, to))
    n, from = n + 2, from + PIECE_BYTES
  end
  return n
end

-- read returns fields of a record by their names; those that it has not are false.
local function read(record, ...)
  local names, values, job = {...}, redis.call('HMGET', record, ...), {}
  for i = 1, #names do job[names[i]] = values[i] end
  return job
end

-- read_all returns all fields of a record by their names.
local function read_all(record)
  local flat, job = redis.call('HGETALL', record), {}
  for i = 1, #flat, 2 do job[flat[i]] = flat[i + 1] end
  return job
end

-- payload_count is how many pieces a payload may have whose record says pn: all that there may be if that is no such number.
local function payload_count(pn)
  if not pn then return 0 end
  local n = tonumber(pn)
  return n and n >= 1 and n <= PIECES and n == math.floor(n) and n or PIECES
end

-- payload_pieces appends the pieces of a payload to a list; job has p, pn and the pieces.
local function payload_pieces(list, job)
  if not job.pn then
    list[#list + 1] = job.p or '{}'
    return list
  end
  for i = 1, payload_count(job.pn) do list[#list + 1] = job[PAYLOAD[2 + i]] or '' end
  return list
end

-- payload_damaged says that pn is not the number of the pieces that a record has.
local function payload_damaged(job)
  if job.pn and tonumber(job.pn) ~= payload_count(job.pn) then return true end
  for i = 1, payload_count(job.pn) do
    if not job[PAYLOAD[2 + i]] then return true end
  end
  return false
end

-- stamp returns a time of parking that no other parked job of the gateway has, so that order is exact.
local function stamp(counters, now)
  local last = tonumber(redis.call('HGET', counters, 'stamp')) or 0
  if now <= last then now = last + 1 end
  redis.call('HSET', counters, 'stamp', int(now))
  return now
end

-- history_with returns the history h (false: none so far) with one more line, without the oldest lines beyond HISTORY_BYTES.
local function history_with(h, line)
  h = (h or '') .. line .. '\n'
  while #h > HISTORY_BYTES do
    local cut = string.find(h, '\n', 1, true)
    h = string.sub(h, cut + 1)
  end
  return h
end

-- calls_made is how many calls a job has had since it was last admitted. Records did not count them before: without a replay all are in the history,
-- after one those are known that were spent.
local function calls_made(job)
  if job.ca or not job.h then return tonumber(job.ca) or 0 end
  if job.y then return tonumber(job.n) or 0 end
  local _, lines = string.gsub(job.h, '\n', '')
  return lines
end

-- history appends one line for a call.
local function history(record, line)
  if line ~= '' then redis.call('HSET', record, 'h', history_with(redis.call('HGET', record, 'h'), line)) end
end

-- called counts one call in the gateway's rate: a field for each 5 s, the last two minutes kept.
local function called(rate, now)
  local bucket = math.floor(now / 5000000)
  if not gather_once(rate) then return gather_book(rate, int(bucket)) end
  local kind = redis.call('TYPE', rate).ok
  if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', rate) end -- it is for show: rubbish in it keeps no outcome from being written down
  if redis.call('HINCRBY', rate, int(bucket), '1') > 1 then return end
  for _, field in ipairs(redis.call('HKEYS', rate)) do
    if tonumber(field) < bucket - 24 then redis.call('HDEL', rate, field) end
  end
end

-- task_new creates the queue's task for a generation of a job, pending since a moment (µs, as text). Its key is made of the job's id, so what is there of
-- another type is somebody else's rubbish, and goes.
local function task_new(task, task_id, msg, costs, cost, since)
  since = since .. '000'
  local put = redis.pcall('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', since)
  if type(put) == 'table' then
    if string.sub(put.err, 1, 9) == 'WRONGTYPE' then redis.call('DEL', task) end
    redis.call('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', since)
  end
  if cost > 1 then redis.call('HSET', costs, task_id, int(cost)) end
end

-- pend creates the task and puts it into a line of the queue: at its head (the right end, which dequeue.lua pops) or at its tail.
local function pend(push, line, task, task_id, msg, costs, cost, now)
  task_new(task, task_id, msg, costs, cost, int(now))
  return redis.call(push, line, task_id)
end

-- schedule lets a job wait for its moment, at (µs, as text). Jobs of one moment have scores that are 1 µs apart, in the order in which they came.
-- moments has how many came for each moment, until none of them waits for it (moment_left, due.lua), and goes some time after the last moment.
local function schedule(set, moments, at, id, now)
  local place = redis.call('HINCRBY', moments, at, '1') - 1
  if place == 0 then
    local stay = (tonumber(at) - now) / 1000 + 3600000
    if redis.call('PTTL', moments) < stay then redis.call('PEXPIRE', moments, int(stay)) end
  end
  redis.call('ZADD', set, int(tonumber(at) + place), id)
end

-- line_of says to which line of the queue a job goes back: a job that has a history was called before, and others go before it.
local function line_of(history, due, retries) return history and history ~= '' and retries or due end

-- attempt reads the record at the end of an attempt, and says whether it is the attempt that the record knows: same generation, in flight,
-- same owner.
local function attempt(record, generation, owner)
  local job = read_all(record)
  return job, job.s == 'in_flight' and job.g == generation and job.o == owner
end

-- end_attempt writes down the end of an open attempt; job is what attempt() read. Its history, its status and that it is open no more go into
-- the record with its next state, which must follow. line is empty if nothing was written; opened is forgotten as the key's first call then. A
-- call whose attempt was given up before (job.given_up) was counted then. The ZREM comes first: when its memory is full, Redis lets a script go
-- on that has begun to write, but not begin with what needs memory, and an end must be written down.
local function end_attempt(keys, job, id, now, spent, line, status)
  if gather_once(keys.open) then redis.call('ZREM', keys.open, id) else shelf_remove(keys.open, id) end
  local set, drop = {}, {'o', 'od', 'oa'}
  if line ~= '' then
    set[1], set[2] = 'h', history_with(job.h, line)
    if not job.given_up then set[3], set[4] = 'ca', int(calls_made(job) + 1) end
    called(keys.rate, now)
  elseif job.f and job.f == job.oa then
    drop[4] = 'f'
  end
  if status > 0 then set[#set + 1], set[#set + 2] = 'st', int(status) end
  if spent == 1 then redis.call('HINCRBY', keys.record, 'n', 1) end
  job.set, job.drop = set, drop
end

-- doubt writes down what an attempt's end says of the present key (job.Ending.Doubt).
local function doubt(record, says)
  if says == '1' or says == 'other' then redis.call('HSET', record, 'am', '1') end
  if says == 'other' then redis.call('HDEL', record, 'f') end
  if says == 'no' then redis.call('HDEL', record, 'am') end
end

-- task_end takes a task whose attempt has ended out of asynq's hands, and counts it, as asynq's own script does once its handler is done.
-- One that is not there any more is not counted again. It is looked for from the end where the oldest are. keys and args end with what
-- redisdb.TaskEnd lists.
local function task_end(keys, args)
  local k, a = #keys - 4, #args - 1
  local held = redis.call('LREM', keys[k], '-1', args[a])
  shelf_remove(keys[k + 1], args[a])
  gather_delete(keys[k + 2])
  if held == 0 then return end
  gather_count(keys[k + 3], args[a + 1])
  gather_count(keys[k + 4])
end

-- next_key returns the next generation of the idempotency key that is no other job's id.
local function next_key(record, present)
  local k = (tonumber(present) or 1) + 1
  while redis.call('EXISTS', record .. '~' .. int(k)) == 1 do k = k + 1 end
  return k
end

-- in_doubt says of a parked job that it may have been charged, by its reason and am.
local function in_doubt(reason, am) return reason == 'unknown_outcome' or am and true or false end

-- settled_by is the field by of a job that a person settles now, in the act of this place.
local function settled_by(as, now, place) return as .. ' ' .. int(now) .. ' ' .. place end

-- MAY_HAVE_CHARGED ends the error of a job that was to be called no more, and is parked as unknown_outcome instead.
local MAY_HAVE_CHARGED = '; an earlier call may have charged'

-- OVER is what a record needs no more when its job is over, but for the pieces of its payload: with the payload goes what the gateway said. The digest
-- stays, and so do the money, which the batch's sums need, and what says whether a discarded job may have been charged. DONE goes too when the job is done.
local OVER = {'e', 'due', 'x', 'at', 'f', 'sd', 'paid', 'fl', 'fo', 'fq', 'kn', 'rc', 'p', 'pn'}
local DONE = {'r', 'pa', 'am'}

-- finish makes a job over: its state is done or discarded, and so is its count called. What is left of its record stays for the dedupe window. has is all
-- fields that the record has now, where they are known: to look for one that is not there costs as much as to delete one.
local function finish(record, counters, state, now, dedupe_ms, job, has)
  job = job or read(record, 's', 'r', 'b', 'm', 'pn')
  local drop = job.drop or {}
  job.drop = drop
  local function lose(fields)
    for i = 1, #fields do
      if not has or has[fields[i]] then drop[#drop + 1] = fields[i] end
    end
  end
  lose(OVER)
  if state == 'done' then lose(DONE) end
  if job.r == 'unreadable' then redis.call('DEL', books_key(record, 'aside:' .. shelf_id(record))) end -- aside.lua may have put one there
  for i = 1, payload_count(job.pn) do drop[#drop + 1] = PAYLOAD[2 + i] end
  become_of(record, job, state, 'fin', int(now))
  gather_book(counters, state)
  forget(record, dedupe_ms, job.b)
end

-- paid_before finishes a job whose earlier call is known to have succeeded, whatever its last one came to; job is what attempt() read.
local function paid_before(record, counters, now, job)
  if job.paid then finish(record, counters, 'done', now, job.paid, job) end
  return job.paid
end
