-- slots.lua: the end of reserve.lua for a gateway without lanes. It finds out how many slots the waiting jobs need and what each costs, and takes the next slots, for
-- whatever jobs will be pulled at them.

-- head appends tasks of a line to a list until the list has enough, the next one first. The head of a line is the list's right end.
local function head(tasks, line, most)
  most = most - #tasks
  local v = most > 0 and redis.call('LRANGE', line, -most, -1) or {}
  for i = #v, 1, -1 do tasks[#tasks + 1] = v[i] end
  return tasks
end

-- upcoming returns some of the tasks that wait, in the order in which dequeue.lua will pull them. If the order turns out differently, a handler trades its slot.
-- first has the lines of jobs that were never called; floors of classes are not considered. called is how many wait that were called before. ahead means that one call is
-- sent ahead.
local function upcoming(most, first, called, ahead)
  local fresh = {}
  for _, line in ipairs(first) do head(fresh, line, most) end
  if called == 0 then return fresh end
  local rest, tasks, f, r = head(head({}, KEYS[7], most), KEYS[8], most), {}, 1, 1
  local turn = ahead or redis.call('HGET', KEYS[2], 'turn') == '1'
  while #tasks < most and (fresh[f] or rest[r]) do
    local from_fresh = fresh[f] and (turn or not rest[r])
    if from_fresh then
      tasks[#tasks + 1], f = fresh[f], f + 1
    else
      tasks[#tasks + 1], r = rest[r], r + 1
    end
    turn = ahead or not from_fresh
  end
  return tasks
end

-- Slots that were already given out, to any process, are for the jobs that come first, except that jobs with costs are no longer in their lines once they were
-- pulled for a slot (dequeue.lua).
local function slots_ahead()
  local pulled = costly and tonumber(hold[10]) or 0
  local from = pulled < now + horizon and math.max(now, pulled) or now -- Redis's clock was set back
  if last <= from or width[1] > 0 then return 0 end
  local count, seen = 0, 0
  local v
  repeat
    v = call('LRANGE', KEYS[10], -seen - POOL_CHUNK, -seen - 1)
    for i = 1, #v, 2 do
      if tonumber(v[i]) > from + allowance then count = count + 1 end
    end
    seen = seen + POOL_CHUNK
  until not v[1] or tonumber(v[1]) <= from + allowance or seen == POOL_REACH
  return math.min(count, math.floor((last - from + tolerance) / T) + 1) -- other processes may allow for more: some of these were called already
end

local costs = {}
if asked == 0 then
  local called = call('LLEN', KEYS[7]) + call('LLEN', KEYS[8])
  local first, pending = {KEYS[9], KEYS[4]}, called
  if #KEYS > 9 + K + KEPT_MOST then first = {unpack(KEYS, 10 + K + KEPT_MOST)} end
  for _, line in ipairs(first) do pending = pending + call('LLEN', line) end
  if pending == 0 then return answer('idle', 0) end
  local ahead = 0
  costly = call('EXISTS', KEYS[5]) == 1
  if costly or pending <= POOL_CHUNK then ahead = slots_ahead() end
  want = math.min(want, pending - ahead)
  if want < 1 then return answer('ahead', math.min(last - now, horizon)) end
  if costly then
    costs = call('HMGET', KEYS[5], unpack(upcoming(ahead + want, first, called, need == 1), ahead + 1))
  end
end
-- A cost above a limit can never be had: the job's handler reports it.
local function cost_of(i)
  if asked > 0 then return asked end
  return math.min(tonumber(costs[i]) or 1, least)
end

begin()
local slots, hint, earliest, at, sum = {}, 0, math.max(now + lead, quiet), {}, {}
for i = 1, want do
  local cost, slot = cost_of(i), math.max(earliest, last, tat - tolerance)
  for k = 1, K do slot, at[k], sum[k] = ready(k, cost, slot) end
  if slot - now > horizon then
    if slot == math.huge and i == 1 then return amnesia() end
    if slot < math.huge then hint = slot - now - horizon end
    break
  end
  for k = 1, K do
    cursor[k], used[k] = at[k], sum[k] + cost
    charge(k, slot, cost)
  end
  tally(slot, cost)
  last, tat = slot, math.max(tat, slot) + T * cost
  slots[#slots + 1] = {slot, cost}
end
if #slots == 0 then
  if news > NEWS and pace[1] then call('HSET', KEYS[1], 'y', tell) end
  return answer('horizon', hint)
end
return granted(slots, hint)
