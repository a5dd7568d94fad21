-- sorted.lua: a fragment behind lanes.lua. The queue's lines are the door of the lanes: tasks in them move to the line of the same name in their flow. So
-- the code that enqueues a task knows nothing of lanes, and neither do programs older than lanes.

local SORTED_MOST, SORTED_PUSH = 500, 1000 -- tasks at a time; how many one command takes

-- sorted_doors returns the doors of a gateway, as sorted takes them, and the names of their keys. Those of classes are the keys behind classes, the highest class first.
local function sorted_doors(classes)
  local doors, names = {}, {}
  local function door(key, line)
    if names[key] then return end
    names[key], names[#names + 1], doors[#doors + 1] = true, key, {key, line, key == KEYS[4] and '' or string.match(key, '}:first:(.*)$')}
  end
  for i = classes, #KEYS do door(KEYS[i], KEYS[i] == KEYS[9] and 1 or KEYS[i] == KEYS[4] and 2 or 0) end
  door(KEYS[9], 1)
  door(KEYS[4], 2)
  door(KEYS[7], 4)
  door(KEYS[8], 8)
  return doors, names
end

-- sorted_entered records for tasks that left the door of a class, by their flow, that they are in lanes now: admission counts those that are not (share.lua of internal/record).
local function sorted_entered(doors, gone)
  for class, of in pairs(gone) do
    local key, left = L.prefix .. 'entering:' .. class, false
    for _, door in ipairs(doors) do left = left or door[3] == class and redis.call('EXISTS', door[1]) == 1 end
    if not left then
      redis.call('DEL', key)
    elseif redis.call('EXISTS', key) == 1 then
      for at, n in pairs(of) do redis.call('HINCRBY', key, at, -n) end
    end
  end
end

-- sorted_flow returns the flow and lane that a task belongs to. A task without a record has the usual class and the empty lane.
local function sorted_flow(task, classes, usual)
  local class, route, lane = flow_of(L.prefix .. 'job:' .. (string.match(task, '^(.+)~%d+$') or ''))
  if class == usual or not classes[class] then class = '' end
  return class .. ':' .. route, lane
end

-- sorted moves tasks from the doors, {key, line, the class whose newcomers come in there} each, and returns how many. In a line of their class, tasks that were put back before they were called go
-- before the others: they have a later generation. Tasks leave a door only when they are in their lanes, so that the script can end early at a key that something else has overwritten.
local function sorted(doors, classes, usual, now, rank)
  local most, all, order, first, gone = SORTED_MOST, {}, {}, lanes.state('tasks') == 0, {}
  for _, door in ipairs(doors) do
    local tasks = most > 0 and redis.call('LRANGE', door[1], -most, -1) or {}
    door.out = #tasks
    most = most - #tasks
    for at = #tasks, 1, -1 do
      local task = tasks[at]
      local flow, lane = sorted_flow(task, classes, usual)
      local line = door[2]
      if line == 0 then line = string.match(task, '~1$') and 2 or 1 end
      local key = lanes.line(flow, line, lane)
      if not all[key] then
        redis.call('LLEN', key)
        all[key], order[#order + 1] = {}, {key, flow}
        lanes.work(lane, lanes.record(lane), flow, line, now, rank)
      end
      table.insert(all[key], task)
      if door[3] then
        local of, at = gone[door[3]] or {}, lanes.route(flow) .. ':' .. lane
        of[at] = (of[at] or 0) + 1
        gone[door[3]] = of
      end
    end
  end
  for _, one in ipairs(order) do
    local key, tasks = one[1], all[one[1]]
    lanes.count(one[2], #tasks)
    for i = 1, #tasks, SORTED_PUSH do redis.call('LPUSH', key, unpack(tasks, i, math.min(i + SORTED_PUSH - 1, #tasks))) end
  end
  for _, door in ipairs(doors) do
    if door.out > 0 then redis.call('LTRIM', door[1], 0, -door.out - 1) end
  end
  sorted_entered(doors, gone)
  if most < SORTED_MOST and first then redis.call('HSETNX', L.prefix .. 'classes', '#lanes', '0') end -- who counts jobs counts these too
  return SORTED_MOST - most
end
