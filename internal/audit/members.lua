-- members.lua: which members of a gateway's sorted set have no record. Reads only.
-- KEYS 1 sorted set
-- ARGV 1 prefix of records, then ids
-- returns the ids that stand in the set, and have none
local found = {}
for i = 2, #ARGV do
  if redis.call('EXISTS', ARGV[1] .. ARGV[i]) == 0 and redis.call('ZSCORE', KEYS[1], ARGV[i]) then found[#found + 1] = ARGV[i] end
end
return found
