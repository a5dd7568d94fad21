-- rejected.lua reads jobs that are parked as rejected, oldest first, with what is needed to readmit them.
-- KEYS 1 parked:rejected
-- ARGV 1 the place after which to begin (a score, µs; 0 = at the oldest)  2 how many  3 prefix of records
-- returns {id, generation, cost, place, id, generation, cost, place, …}; the generation is -1 if the record is damaged
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]))
local found = {}
for i = 1, #ids, 2 do
  local v = redis.pcall('HMGET', ARGV[3] .. ids[i], '@generation', '@cost')
  local n, damaged = #found, v.err or v[1] and not string.find(v[1], '^%d+$')
  local cost = v[2] and string.find(v[2], '^%d+$') and v[2] or '1'
  found[n + 1], found[n + 2], found[n + 3], found[n + 4] = ids[i], damaged and '-1' or v[1] or '0', cost, ids[i + 1]
end
return found
