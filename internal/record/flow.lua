-- flow.lua: a fragment; where a job belongs in a gateway with lanes.

-- flow_of returns a job's class and its route, each empty for the usual one, and its lane.
local function flow_of(record)
  local class, route, lane = unpack(redis.call('HMGET', record, '@priority', '@route', '@lane'))
  return class or '', route or '', lane or ''
end
