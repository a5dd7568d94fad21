-- unclaim.lua: an offer has been answered, and gives its claims back. Those of other offers of the same gateway stay. It is safe to run twice.
-- KEYS claims of ids: of one hash tag in a cluster
-- ARGV 1 the offer that has claimed them
-- returns how many ids are no longer claimed
local free = 0
for _, claim in ipairs(KEYS) do
  if redis.pcall('HDEL', claim, ARGV[1]) == 1 and redis.call('HLEN', claim) == 1 then free = free + redis.call('DEL', claim) end
end
return free
