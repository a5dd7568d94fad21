-- end.lua: a call ended.
-- KEYS 1 flight  2 hold
-- ARGV 1 lease ('' = none)  2 slot (µs): if its call was sent ahead after a hold without a result, another may go
-- returns 1.
if ARGV[1] ~= '' then redis.call('ZREM', KEYS[1], ARGV[1]) end
if redis.call('HGET', KEYS[2], 'slot') == ARGV[2] then redis.call('HDEL', KEYS[2], 'probe', 'slot') end
return 1
