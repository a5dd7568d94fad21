-- errors.lua: what a stretch of a set of parked jobs has for errors, each text once. Reads only.
-- KEYS 1 parked:<reason>, or its part of one batch
-- ARGV 1 prefix of records  2 lowest score  3 highest score  4 how many jobs at most
-- returns {jobs looked at, last score (false if there was none), error1, error2, …}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], ARGV[3], 'WITHSCORES', 'LIMIT', 0, ARGV[4])
local seen, errors = {}, {#found / 2, found[#found] or false}
for i = 1, #found, 2 do
  local e = redis.call('HGET', ARGV[1] .. found[i], 'e') or ''
  if not seen[e] then
    seen[e] = true
    errors[#errors + 1] = e
  end
end
return errors
