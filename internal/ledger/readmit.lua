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

-- next_key returns the next generation of the idempotency key that is no other job's id.
local function next_key(record)
  local k = (tonumber(redis.call('HGET', record, 'k')) or 1) + 1
  while redis.call('EXISTS', record .. '~' .. int(k)) == 1 do k = k + 1 end
  return k
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

local function readmit(record, task, parked, a)
  local v = redis.call('HMGET', record, 's', 'g', 'r', 'c', 'at', 'y', 'ya', 'b', 'm')
  if v[1] ~= 'parked' or v[2] ~= ARGV[a + 1] or v[3] ~= ARGV[a + 4] then
    if v[1] ~= 'parked' or v[3] ~= ARGV[a + 4] then redis.call('ZREM', parked, ARGV[a]) end -- the record is right
    return GONE
  end
  local cost = tonumber(v[4]) or 1
  if full then return NO_ROOM end
  if not bucket_take(bucket, cost) then
    full, retry = true, bucket_retry(bucket, cost)
    return NO_ROOM
  end
  shelf_remove(parked, ARGV[a])
  taken = taken + 1
  local due, fields, key_change = tonumber(v[5]) or 0, {'y', int((tonumber(v[6]) or 0) + 1)}, ARGV[a + 5]
  local function set(name, value) fields[#fields + 1] = name; fields[#fields + 1] = value end
  if ARGV[4] == 'again' then set('ya', int((tonumber(v[7]) or 0) + 1)) end
  -- Jobs parked as rejected and as exhausted go in by themselves too: what a person takes out of a cancelled batch is called all the same.
  if v[3] ~= 'rejected' and ARGV[4] ~= 'again' and cancelled_batch(record, v[8]) then set('rc', '1') end
  if key_change == 'next' then set('k', int(next_key(record))) end
  if key_change == 'forgotten' or (key_change == 'next' and v[3] == 'unknown_outcome') then -- a person has looked it up
    set('kn', int(now))
  end
  if due <= now then set('g', int(tonumber(v[2]) + 1)) end
  become_of(record, {s = v[1], r = v[3], b = v[8], m = v[9]}, due > now and 'scheduled' or 'queued', unpack(fields))
  local past = {'r', 'e', 'pa', 'n', 'st', 'fl', 'fo', 'fq'}
  local function drop(name) past[#past + 1] = name end
  if key_change ~= 'keep' then drop('f') drop('am') end
  if ARGV[4] ~= 'again' and v[7] then drop('ya') end
  redis.call('HDEL', record, unpack(past))
  if due > now then
    redis.call('ZADD', KEYS[4], int(due), ARGV[a])
    return QUEUED
  end
  task_new(task, ARGV[a + 2], ARGV[a + 3], KEYS[5], cost, int(now))
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
