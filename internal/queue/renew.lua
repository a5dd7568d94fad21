-- renew.lua extends the leases of tasks by Redis's clock. A task that has none gets none. Composed after NowLua.
-- KEYS 1 lease
-- ARGV the tasks
-- Returns 1.
local ends = int(math.floor(now_us('0') / 1000000) + 30) -- as dequeue.lua has it
for _, task in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 'XX', ends, task) end
return 1
