-- waiting.lua reads the members of one of a gateway's sorted sets that are due, with the generation of each.
-- KEYS 1 sorted set
-- ARGV 1 now (µs, 0 = Redis's)  2 first | last: which of those with scores up to now comes first  3 how many  4 prefix of records
-- returns {µs until the first score that is still to come (-1: none), id, generation, id, generation, …}; the generation is 0 without a record, and
-- -1 if the record is damaged
local now = now_us(ARGV[1])
local ids
if ARGV[2] == 'last' then
  ids = redis.call('ZREVRANGEBYSCORE', KEYS[1], int(now), '-inf', 'LIMIT', 0, tonumber(ARGV[3]))
else
  ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[3]))
end
local next_in = -1
if #ids < tonumber(ARGV[3]) then
  local first = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then next_in = tonumber(first[2]) - now end
end
local found = {next_in}
for _, id in ipairs(ids) do
  found[#found + 1] = id
  local generation = redis.pcall('HGET', ARGV[4] .. id, '@generation')
  found[#found + 1] = type(generation) == 'table' and '-1' or not generation and '0' or string.find(generation, '^%d+$') and generation or '-1'
end
return found
