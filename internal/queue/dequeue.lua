-- dequeue.lua: pulls tasks out of the queue as asynq's own dequeue does, several in one step, and from four lines in turn.
-- KEYS 1 pending  2 paused  3 active  4 lease  5 retries  6 replays  7 hold  8 due
-- ARGV 1 when the leases end (Unix seconds)  2 prefix of tasks  3 how many at most  4 "1": for a call that is sent ahead after a hold
-- returns {task id, its message (false: it has none), …} in the order in which they were pulled
-- due and pending have the jobs that were never called, and those of due go first; retries has those whose back-off is over, replays those that were
-- called before they were parked. While jobs wait that were never called, the other two together take at most every second place, and none that is
-- sent ahead: jobs that fail, however many, leave at least half of the calls to the others. Every second call that is sent ahead is that of the last job never called, since
-- the first may be one of many bad ones that came together.
-- Fields of the hold: turn (1: the last task pulled was of a job that was called before)  probed (calls sent ahead in vain in this hold)
local call = redis.call
if call('EXISTS', KEYS[2]) == 1 then return {} end

-- pull_all takes tasks from one line. A Redis whose memory is full refuses the first move, and with it all.
local function pull_all(line, most)
  local first = most > 0 and call('RPOPLPUSH', line, KEYS[3])
  if not first or most == 1 then return {first or nil} end
  local ids = call('RPOP', line, most - 1)
  if not ids or #ids == 0 then return {first} end
  call('LPUSH', KEYS[3], unpack(ids))
  return {first, unpack(ids)}
end

-- pull_one takes a task from the first of these lines that has one, and says which line that was.
local function pull_one(lines)
  for _, line in ipairs(lines) do
    local id = call('RPOPLPUSH', line, KEYS[3])
    if id then return id, line end
  end
end

-- pull_fresh takes tasks of jobs that were never called.
local function pull_fresh(most)
  local ids = pull_all(KEYS[8], most)
  for _, id in ipairs(pull_all(KEYS[1], most - #ids)) do ids[#ids + 1] = id end
  return ids
end

local FRESH_FIRST, CALLED_FIRST = {KEYS[8], KEYS[1], KEYS[5], KEYS[6]}, {KEYS[5], KEYS[6], KEYS[8], KEYS[1]}
local function take_turns(most)
  local ids, before = {}, call('HGET', KEYS[7], 'turn') or '0'
  local turn = before
  if ARGV[4] == '1' and (tonumber(call('HGET', KEYS[7], 'probed')) or 0) % 2 == 1 then
    ids[1] = call('LMOVE', KEYS[1], KEYS[3], 'LEFT', 'LEFT') or call('LMOVE', KEYS[8], KEYS[3], 'LEFT', 'LEFT') or nil
    if ids[1] then turn = '0' end
  end
  while #ids < most do
    local id, line = pull_one((ARGV[4] == '1' or turn == '1') and FRESH_FIRST or CALLED_FIRST)
    if not id then break end
    ids[#ids + 1], turn = id, (line == KEYS[1] or line == KEYS[8]) and '0' or '1'
  end
  if turn ~= before then call('HSET', KEYS[7], 'turn', turn) end
  return ids
end

local most = tonumber(ARGV[3])
local called = call('LLEN', KEYS[5]) + call('LLEN', KEYS[6])
local found, leases = {}, {}
for i, id in ipairs((called > 0 or ARGV[4] == '1') and take_turns(most) or pull_fresh(most)) do
  local task = ARGV[2] .. id
  local hash = type(redis.pcall('HSET', task, 'state', 'active')) ~= 'table' -- what is none is left to a sweep, and keeps no other task
  if hash then call('HDEL', task, 'pending_since') end
  found[2 * i - 1], found[2 * i] = id, hash and call('HGET', task, 'msg')
  leases[2 * i - 1], leases[2 * i] = ARGV[1], id
end
if #leases > 0 then call('ZADD', KEYS[4], unpack(leases)) end
return found
