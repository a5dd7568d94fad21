-- unclass.lua puts jobs of a class that a gateway no longer has behind those of the usual one, in their order.
-- KEYS 1 the class's line  2 pending  3 classes
-- ARGV 1 the class  2 how many at most
-- returns how many
local most, moved = tonumber(ARGV[2]), 0
while moved < most and redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT') do moved = moved + 1 end
if moved < most then redis.call('HDEL', KEYS[3], ARGV[1]) end
return moved
