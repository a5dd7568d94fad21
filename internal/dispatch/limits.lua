-- limits.lua: an operator sets a gateway's limits live, or a dispatcher found that Redis has lost the version that is in force. Composed after NowLua, before act.lua.
-- KEYS 1 limits  2 pace
-- ARGV 1 now (µs, 0 = Redis's)  2 the newest version that the caller has seen  3 only to set them: the limits, separated by blanks; '' = those of the
--      file hold again. Without it they stay as they are, and get a new version only if a newer one was seen.
-- returns the version in force. It never goes back, even if Redis lost it: the pacer refuses any process that has an older one than it has seen.
local version = tonumber(redis.call('HGET', KEYS[1], 'version')) or 0
local seen = math.max(tonumber(ARGV[2]), tonumber(redis.call('HGET', KEYS[2], 'v')) or 0)
if ARGV[3] then redis.call('HSET', KEYS[1], 'limits', ARGV[3])
elseif version >= seen then return version end
version = math.max(now_us(ARGV[1]), version + 1, seen + 1)
redis.call('HSET', KEYS[1], 'version', int(version))
return version
