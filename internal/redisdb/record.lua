-- record.lua: the layout of a job's record, and what every change of state does to it. A fragment: local functions only, behind batch.lua.
-- A state is changed by become(), never by HSET alone.
-- Fields of spillway:{gateway}:job:<id>, all optional but s, g, d, t:
--   s state   g generation of the task   d digest of the payload   t accepted at (µs)
--   p payload; or, of one that is neither short nor long, pn the number of its pieces and p1, p2 … the pieces (payload_set)
--   c cost (absent: 1)   b batch   m money (batch.lua)   at not before (µs)   x expires (µs)
--   n attempts spent   k key generation (absent: 1)   f first call with the present key (µs)   y replays
--   am a call with the present key may have charged ("1")   kn a person settled what earlier calls came to (µs)
--   o owner of the open attempt   od its deadline (µs)   oa opened at (µs; absent: only to park the job, nothing is sent)
--   due end of the back-off (µs)   r reason of parking   e error   pa parked at (µs)
--   paid a success that came while another call was under way: the dedupe window (ms) it asks for
--   ya how often it went in by itself after it was parked as exhausted (shelf.lua)
--   rc a person took it in again after its batch was cancelled ("1")
--   fl, fo, fq  failures, and the outages of the gateway: see outage.lua
--   ed when a person last gave the job another payload (µs); not before pa: it was not taken in since
--   ref the gateway's own reference for the payment   fin finished at (µs)   st last HTTP status   h history: one line a call, "at_us took_us status verdict"
local HISTORY_BYTES = 2000

-- A hash whose values all have at most 64 bytes is kept in half the memory (hash-max-listpack-value), so a payload of up to eight times
-- that is cut up. What is longer stays whole: then so little is saved that it isn't worth the time.
local PIECE_BYTES, PIECES = 64, 8
local PAYLOAD = {'p', 'pn', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6', 'p7', 'p8'} -- every field that a payload may have

-- payload_set appends a payload to fields, names and values in turn.
local function payload_set(fields, payload)
  local n = #fields
  if #payload <= PIECE_BYTES or #payload > PIECE_BYTES * PIECES then
    fields[n + 1], fields[n + 2] = 'p', payload
    return
  end
  local pieces = math.ceil(#payload / PIECE_BYTES)
  fields[n + 1], fields[n + 2] = 'pn', pieces
  for i = 1, pieces do
    fields[n + 1 + 2 * i] = PAYLOAD[2 + i]
    fields[n + 2 + 2 * i] = string.sub(payload, (i - 1) * PIECE_BYTES + 1, i * PIECE_BYTES)
  end
end

-- payload_of returns a record's payload; whole and pieces are its fields p and pn.
local function payload_of(record, whole, pieces)
  if not pieces then return whole or '{}' end
  return table.concat(redis.call('HMGET', record, unpack(PAYLOAD, 3, 2 + tonumber(pieces))))
end

-- stamp returns a time of parking that no other parked job of the gateway has, so that order is exact.
local function stamp(counters, now)
  local last = tonumber(redis.call('HGET', counters, 'stamp')) or 0
  if now <= last then now = last + 1 end
  redis.call('HSET', counters, 'stamp', int(now))
  return now
end

-- history appends one line for a call and drops the oldest lines beyond HISTORY_BYTES.
local function history(record, line)
  if line == '' then return end
  local h = (redis.call('HGET', record, 'h') or '') .. line .. '\n'
  while #h > HISTORY_BYTES do
    local cut = string.find(h, '\n', 1, true)
    h = string.sub(h, cut + 1)
  end
  redis.call('HSET', record, 'h', h)
end

-- called counts one call in the gateway's rate: a field for each 5 s, the last two minutes kept.
local function called(rate, now)
  local bucket = math.floor(now / 5000000)
  if redis.call('HINCRBY', rate, int(bucket), 1) > 1 then return end
  for _, field in ipairs(redis.call('HKEYS', rate)) do
    if tonumber(field) < bucket - 24 then redis.call('HDEL', rate, field) end
  end
end

-- task_new creates the queue's task for a generation of a job, pending since a moment (µs, as text).
local function task_new(task, task_id, msg, costs, cost, since)
  redis.call('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', since .. '000')
  if cost > 1 then redis.call('HSET', costs, task_id, int(cost)) end
end

-- pend creates the task and puts it into the queue: at the head (the right end, which asynq's dequeue pops) or at the tail.
local function pend(push, pending, task, task_id, msg, costs, cost, now)
  task_new(task, task_id, msg, costs, cost, int(now))
  return redis.call(push, pending, task_id)
end

-- owned says whether the attempt that ends is the one the record knows: same generation, in flight, same owner.
local function owned(record, generation, owner)
  local v = redis.call('HMGET', record, 's', 'g', 'o')
  return v[1] == 'in_flight' and v[2] == generation and v[3] == owner, v[1]
end

-- end_attempt writes down the end of an open attempt: its history, whether it counts, and that it is open no more.
-- called_line is empty if nothing was written; opened is forgotten as the key's first call then. The ZREM comes first: when its memory
-- is full, Redis lets a script go on that has begun to write, but not begin with what needs memory, and an end must be written down.
local function end_attempt(keys, id, now, spent, line, status)
  local record = keys.record
  redis.call('ZREM', keys.open, id)
  history(record, line)
  if line ~= '' then
    called(keys.rate, now)
  else
    local v = redis.call('HMGET', record, 'f', 'oa')
    if v[1] and v[1] == v[2] then redis.call('HDEL', record, 'f') end
  end
  if spent == 1 then redis.call('HINCRBY', record, 'n', 1) end
  if status > 0 then redis.call('HSET', record, 'st', int(status)) end
  redis.call('HDEL', record, 'o', 'od', 'oa')
end

-- finish makes a job done; what is left of its record stays for the dedupe window.
local function finish(record, counters, now, dedupe_ms)
  become(record, 'done', 'fin', int(now))
  redis.call('HDEL', record, 'due', 'r', 'e', 'pa', 'x', 'at', 'f', 'am', 'paid', 'fl', 'fo', 'fq', 'kn', 'rc', unpack(PAYLOAD))
  redis.call('HINCRBY', counters, 'done', 1)
  forget(record, dedupe_ms)
end

-- paid_before finishes a job whose earlier call is known to have succeeded, whatever its last one came to.
local function paid_before(record, counters, now)
  local dedupe_ms = redis.call('HGET', record, 'paid')
  if dedupe_ms then finish(record, counters, now, dedupe_ms) end
  return dedupe_ms
end
