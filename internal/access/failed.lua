-- failed.lua: an access token could not be fetched. It is not asked for again before a back-off is over, which doubles with each failure. Composed after NowLua.
-- KEYS 1 access of these credentials  2 access
-- ARGV 1 now (µs, 0 = Redis's)  2 who tried  3 first and  4 longest back-off (µs; 0: none, the fault was the caller's machine)
--      5 how long the other end asked to be left alone (µs)  6 by which part of itself the back-off is shortened  7 why
-- returns how long it is not asked for (µs); -1 if another process was asked to fetch it since
-- Hash of KEYS[2]: why  from (µs since when there is no token)  again (µs when it is tried again)
local call = redis.call
call('HDEL', KEYS[1], '')
local now = now_us(ARGV[1])
local got = call('HMGET', KEYS[1], 'owner', 'fails', 'ends', 'token')
if got[1] ~= ARGV[2] then return '-1' end
call('HDEL', KEYS[1], 'owner', 'asked', 'until')
local most = tonumber(ARGV[4])
if most == 0 then return '0' end
local fails = (tonumber(got[2] or '') or 0) + 1
local wait = math.min(tonumber(ARGV[3]) * 2 ^ math.min(fails - 1, 20), most)
wait = math.max(wait * (1 - tonumber(ARGV[6])), tonumber(ARGV[5]))
local ends = got[4] and tonumber(got[3] or '') or 0
if ends <= now then call('HDEL', KEYS[1], 'token') end
call('HSET', KEYS[1], 'fails', fails, 'failed', int(now), 'again', int(now + wait))
local kept = int((math.max(now + wait, ends) + 120000000) / 1000)
call('PEXPIREAT', KEYS[1], kept)
call('HSET', KEYS[2], 'why', ARGV[7], 'from', int(math.max(ends, now)), 'again', int(now + wait))
call('PEXPIREAT', KEYS[2], kept)
return int(wait)
