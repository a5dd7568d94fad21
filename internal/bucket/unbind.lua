-- unbind.lua gives back slots of a gateway with lanes that were not used: their permits on the route and in the lane, and the job, if it is still theirs. The job goes to
-- the head of its line, with its share. Composed after NowLua, permits.lua, lanes.lua and scopes.lua. release.lua has given back the account's permits.
-- KEYS 1 pace  2 active  3 lease  4 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 weight of a lane, then for each slot, the latest first: slot (µs), the moment at which exact windows count it (µs), cost, class, route, lane, task ('' = it is in other hands), line,
--      lease, marks (scopes.lua)
-- returns how many jobs went back. A job that a sweep has taken is left to the sweep.
lanes.open(KEYS[1], tonumber(ARGV[1]))
local back = 0
for i = 2, #ARGV, 10 do
  local slot, edge, cost, route, lane = tonumber(ARGV[i]) + L.moved, tonumber(ARGV[i + 1]) + L.moved, tonumber(ARGV[i + 2]), ARGV[i + 4], ARGV[i + 5]
  local flow, task, line, r = ARGV[i + 3] .. ':' .. route, ARGV[i + 6], tonumber(ARGV[i + 7]), lanes.record(lane)
  permits.back(lanes.logs_of(route), cost, slot, edge)
  permits.back(r.logs, cost, slot, edge)
  scopes.over('r:' .. route, SCOPES_ROUTE, tonumber(ARGV[i + 9]), slot, ARGV[i + 8])
  scopes.over('l:' .. lane, SCOPES_LANE, tonumber(ARGV[i + 9]), slot, ARGV[i + 8])
  L.used[route] = true
  lanes.reopen(route)
  if task ~= '' and redis.call('LREM', KEYS[2], 1, task) > 0 then
    redis.call('ZREM', KEYS[3], task)
    redis.call('HSET', string.gsub(KEYS[2], 'active$', 't:') .. task, 'state', 'pending', 'pending_since', int(now_us('0')) .. '000')
    redis.call('RPUSH', lanes.line(flow, line, lane), task)
    r.work[flow] = bit.bor(r.work[flow] or 0, line)
    r.tag[flow] = math.max((r.tag[flow] or 0) - cost / r.weight, lanes.time(flow))
    lanes.count(flow, 1)
    back = back + 1
  end
  lanes.look(lane, r)
end
lanes.save()
return back
