-- begin.lua: the first sign of life that a gateway's data ever had. Composed after NowLua.
-- KEYS 1 alive  4 counters  ARGV 1 now (µs, 0 = Redis's)  2 its line: what was seen here before it was emptied, and the name of its first incarnation  3 the caller's format
-- returns 1 written  0 another process was faster, maybe a producer of a newer format
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local format = redis.pcall('HGET', KEYS[4], 'format')
if type(format) == 'string' and (tonumber(format) or 0) > tonumber(ARGV[3]) then return 0 end
local now = int(now_us(ARGV[1]))
redis.call('HSET', KEYS[1], 'line', ARGV[2], 'at', now, 'v', now, 'format', ARGV[3])
if string.find(ARGV[2], ' ', 1, true) then redis.call('HSET', KEYS[1], 'emptied', now) end
return 1
