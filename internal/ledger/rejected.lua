-- rejected.lua: jobs that are parked as rejected, oldest first, with what taking them in again needs. Reads only.
-- KEYS 1 parked:rejected
-- ARGV 1 the place behind which to begin (a score, µs; 0 = at the oldest)  2 how many  3 prefix of records
-- returns {id, generation, cost, place, id, generation, cost, place, …}
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]))
local found = {}
for i = 1, #ids, 2 do
  local v = redis.call('HMGET', ARGV[3] .. ids[i], 'g', 'c')
  local n = #found
  found[n + 1], found[n + 2], found[n + 3], found[n + 4] = ids[i], v[1] or '0', v[2] or '1', ids[i + 1]
end
return found
