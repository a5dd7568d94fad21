-- rebook.lua rewrites the books of a batch, or of parked jobs, unless they have changed since they were read.
-- KEYS 1 the books  2 the key that they expire with: the batch's ids, or themselves
-- ARGV 1 how many fields were read  2 "1": the books have no others, then each with its value, then the new fields of places (and live), each with its value
-- returns 1 written  0 they have changed: nothing was written
local read = tonumber(ARGV[1])
if ARGV[2] == '1' and redis.call('HLEN', KEYS[1]) ~= read then return 0 end
for i = 3, 2 * read + 1, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then return 0 end
end
for i = 3, 2 * read + 1, 2 do
  if string.find(ARGV[i], ':', 1, true) then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
for i = 2 * read + 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
local stay = redis.call('PTTL', KEYS[2])
if stay > 0 then redis.call('PEXPIRE', KEYS[1], stay) end
return 1
