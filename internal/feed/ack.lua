-- ack.lua: a reader acknowledges all outcomes up to a cursor. Composed after NowLua and readers.lua.
-- KEYS 1 feed  2 outcomes
-- ARGV 1 reader  2 cursor
-- returns {the cursor up to which it has acknowledged now: never an earlier one than before, nor one that the feed has not reached, and in an epoch that is lost only what was told by that time; how many outcomes come after it}
local v = redis.call('HMGET', KEYS[1], 'epoch', 'time', 'number', 'r:' .. ARGV[1])
local epoch, time = place_of(ARGV[2])
local last_epoch, last_time, had_epoch, had_time = tonumber(v[1] or '') or 0, tonumber(v[2] or '') or 0, place_of(v[4])
if epoch > last_epoch then epoch = last_epoch end -- in an epoch that is lost, what was told since has later times
if epoch == last_epoch and time > last_time then time = last_time end
if epoch < had_epoch or epoch == had_epoch and time < had_time then epoch, time = had_epoch, had_time end
local cursor = int(epoch) .. '-' .. int(time)
if epoch > had_epoch or time > had_time then redis.call('HSET', KEYS[1], 'r:' .. ARGV[1], cursor) end
return {cursor, (behind(KEYS[2], tonumber(v[3] or '') or 0, epoch, time))}
