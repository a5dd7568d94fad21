-- waiting.lua: members of one of a gateway's sorted sets, with the generation of each. Reads only.
-- KEYS 1 sorted set, and of jobs that wait out a back-off: 2 hold  3 pending
-- ARGV 1 now (µs, 0 = Redis's)  2 "1": those with scores up to now, the latest first; else the oldest of all  3 how many  4 prefix of records
-- returns {µs until the first score that is still to come (-1: none), id, generation, id, generation, …}
-- While the circuit is open, jobs that failed stay behind those that were not called yet: the next call sent ahead is another
-- job's, and a few jobs that always fail can't keep it open.
local now = now_us(ARGV[1])
if KEYS[2] and redis.call('HEXISTS', KEYS[2], 'circuit') == 1 and redis.call('LLEN', KEYS[3]) > 0 then return {-1} end
local ids
if ARGV[2] == '1' then
  ids = redis.call('ZREVRANGEBYSCORE', KEYS[1], int(now), '-inf', 'LIMIT', 0, tonumber(ARGV[3]))
else
  ids = redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1)
end
local next_in = -1
if #ids < tonumber(ARGV[3]) then
  local first = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then next_in = tonumber(first[2]) - now end
end
local found = {next_in}
for _, id in ipairs(ids) do
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', ARGV[4] .. id, 'g') or '0'
end
return found
