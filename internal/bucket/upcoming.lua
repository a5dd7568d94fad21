-- upcoming.lua: a fragment of reserve.lua that finds out which tasks come next. It uses the KEYS of reserve.lua: 2 hold  7 retries  8 replays.

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
