-- recall.lua: a process tells Redis again what it has seen set live for lanes and routes, after Redis has lost it. What Redis has of others stays.
-- Composed after NowLua, permits.lua and lanes.lua.
-- KEYS 1 pace  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 the epoch and  2 the version that Redis has, as the caller has read them  3 the epoch and  4 the version from now on  5 channel  6 gateway, then for
--      each: lane:LANE or route:ROUTE, and its text, '' if it was taken back
-- returns 1, or 0 if something was set meanwhile: then nothing is written.
lanes.open(KEYS[1], 1)
if int(lanes.state('oe')) ~= ARGV[1] or int(lanes.state('ov')) ~= ARGV[2] then return 0 end
local key = L.prefix .. 'overrides'
for i = 7, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', key, ARGV[i]) else redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
end
L.overridden = true
for i = 7, #ARGV, 2 do
  local lane = string.match(ARGV[i], '^lane:(.*)$')
  if lane then lanes.look(lane, lanes.record(lane)) end -- a lane without jobs too: it may be throttled
end
lanes.set('oe', tonumber(ARGV[3]))
lanes.set('ov', tonumber(ARGV[4]))
lanes.save()
redis.call('PUBLISH', ARGV[5], ARGV[6])
return 1
