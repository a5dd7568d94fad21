-- granted.lua: an access token was fetched. Composed after NowLua.
-- KEYS 1 access of these credentials  2 access
-- ARGV 1 now (µs, 0 = Redis's)  2 who fetched it  3 the token  4 how long it lives and  5 in how long the next one must be fetched, since it was asked for (µs)
-- returns its number, or 0 if another process was asked to fetch it since
local call = redis.call
call('HDEL', KEYS[1], '')
local now = now_us(ARGV[1])
local got = call('HMGET', KEYS[1], 'owner', 'asked', 'dropped')
if got[1] ~= ARGV[2] then return '0' end
local asked = math.min(tonumber(got[2]), now)
local ends = asked + tonumber(ARGV[4])
call('HSET', KEYS[1], 'token', ARGV[3], 'number', int(now), 'ends', int(ends), 'renew', int(asked + tonumber(ARGV[5])), 'replaced', got[3] or 0)
call('HDEL', KEYS[1], 'owner', 'asked', 'until', 'fails', 'failed', 'again', 'dropped')
call('PEXPIREAT', KEYS[1], int(math.ceil(ends / 1000)))
call('DEL', KEYS[2])
return int(now)
