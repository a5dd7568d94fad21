-- due.lua: jobs whose back-off or time has passed go to the head of the queue, the one due first at the very head.
-- KEYS 1 retrying or scheduled  2 pending  3 costs, then for each job: record, task
-- ARGV 1 now (µs, 0 = Redis's)  2 state they are in: retrying | scheduled  3 gateway  4 wake channel, then for each job, the one
--      due last first: id, generation, new task id, task message
-- returns how many were moved
local now, moved = now_us(ARGV[1]), 0
local idle = redis.call('LLEN', KEYS[2]) == 0
local key = 4
for a = 5, #ARGV, 4 do
  local record = KEYS[key]
  local v = redis.call('HMGET', record, 's', 'g', 'c')
  local due = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[a]))
  if due and due <= now and v[1] == ARGV[2] and v[2] == ARGV[a + 1] then
    redis.call('ZREM', KEYS[1], ARGV[a])
    become(record, 'queued', 'g', int(tonumber(v[2]) + 1))
    redis.call('HDEL', record, 'due')
    pend('RPUSH', KEYS[2], KEYS[key + 1], ARGV[a + 2], ARGV[a + 3], KEYS[3], tonumber(v[3]) or 1, now)
    moved = moved + 1
  elseif due and v[1] ~= ARGV[2] then
    redis.call('ZREM', KEYS[1], ARGV[a]) -- the record says otherwise, and the record is right
  end
  key = key + 2
end
if idle and moved > 0 then redis.call('PUBLISH', ARGV[4], ARGV[3]) end
return moved
