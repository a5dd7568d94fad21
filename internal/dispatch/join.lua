-- join.lua appends one trail to another, and gives the result the name of the appended one. What records say about places in the first trail stays true.
-- So does the chain of the first one. The entries of the second one get new links in it, and an entry after them says how their own chain ended.
-- KEYS 1 the trail that goes first  2 the one whose entries come after it, and whose name it gets  3, 4 their chains  5, 6 how these end
-- ARGV 1 how the chain of the second one ends, as it was read ('' = there is none)  2 the entry that says so ('' = none)
-- returns 1 joined  0 there is no first one  2 that chain has another end by now: nothing was written
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if (redis.call('GET', KEYS[6]) or '') ~= ARGV[1] then return 2 end
for _, line in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do redis.call('RPUSH', KEYS[1], line) end
if ARGV[2] ~= '' then redis.call('RPUSH', KEYS[1], ARGV[2]) end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[4], KEYS[6])
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[4]) end
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('RENAME', KEYS[5], KEYS[6]) end
return 1
