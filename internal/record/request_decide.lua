-- request_decide.lua: a second person approves or rejects what somebody has asked for. Whoever approves it does it then (request_carry.lua). Composed before act.lua.
-- Nobody approves what he has asked for (approval_is). He may take it back.
-- KEYS 1 the request  2 requests
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 approve | reject  4 who  5 whose token he shows ('' = nobody has said so)  6 how it is known that it is he  7 why  8 who does it  9 how long it is his to do (µs)
-- returns 0 there is none  1 decided  2 it was decided before  3 it is too late  4 he has asked for it himself; nothing was written but with 1
local now, key = now_us(ARGV[1]), KEYS[1]
local v = redis.call('HMGET', key, 'state', 'until', 'via', 'who', 'person')
if not v[1] then return 0 end
if v[1] ~= 'asked' then return 2 end
if now >= (tonumber(v[2]) or 0) then return 3 end
local who = v[4] or ''
if v[3] == 'token' and (v[5] or '') ~= '' then who = who .. ' ' .. v[5] end
if ARGV[3] == 'approve' and approval_is(v[3] or '', who, ARGV[4], ARGV[5]) then return 4 end
redis.call('HSET', key, 'decider', ARGV[4], 'decider_via', ARGV[6], 'decider_why', ARGV[7], 'decided', int(now))
if ARGV[3] == 'reject' then
  request_over(key, KEYS[2], ARGV[2], 'rejected')
else
  redis.call('HSET', key, 'state', 'approved', 'owner', ARGV[8], 'lease', int(now + tonumber(ARGV[9])))
  redis.call('ZADD', KEYS[2], '+inf', ARGV[2])
  redis.call('PERSIST', key)
end
return 1
