-- limits.lua: an operator sets a gateway's limits live.
-- KEYS 1 limits
-- ARGV 1 the limits, with a space between; '' = the file's hold again
redis.call('HSET', KEYS[1], 'limits', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'version', 1)
