-- over.lua: a call of a gateway with lanes ended, and frees its places among the calls in flight of its route and its lane. Composed after NowLua, permits.lua, lanes.lua
-- and scopes.lua.
-- KEYS 1 pace  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 slot (µs)  2 route  3 lane  4 lease  5 marks (scopes.lua)  6 channel that wakes processes that wait  7 gateway
-- returns 1 if a process may have waited for that.
lanes.open(KEYS[1], 1)
local slot, route, lane, marks = tonumber(ARGV[1]) + L.moved, ARGV[2], ARGV[3], tonumber(ARGV[5])
scopes.over('r:' .. route, SCOPES_ROUTE, marks, slot, ARGV[4])
scopes.over('l:' .. lane, SCOPES_LANE, marks, slot, ARGV[4])
local waited = lanes.state('B' .. route) > 0
lanes.reopen(route)
local r = lanes.record(lane)
if r.x > 0 then
  waited = waited or next(r.work) ~= nil
  lanes.look(lane, r)
end
lanes.save()
if waited then redis.call('PUBLISH', ARGV[6], ARGV[7]) end
return waited and 1 or 0
