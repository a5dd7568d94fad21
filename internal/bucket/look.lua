-- look.lua reads what keeps a gateway's calls back. Composed after NowLua.
-- KEYS 1 hold  2 pace  3 limits set live
-- ARGV 1 now (µs, 0 = Redis's)
-- returns {held until (µs, 0 = not held), reason, 1 if one call goes first, 1 if paused, why, 1 if the circuit is open,
--      2 if it is not and the end of the hold is unknown,
--      1 if the gateway does not let calls in,
--      1 if the pacer has refused for a while any process with the version of the limits that Redis knows,
--      since when it is paused, or else when the trouble began that caused the hold (µs, 0 = unknown),
--      until when a brake keeps calls back at most (µs, 0 = no brake does), which brake, since when}
local A_WHILE = 2000000 -- a dispatcher repairs it sooner
local v = redis.call('HMGET', KEYS[1], 'until', 'reason', 'need', 'paused', 'why', 'circuit', 'endless', 'paused_at', 'outages', 'brake_until', 'brake_why', 'brake_since')
local pace, version = redis.call('HMGET', KEYS[2], 'v', 'c'), tonumber(redis.call('HGET', KEYS[3], 'version')) or 0
local held, now = tonumber(v[1]) or 0, now_us(ARGV[1])
local stale = (tonumber(pace[1]) or 0) > version and now - (tonumber(pace[2]) or 0) > A_WHILE
if held <= now then held = 0 end
local paused = v[4] == '1'
local braked = (tonumber(v[10] or '') or 0) > now
local since = paused and v[8] or not paused and v[3] == '1' and string.match(v[9] or '', '(%d+):$')
return {int(held), v[2] or '', v[3] == '1' and held == 0 and 1 or 0, paused and 1 or 0, paused and v[5] or '', v[6] and 1 or v[7] and v[3] == '1' and 2 or 0,
  v[7] == '2' and v[3] == '1' and 1 or 0, stale and 1 or 0, int(tonumber(since) or 0), braked and int(v[10]) or '0', braked and v[11] or '', braked and v[12] or '0'}
