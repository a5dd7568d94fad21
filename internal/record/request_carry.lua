-- request_carry.lua: a process that carries out what was approved extends its lease, or takes over from one whose lease has run out, or reports that it is done.
-- KEYS 1 the request  2 requests
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 the process  4 how long its lease lasts from now on (µs, 0 = it is done)
-- returns 1 written  0 it is not approved, is over, or another process carries it out
local now, key = now_us(ARGV[1]), KEYS[1]
local v = redis.call('HMGET', key, 'state', 'owner', 'lease')
if v[1] ~= 'approved' or v[2] ~= ARGV[3] and now < (tonumber(v[3] or '') or 0) then return 0 end
if ARGV[4] == '0' then
  request_over(key, KEYS[2], ARGV[2], 'done')
else
  redis.call('HSET', key, 'owner', ARGV[3], 'lease', int(now + tonumber(ARGV[4])))
end
return 1
