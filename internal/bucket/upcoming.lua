-- upcoming.lua: which tasks come next. Fragment of reserve.lua, and its KEYS: 2 hold  7 retries  8 replays.

-- head appends tasks of a line to a list until it has so many, the next one first. The head of a line is the list's right end.
local function head(tasks, line, most)
  most = most - #tasks
  local v = most > 0 and redis.call('LRANGE', line, -most, -1) or {}
  for i = #v, 1, -1 do tasks[#tasks + 1] = v[i] end
  return tasks
end

-- upcoming returns so many of the tasks that wait, in the order in which dequeue.lua will pull them. Where it turns out otherwise, a handler trades its slot.
-- first are the lines of jobs that were never called; floors of classes are not looked at. called is how many wait that were called before; ahead says that one call is
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
