-- moved.lua: calls are, or were, written at other moments than those at which they are counted. It moves their permits on their routes and in their lanes, as late.lua
-- moves those of the account. Composed after NowLua, permits.lua and lanes.lua.
-- KEYS 1 pace  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 how late after its slot a call may be written that windows in parts allow for (µs), then for each call: slot (µs), the moment at which exact windows count it (µs), cost,
--      the moment at which it should count (µs), route, lane
-- returns 1.
lanes.open(KEYS[1], 1)
for i = 2, #ARGV, 6 do
  local slot, edge, cost, to = tonumber(ARGV[i]) + L.moved, tonumber(ARGV[i + 1]) + L.moved, tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]) + L.moved
  local route, lane = ARGV[i + 4], ARGV[i + 5]
  local r = lanes.record(lane)
  permits.move(lanes.logs_of(route), cost, slot, edge, to, tonumber(ARGV[1]))
  permits.move(r.logs, cost, slot, edge, to, tonumber(ARGV[1]))
  L.used[route], L.dirty[lane] = true, true
  if to < edge then -- the lane may be called earlier: the next pick looks at it
    lanes.reopen(route)
    lanes.look(lane, r)
  end
end
lanes.save()
return 1
