-- members.lua reads which members of a gateway's sorted set have no record.
-- KEYS 1 sorted set
-- ARGV 1 prefix of records, then ids
-- returns the ids that are in the set, and have no record
local found = {}
for i = 2, #ARGV do
  if redis.call('EXISTS', ARGV[1] .. ARGV[i]) == 0 and redis.call('ZSCORE', KEYS[1], ARGV[i]) then found[#found + 1] = ARGV[i] end
end
return found
