-- look.lua: why there is no access token. Composed after NowLua.
-- KEYS 1 access
-- ARGV 1 now (µs, 0 = Redis's)
-- returns {why, when it is tried again (µs)}; nothing where there is one, or where nobody has asked for one
local got = redis.call('HMGET', KEYS[1], 'why', 'from', 'again')
if not got[1] or tonumber(got[2]) > now_us(ARGV[1]) then return {} end
return {got[1], got[3]}
