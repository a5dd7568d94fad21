-- brakes_lift.lua: a person lets calls go that no limit of money has room for, for a time. What is called meanwhile counts. Composed before act.lua.
-- KEYS 1 brakes  2 hold  3 the request that was approved, and 4 requests (request.lua), where a second person had to: it is over with this, so that nobody lifts them twice
-- ARGV 1 now (µs, 0 = Redis's)  2 for how long (µs, 0 = from now on they are in force)  3 "1": a loss from before now, or from before it was asked for, is charged no more  4 who  5 why  6 id of the request
-- returns 1 done  0 the request is over already: nothing was
local known = now_us(ARGV[1]) -- until then somebody has looked at what was lost
if KEYS[3] then
  local v = redis.call('HMGET', KEYS[3], 'state', 'asked')
  if v[1] ~= 'approved' then return 0 end
  known = math.max(tonumber(v[2] or '') or 0, tonumber(redis.call('HGET', KEYS[1], 'forgiven') or '') or 0)
  request_over(KEYS[3], KEYS[4], ARGV[6], 'done')
end
local now, span = now_us(ARGV[1]), tonumber(ARGV[2])
if span > 0 then
  redis.call('HSET', KEYS[1], 'lifted', int(now + span), 'lifted_at', int(now), 'lifted_by', ARGV[4], 'lifted_why', ARGV[5])
else
  redis.call('HDEL', KEYS[1], 'lifted', 'lifted_at', 'lifted_by', 'lifted_why')
end
if ARGV[3] == '1' then redis.call('HSET', KEYS[1], 'forgiven', int(known)) end
redis.call('HDEL', KEYS[2], unpack(MONEY_WAITS))
return 1
