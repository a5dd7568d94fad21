-- flow.lua: a fragment; where a job belongs in a gateway with lanes.

-- flow_of returns a job's class and its route, each empty for the usual one, and its lane. What is no record has none of them: whoever opens it sets it aside.
local function flow_of(record)
  local v = redis.pcall('HMGET', record, '@priority', '@route', '@lane')
  return v[1] or '', v[2] or '', v[3] or ''
end

-- flow_lines returns the lists in which a job's task can stand, beside the queue's own: its class may have been the usual one when it was put there.
local function flow_lines(prefix, task)
  local class, route, lane = flow_of(prefix .. (string.match(task, '^(.+)~%d+$') or ''))
  local lists, gateway = {}, string.match(prefix, '^.*}:')
  for _, name in ipairs({class, class ~= '' and '' or nil}) do
    for line in string.gmatch('due pending retries replays', '%a+') do lists[#lists + 1] = gateway .. 'flow:' .. name .. ':' .. route .. ':' .. line .. ':' .. lane end
  end
  return lists
end
