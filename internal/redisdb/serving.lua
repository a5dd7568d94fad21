-- serving.lua: a dispatcher reports what it is and that it is alive, or that it stops. Composed after NowLua.
-- KEYS 1 processes (hash: HOST.PID, "its last sign of life in µs, and what it says of itself as JSON")
-- ARGV 1 now (µs, 0 = Redis's)  2 HOST.PID  3 what it says of itself ('' = it stops)  4 how long a silent one is kept (µs)
-- returns 1
local now = now_us(ARGV[1])
local known = redis.call('HGETALL', KEYS[1])
for i = 1, #known, 2 do
  if (tonumber(string.match(known[i + 1], '^%d+')) or 0) < now - tonumber(ARGV[4]) then redis.call('HDEL', KEYS[1], known[i]) end
end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[2])
else
  redis.call('HSET', KEYS[1], ARGV[2], int(now) .. ' ' .. ARGV[3])
end
return 1
