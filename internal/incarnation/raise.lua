-- raise.lua: a gateway's data gets a newer format, that of the caller, or its own format written the caller's way. The v changes, so a process that knows an older one must look before its next call, and finds out. Composed after NowLua
-- and alive.lua.
-- KEYS 1 alive  ARGV 1 now (µs, 0 = Redis's)  2 v as the caller has seen it  3 the caller's format
-- returns 1 written  0 the data has changed meanwhile: look again
local v = redis.call('HMGET', KEYS[1], 'v', 'format')
if v[1] ~= ARGV[2] or (tonumber(v[2]) or 0) > tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], 'format', ARGV[3], 'v', alive_changed(v[1], now_us(ARGV[1])))
return 1
