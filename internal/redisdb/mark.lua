-- mark.lua: a write for whose arrival at the replicas one may wait. The DEL of nothing comes first, as Redis lets a script that has
-- begun to write go on when its memory is full: what was written down then must not wait for the mark.
-- KEYS 1 mark  2 a key that is never set
redis.call('DEL', KEYS[2])
return redis.call('SET', KEYS[1], '', 'PX', 86400000)
