-- brakes_lift.lua: a person lets calls go for a time although no limit of money has room for them. What is called meanwhile counts. Composed before act.lua.
-- KEYS 1 brakes  2 hold  3 the request that was approved, and 4 requests (request.lua), if a second person had to approve: this ends the request, so that it is used once
-- ARGV 1 now (µs, 0 = Redis's)  2 for how long (µs, 0 = the brakes are in force from now on)  3 "1": a loss from before now, or from before it was asked for, is no longer charged  4 who  5 why  6 id of the request
-- returns 1 done  0 the request was over already, and nothing was done
local known = now_us(ARGV[1]) -- a person has looked at what was lost until then
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
