-- mend.lua puts a job where its record says, and nowhere else. A queued job that has lost its task gets another one, in a new
-- generation. If the old task turns up after all, it is stale.
-- KEYS 1 record  2 due  3 active  4 costs  5 old task  6 new task  7 scheduled  8 retrying  9 open
--      10 asking  11 retries  12… asynq's own sets: retry, archived, scheduled, completed, then parked:<reason> of every reason
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 generation of the old task  4 old task id  5 new task id  6 new task message
--      7 a task that says it was pending before this was missed in the queue (µs, 0 = it was not looked for)  8 gateway  9 wake channel
--      10 how many sets of asynq's, then the reasons in the order of their keys
-- returns 'none' | 'queued' (at the head, with a new task) | 'placed' | 'removed' (entries of a job that has no record)
local record, id, now = KEYS[1], ARGV[2], now_us(ARGV[1])
local first_parked = 12 + tonumber(ARGV[10])
local v = redis.call('HMGET', record, '@state', '@generation', '@cost', '@not_before', '@due_at', '@deadline', '@parked_at', '@reason', '@batch', '@history', '@ask_at', '@priority')
local state = v[1]
local places = {scheduled = {KEYS[7], v[4]}, retrying = {KEYS[8], v[5]}, in_flight = {KEYS[9], v[6]}, pending = {KEYS[10], v[11]}}
local other = {queued = true, done = true, discarded = true}
local home, score = nil, nil
if places[state] then home, score = places[state][1], places[state][2] end
for i = 11, #ARGV do
  if state == 'parked' and v[8] == ARGV[i] then home, score = KEYS[first_parked + i - 11], v[7] end
end
if state and not home and not other[state] then return 'none' end

-- unlist removes a job from the parts of a set that belong to one batch, when its record is gone and with it the name of its batch.
local function unlist(reason)
  for _, batch in ipairs(redis.call('ZRANGE', books_key(record, 'batches'), 0, -1)) do
    redis.call('ZREM', shelf_batch(record, reason, batch), id)
  end
end

local moved = 0
for i = 7, #KEYS do
  local line_or_asynqs = i >= 11 and i < first_parked
  local gone = KEYS[i] ~= home and not line_or_asynqs and redis.call('ZREM', KEYS[i], id) or 0
  moved = moved + gone
  if gone > 0 and i >= first_parked then
    shelf_take(record, ARGV[11 + i - first_parked], v[9])
    if not state then unlist(ARGV[11 + i - first_parked]) end
  end
end
if not state then return moved > 0 and 'removed' or 'none' end
if home and not redis.call('ZSCORE', home, id) then
  moved = moved + redis.call('ZADD', home, score or int(now), id)
  if state == 'parked' then shelf_put(record, v[8], v[9], score or int(now)) end
end
if shelf_flowed(record) then
  local part, rejected = shelf_flow_set(record, shelf_flow(record)), state == 'parked' and v[8] == 'rejected'
  local stands = redis.call('ZSCORE', part, id)
  -- If the count is right, it either has this job, or does not.
  local counted = redis.call('HGET', shelf_key(record, 'counters'), 'flowed') == int(redis.call('ZCARD', shelf_key(record, 'parked:rejected')))
  if rejected and not stands and not redis.call('ZSCORE', shelf_key(record, 'parked:rejected:unfit'), id) then
    shelf_put(record, v[8], v[9], score or int(now))
    if counted then shelf_count(record, -1) end
    moved = moved + 1
  elseif not rejected and stands then
    shelf_drop(record, shelf_flow(record), {id})
    if counted then shelf_count(record, 1) end
    moved = moved + 1
  end
end
if state ~= 'done' and state ~= 'discarded' then moved = moved + redis.call('PERSIST', record) end

local function lost()
  if state ~= 'queued' or v[2] ~= ARGV[3] then return false end
  local t = redis.call('HMGET', KEYS[5], 'state', 'msg', 'pending_since')
  if t[1] == 'active' then return not redis.call('LPOS', KEYS[3], ARGV[4]) end
  return t[1] ~= 'pending' or not t[2] or (tonumber(t[3]) or 0) / 1000 < tonumber(ARGV[7])
end
if not lost() then return moved > 0 and 'placed' or 'none' end
redis.call('DEL', KEYS[5])
redis.call('HDEL', KEYS[4], ARGV[4])
for i = 12, first_parked - 1 do redis.call('ZREM', KEYS[i], ARGV[4]) end
redis.call('HSET', record, '@generation', int(tonumber(v[2]) + 1))
pend('RPUSH', line_of(record, v[12], v[10], KEYS[2], KEYS[11]), KEYS[6], ARGV[5], ARGV[6], KEYS[4], tonumber(v[3]) or 1, now)
redis.call('PUBLISH', ARGV[9], ARGV[8])
return 'queued'
