-- beside.lua: a fragment of reserve.lua for a gateway with lanes, behind lanes.lua. It reads what pick.lua is given, and does what a loss means for routes and lanes.

-- The last key is one that is never written: with it, a cluster refuses the script while the slot moves. Otherwise a record that has moved would look like a missing one.
-- The last argument is JSON: reach (the greatest distance of a slot, µs)  lane (windows as permits.limits takes them)  routes ("name=windows " for each, its windows as JSON)  classes (of each, the highest first: its
-- name, '' for the usual one, and the units within which it is served at least once, 0 = no floor)  usual (its name)  weight (of a lane)  own (how a lane's own limits are
-- computed, as permits.own takes it, as JSON)  take (the record of the job that was pulled already, for which a slot is wanted)
table.remove(KEYS)
local beside = cjson.decode(table.remove(ARGV))

-- beside_windows returns the windows of a route as JSON, or nil. Most of many routes are not asked for.
local function beside_windows(route)
  local _, at = string.find(beside.routes, ' ' .. route .. '=', 1, true)
  return at and string.match(beside.routes, '^%S+', at + 1)
end

-- beside_routes returns a table of the limits of routes, false if a route has none.
local function beside_routes()
  return setmetatable({}, {__index = function(routes, name)
    local windows = beside_windows(name)
    routes[name] = windows and permits.limits(cjson.decode(windows)) or false
    return routes[name]
  end})
end

-- beside_longest returns for how long a use counts in any window of routes and lanes.
local function beside_longest()
  local longest = permits.limits(beside.lane).longest
  for windows in string.gmatch(beside.routes, '=(%S+)') do longest = math.max(longest, permits.limits(cjson.decode(windows)).longest) end
  return L.overridden and math.max(longest, PERMITS_WAITED) or longest -- lanes with limits of their own are charged for up to this time
end

-- lost_beside charges every window of a route or a lane, when it is looked at, with what may be missing until the mark. What is known since then counts
-- at the mark, because reports of its lateness may be among what is lost.
local function lost_beside(mark, missing, since)
  lanes.open(KEYS[1], beside.weight)
  local known = lanes.state('lm') + beside_longest() > mark + L.moved
  lanes.set('ls', known and math.min(lanes.state('ls'), since + L.moved) or since + L.moved)
  lanes.set('lu', missing + (known and lanes.state('lu') or 0))
  lanes.set('lm', mark + L.moved)
  lanes.save()
end
