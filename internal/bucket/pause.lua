-- pause.lua: an operator pauses or resumes the gateway. It notes when (µs). Composed before act.lua.
-- KEYS 1 hold
-- ARGV 1 "1" to pause, "0" to resume  2 why  3 channel  4 gateway
-- returns 1
redis.call('HSET', KEYS[1], 'paused', ARGV[1], 'why', ARGV[2], 'paused_at', int(now_us('0')))
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
