-- refused.lua: the gateway answered 401 to an access token. The token is dropped, unless it was fetched just now to replace another that was refused: then the fault is
-- not the token's. Composed after NowLua.
-- KEYS 1 access of these credentials
-- ARGV 1 now (µs, 0 = Redis's)  2 the token's number  3 for how long such a token counts as fetched just now (µs)
-- returns 1: another token goes, this one was dropped now or before; 0: it stays
local call = redis.call
call('HDEL', KEYS[1], '')
local now = now_us(ARGV[1])
local got = call('HMGET', KEYS[1], 'number', 'token', 'replaced')
if got[1] ~= ARGV[2] or not got[2] then return 1 end
local age = now - tonumber(got[1]) -- below 0: Redis's clock was set back since
if got[3] == '1' and age >= 0 and age < tonumber(ARGV[3]) then return 0 end
call('HDEL', KEYS[1], 'token', 'ends', 'renew')
call('HSET', KEYS[1], 'dropped', 1)
return 1
