-- take.lua: an admission check alone, for tests and benchmarks. Composed after NowLua and an algorithm's fragments.
-- KEYS 1 bucket
-- ARGV 1 now (µs, 0 = Redis's)  2 how many to take, one after the other  3 cost of each
--      4 1 if the key stays until it is deleted: it expires in real time, and the caller's clock may be slower  5… what bucket_load reads
-- Returns {taken, retry (µs), reset (µs), remaining of each limit …}
local n, cost = tonumber(ARGV[2]), tonumber(ARGV[3])
local b = bucket_load(KEYS[1], now_us(ARGV[1]), ARGV, 5)
local taken = 0
while taken < n and bucket_take(b, cost) do taken = taken + 1 end
bucket_save(b)
if ARGV[4] == '1' then redis.call('PERSIST', KEYS[1]) end
local out = {taken, int(bucket_retry(b, cost)), int(bucket_reset(b))}
for i, left in ipairs(bucket_remaining(b)) do out[i + 3] = int(left) end
return out
