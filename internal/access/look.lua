-- look.lua reads why there is no access token. Composed after NowLua.
-- KEYS 1 access
-- ARGV 1 now (µs, 0 = Redis's)
-- returns {why, when it is tried again (µs)}; it is empty if there is one, or if none was asked for
local got = redis.call('HMGET', KEYS[1], 'why', 'from', 'again')
if not got[1] or tonumber(got[2]) > now_us(ARGV[1]) then return {} end
return {got[1], got[3]}
