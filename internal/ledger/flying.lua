-- flying.lua reads how many jobs of each lane are in flight.
-- KEYS 1 open  2 active
-- ARGV 1 prefix of records  2 how many jobs are looked at, at most
-- returns {1 if these were all, lane, jobs, lane, jobs, …}
local most, of = tonumber(ARGV[2]), {}
local function count(id, task)
  local v = redis.call('HMGET', ARGV[1] .. id, '@lane', '@state', '@generation')
  if task and (v[3] ~= task or v[2] ~= 'queued') then return end -- its attempt was begun, or it is an old one
  local lane = v[1] or ''
  of[lane] = (of[lane] or 0) + 1
end
local open, active = redis.call('ZRANGE', KEYS[1], 0, int(most)), redis.call('LRANGE', KEYS[2], 0, int(most))
for i = 1, math.min(#open, most) do count(open[i]) end
for i = 1, math.min(#active, most) do
  local id, generation = string.match(active[i], '^(.+)~(%d+)$')
  if id then count(id, generation) end
end
local out = {math.max(#open, #active) <= most and 1 or 0}
for lane, n in pairs(of) do out[#out + 1], out[#out + 2] = lane, n end
return out
