-- mark.lua: a write whose arrival at the replicas can be waited for. The DEL of a missing key comes first, because Redis lets a script that has
-- begun to write continue even if its memory is full: what was recorded then must not wait for the mark.
-- KEYS 1 mark  2 a key that is never set
redis.call('DEL', KEYS[2])
return redis.call('SET', KEYS[1], '', 'PX', 86400000)
