-- join.lua: puts one trail behind another one, and gives it the other one's name. What records say of places in the first one stays true.
-- KEYS 1 the trail that goes first  2 the one whose entries go behind it, and whose name it gets
-- returns 1 joined  0 there is no first one
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for _, line in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do redis.call('RPUSH', KEYS[1], line) end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
