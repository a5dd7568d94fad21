-- astray.lua reads tasks that perhaps no worker holds any more.
-- KEYS 1 active  2 lease  3… asynq's own sets, in which no task of ours belongs: retry, archived, scheduled, completed
-- ARGV 1 now (µs, 0 = Redis's)  2 a lease that ends within this time is reported (µs from now)  3 most tasks of each kind
-- returns {now, task, end of its lease (s), task, '' (active without a lease, or in one of the sets), …}, all as text
local now, most = now_us(ARGV[1]), tonumber(ARGV[3])
local low = string.format('(%.6f', (now + tonumber(ARGV[2])) / 1000000)
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', low, 'WITHSCORES', 'LIMIT', 0, most)
table.insert(found, 1, int(now))
local function add(task)
  found[#found + 1], found[#found + 2] = task, ''
end
if redis.call('LLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  for _, task in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if not redis.call('ZSCORE', KEYS[2], task) then add(task) end
  end
end
for i = 3, #KEYS do
  for _, task in ipairs(redis.call('ZRANGE', KEYS[i], 0, most - 1)) do add(task) end
end
return found
