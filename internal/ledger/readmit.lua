-- readmit.lua: parked jobs go through admission again, oldest first; those without room stay parked.
-- KEYS 1 admission  2 pending  3 counters  4 scheduled  5 costs  6 acts, then for each job: record, task, parked:<its reason>
-- ARGV 1 now (µs, 0 = Redis's)  2 gateway  3 wake channel  4 act's place in the trail ('' = none; again = by themselves, as shelf.lua counts)  5… the bucket's arguments, then for each job six:
--      id, generation it is parked with, new task id, task message, reason,
--      idempotency key: keep | next (the gateway said a definite no) | forgotten (it no longer counts as sent)
-- returns {retry_us, a1, a2, …}: 1 queued  2 no room  3 not parked like this any more
local QUEUED, NO_ROOM, GONE = 1, 2, 3
local now = now_us(ARGV[1])
local bucket, at = bucket_load(KEYS[1], now, ARGV, 5)
local idle = redis.call('LLEN', KEYS[2]) == 0
local full, pushed, taken, retry, answers = false, {}, 0, 0, {}

-- text is int() of numbers that many jobs of a chunk share.
local texts, now_text = {}, int(now)
local function text(n)
  local t = texts[n] or int(n)
  texts[n] = t
  return t
end

-- next_key returns the next generation of the idempotency key that is no other job's id.
local function next_key(record)
  local k = (tonumber(redis.call('HGET', record, 'k')) or 1) + 1
  while redis.call('EXISTS', record .. '~' .. int(k)) == 1 do k = k + 1 end
  return k
end

-- replaced says that a refused job was given another payload since it was parked, maybe after its caller had read it: the key came with that.
local function replaced(record, reason)
  if reason ~= 'refused' then return false end
  local v = redis.call('HMGET', record, 'ed', 'pa')
  return v[1] and tonumber(v[1]) >= (tonumber(v[2]) or 0)
end

-- cancelled_batch says whether a batch is cancelled: one look for a chunk.
local cancelled = {}
local function cancelled_batch(record, batch)
  if batch and cancelled[batch] == nil then
    local _, is = books_stopped(record, batch)
    cancelled[batch] = is
  end
  return batch and cancelled[batch]
end

-- PAST is what a job's record loses when it is parked no more.
local PAST = {'r', 'e', 'pa', 'n', 'st', 'fl', 'fo', 'fq'}

local function past(key_change, again)
  if key_change == 'keep' and not again then return PAST end
  local drop = {unpack(PAST)}
  if key_change ~= 'keep' then drop[#drop + 1] = 'f'; drop[#drop + 1] = 'am' end
  if again then drop[#drop + 1] = 'ya' end
  return drop
end

-- change_key appends to set what becomes of the idempotency key.
local function change_key(record, set, key_change, reason)
  if key_change == 'next' then set[#set + 1] = 'k'; set[#set + 1] = int(next_key(record)) end
  if key_change == 'forgotten' or reason == 'unknown_outcome' then -- a person has looked it up
    set[#set + 1] = 'kn'; set[#set + 1] = now_text
  end
end

local by_itself = ARGV[4] == 'again'
local function readmit(record, task, parked, a)
  local id, v = ARGV[a], redis.call('HMGET', record, 's', 'g', 'r', 'b', 'm', 'c', 'at', 'y', 'ya')
  local reason, batch = v[3], v[4]
  if v[1] ~= 'parked' or v[2] ~= ARGV[a + 1] or reason ~= ARGV[a + 4] then
    if v[1] ~= 'parked' or reason ~= ARGV[a + 4] then redis.call('ZREM', parked, id) end -- the record is right
    return GONE
  end
  local cost = tonumber(v[6]) or 1
  if full then return NO_ROOM end
  if not bucket_take(bucket, cost) then
    full, retry = true, bucket_retry(bucket, cost)
    return NO_ROOM
  end
  shelf_remove(parked, id)
  taken = taken + 1
  local due, key_change, set = tonumber(v[7]) or 0, ARGV[a + 5], {'y', text((tonumber(v[8]) or 0) + 1)}
  if key_change == 'next' and replaced(record, reason) then key_change = 'keep' end
  if due <= now then set[3], set[4] = 'g', text(tonumber(v[2]) + 1) end
  if by_itself then set[#set + 1] = 'ya'; set[#set + 1] = text((tonumber(v[9]) or 0) + 1) end
  -- Jobs parked as rejected and as exhausted go in by themselves too: what a person takes out of a cancelled batch is called all the same.
  if reason ~= 'rejected' and not by_itself and cancelled_batch(record, batch) then set[#set + 1] = 'rc'; set[#set + 1] = '1' end
  if key_change ~= 'keep' then change_key(record, set, key_change, reason) end
  local job = {s = 'parked', r = reason, b = batch, m = v[5], set = set, drop = past(key_change, v[9] and not by_itself)}
  if due > now then
    become_of(record, job, 'scheduled')
    redis.call('ZADD', KEYS[4], int(due), id)
    return QUEUED
  end
  become_of(record, job, 'queued')
  task_new(task, ARGV[a + 2], ARGV[a + 3], KEYS[5], cost, now_text)
  pushed[#pushed + 1] = ARGV[a + 2]
  return QUEUED
end

local key = 7
shelf_gather() -- the sets of what is parked change once for all of the chunk, and so do the books and the queue
books_gather()
while at <= #ARGV do
  answers[#answers + 1] = readmit(KEYS[key], KEYS[key + 1], KEYS[key + 2], at)
  at, key = at + 6, key + 3
end
for i = 1, #pushed, 1000 do redis.call('LPUSH', KEYS[2], unpack(pushed, i, math.min(i + 999, #pushed))) end
books_gathered()
shelf_gathered()
bucket_save(bucket)
if taken > 0 and tonumber(ARGV[4]) then redis.call('HINCRBY', KEYS[6], ARGV[4], taken) end
if idle and #pushed > 0 then redis.call('PUBLISH', ARGV[3], ARGV[2]) end
return {retry, unpack(answers)}
