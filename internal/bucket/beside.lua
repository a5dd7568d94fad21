-- beside.lua: a fragment of reserve.lua for a gateway with lanes, behind lanes.lua: what pick.lua is given, and what a loss means for routes and lanes.

-- The last key is one that nobody writes: while a cluster's slot moves, no node runs the script, as it would take a record that it lacks for that of no job.
-- The last argument says, as JSON: reach (no slot is farther off, µs)  lane (windows as permits.limits takes them)  routes (those of each, as JSON)  classes (of each, the highest first: its
-- name, '' for the usual one, and the units within which it is served once at least, 0 = no floor)  usual (its name)  weight (of a lane)  own (how a lane's own limits are
-- worked out, as permits.own takes it, as JSON)  take (the record of the job that is in hand already, for which a slot is wanted)
table.remove(KEYS)
local beside = cjson.decode(table.remove(ARGV))

-- beside_longest returns for how long a use counts in any window of routes and lanes.
local function beside_longest()
  local longest = permits.limits(beside.lane).longest
  for _, windows in pairs(beside.routes) do longest = math.max(longest, permits.limits(cjson.decode(windows)).longest) end
  return L.overridden and math.max(longest, PERMITS_WAITED) or longest -- lanes with limits of their own are charged as long as this
end

-- lost_beside charges every window of a route or a lane with what may be missing until the mark, when it is looked at; and what is known since then counts
-- at the mark, as reports of its lateness may be among what is lost.
local function lost_beside(mark, missing, since)
  lanes.open(KEYS[1], beside.weight)
  local known = lanes.state('lm') + beside_longest() > mark + L.moved
  lanes.set('ls', known and math.min(lanes.state('ls'), since + L.moved) or since + L.moved)
  lanes.set('lu', missing + (known and lanes.state('lu') or 0))
  lanes.set('lm', mark + L.moved)
  lanes.save()
end
