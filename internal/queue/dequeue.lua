-- dequeue.lua pulls tasks from the queue as asynq's own dequeue does, but several in one step, and from four lines in turn. Composed after NowLua.
-- KEYS
--    1  pending
--    2  paused
--    3  active
--    4  lease
--    5  retries
--    6  replays
--    7  hold
--    8  due
--    9  classes, where the gateway has some
--   10… the lines of jobs that were never called, class by class, the highest first
-- ARGV
--    1  now (µs, 0 = Redis's): the leases begin then
--    2  prefix of tasks
--    3  how many at most
--    4  "1": for a call that is sent ahead after a hold
--    5  the latest slot that they are pulled for, if jobs have costs (µs, 0 = they have none)
--    6  if it has classes, for each in that order: name, floor (percent of these calls, 0 = none), number of lines, each followed by a blank
-- returns {task id, its message (false: it has none), …} in the order in which they were pulled
-- due and pending have the jobs that were never called; those of due go first. retries has jobs whose back-off is over, replays those that were
-- called before they were parked. While jobs wait that were never called, the other two together take at most every second place, and none
-- of the calls that are sent ahead. So jobs that fail, however many, leave at least half of the calls to the others. Every second call that is sent ahead is that of the last job never called, since
-- the first may be one of many bad ones that came together.
-- With classes, the jobs that were never called go by class: the highest first, except that a class may be owed its floor. It is owed if its field in classes
-- (the number of such jobs pulled, #, by which it must be served) is not above #; the earliest goes first. Nothing is saved up: a class without jobs starts from the present number.
-- Fields of the hold: turn (1: the last task pulled was of a job that was called before)  probed (calls sent ahead in vain in this hold)
--      pulled (the latest slot that jobs with costs were pulled for: reserve.lua tells by it for which of those that wait the slots to come are)
local call = redis.call
if call('EXISTS', KEYS[2]) == 1 then return {} end

-- pull_all takes tasks from one line. A Redis whose memory is full refuses the first move, and so the whole script.
local function pull_all(line, most)
  local first = most > 0 and call('RPOPLPUSH', line, KEYS[3])
  if not first or most == 1 then return {first or nil} end
  local ids = call('RPOP', line, most - 1)
  if not ids or #ids == 0 then return {first} end
  call('LPUSH', KEYS[3], unpack(ids))
  return {first, unpack(ids)}
end

-- pull_one takes a task from the first of these lines that has one, and returns it and the line.
local function pull_one(lines)
  for _, line in ipairs(lines) do
    local id = call('RPOPLPUSH', line, KEYS[3])
    if id then return id, line end
  end
end

local classes, floors = {}, false
local function load_classes()
  local key = 10
  for name, floor, lines in string.gmatch(ARGV[6] or '', '(%S+) (%d+) (%d+) ') do
    local class = {name = name, floor = tonumber(floor), lines = {}, jobs = 0}
    for i = 1, tonumber(lines) do
      class.lines[i], key = KEYS[key], key + 1
      class.jobs = class.jobs + call('LLEN', class.lines[i])
    end
    classes[#classes + 1], floors = class, floors or class.floor > 0
  end
end

-- due_floors reads by when each class must be served, and returns how many were pulled so far.
local function due_floors()
  if not floors then return 0 end
  local pulled = tonumber(call('HGET', KEYS[9], '#')) or 0
  for _, class in ipairs(classes) do
    class.by = class.floor > 0 and (tonumber(call('HGET', KEYS[9], class.name)) or 0)
    if class.by == 0 then class.by = pulled + 100 / class.floor end
  end
  return pulled
end

-- next_class returns the class whose turn it is, among those with jobs.
local function next_class(pulled)
  local highest, owed
  for _, class in ipairs(classes) do
    if class.jobs > 0 then
      highest = highest or class
      if class.by and class.by <= pulled and (not owed or class.by < owed.by) then owed = class end
    end
  end
  return owed or highest
end

local function served(class, pulled)
  class.jobs = class.jobs - 1
  if class.by then class.by = math.min(class.by, pulled) + 100 / class.floor end
  for _, other in ipairs(classes) do
    if other.by and other.jobs == 0 then other.by = math.max(other.by, pulled + 1 + 100 / other.floor) end
  end
end

local pulled_before, pulled
local function pull_of_classes(most)
  local ids = {}
  while #ids < most do
    local class = next_class(pulled)
    if not class then break end
    local id = pull_one(class.lines)
    if id then ids[#ids + 1] = id else class.jobs = 0 end
    if id then
      served(class, pulled)
      pulled = pulled + 1
    end
  end
  return ids
end

-- keep_floors writes by when each class must be served.
local function keep_floors()
  if not floors or pulled == pulled_before then return end
  local set = {'#', string.format('%.0f', pulled)}
  for _, class in ipairs(classes) do
    if class.by then set[#set + 1], set[#set + 2] = class.name, string.format('%.3f', class.by) end
  end
  call('HSET', KEYS[9], unpack(set))
end

-- pull_fresh takes tasks of jobs that were never called.
local function pull_fresh(most)
  if ARGV[6] then return pull_of_classes(most) end
  local ids = pull_all(KEYS[8], most)
  for _, id in ipairs(pull_all(KEYS[1], most - #ids)) do ids[#ids + 1] = id end
  return ids
end

local CALLED = {KEYS[5], KEYS[6]}
-- pull_turn takes one task, of a job never called first or last, and reports whether it is that of one.
local function pull_turn(fresh_first)
  if fresh_first then
    local id = pull_fresh(1)[1]
    if id then return id, true end
    return pull_one(CALLED), false
  end
  local id = pull_one(CALLED)
  if id then return id, false end
  return pull_fresh(1)[1], true
end
local function take_turns(most)
  local ids, before = {}, call('HGET', KEYS[7], 'turn') or '0'
  local turn = before
  if ARGV[4] == '1' and (tonumber(call('HGET', KEYS[7], 'probed')) or 0) % 2 == 1 then
    ids[1] = call('LMOVE', KEYS[1], KEYS[3], 'LEFT', 'LEFT') or call('LMOVE', KEYS[8], KEYS[3], 'LEFT', 'LEFT') or nil
    if ids[1] then turn = '0' end
  end
  while #ids < most do
    local id, fresh = pull_turn(ARGV[4] == '1' or turn == '1')
    if not id then break end
    ids[#ids + 1], turn = id, fresh and '0' or '1'
  end
  if turn ~= before then call('HSET', KEYS[7], 'turn', turn) end
  return ids
end

local most = tonumber(ARGV[3])
load_classes()
pulled_before = due_floors()
pulled = pulled_before
local called = call('LLEN', KEYS[5]) + call('LLEN', KEYS[6])
local found, leases, ends = {}, {}, int(math.floor(now_us(ARGV[1]) / 1000000) + 30) -- the lease that asynq gives a task (v0.26.0, internal/rdb: LeaseDuration)
for i, id in ipairs((called > 0 or ARGV[4] == '1') and take_turns(most) or pull_fresh(most)) do
  local task = ARGV[2] .. id
  local hash = type(redis.pcall('HSET', task, 'state', 'active')) ~= 'table' -- a key of another type is left to a sweep, and does not keep back other tasks
  if hash then call('HDEL', task, 'pending_since') end
  found[2 * i - 1], found[2 * i] = id, hash and call('HGET', task, 'msg')
  leases[2 * i - 1], leases[2 * i] = ends, id
end
if #leases > 0 then call('ZADD', KEYS[4], unpack(leases)) end
keep_floors()
local slot = tonumber(ARGV[5])
local behind = slot - (slot > 0 and tonumber(call('HGET', KEYS[7], 'pulled')) or 0)
if behind > 0 or behind < -1000000 then call('HSET', KEYS[7], 'pulled', ARGV[5]) end -- if it is far behind, Redis's clock was set back
return found
