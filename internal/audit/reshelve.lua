-- reshelve.lua adds jobs to the sets of one batch's parked jobs, and removes them, as their records say.
-- KEYS the records
-- ARGV 1 batch  2 how many reasons there are, then the reasons, then the ids in the order of KEYS
local batch, reasons = ARGV[1], tonumber(ARGV[2])
for i, record in ipairs(KEYS) do
  local id = ARGV[2 + reasons + i]
  local v = redis.call('HMGET', record, '@state', '@reason', '@batch', '@parked_at')
  local home = v[1] == 'parked' and v[3] == batch and v[2]
  for r = 3, 2 + reasons do
    local set = shelf_batch(record, ARGV[r], batch)
    if ARGV[r] ~= home then
      redis.call('ZREM', set, id)
    elseif v[4] then
      redis.call('ZADD', set, v[4], id)
    end
  end
end
