-- request_decide.lua: a second person approves or rejects what a person has asked for. The process of the approver then carries it out (request_carry.lua). Composed before act.lua.
-- A person can't approve what they asked for themselves (approval_is), but may take it back.
-- KEYS
--    1  the request
--    2  requests
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  approve | reject
--    4  who
--    5  the owner of their token ('' = unknown)
--    6  how their identity is known
--    7  why
--    8  the process that carries it out
--    9  how long its lease lasts (µs)
-- returns 0 there is no such request  1 decided  2 it was decided before  3 it is too late  4 they asked for it themselves; only 1 writes anything
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
