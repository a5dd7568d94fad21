-- dequeue.lua: what asynq's own dequeue does, for several tasks in one step.
-- KEYS 1 pending  2 paused  3 active  4 lease
-- ARGV 1 when the leases end (Unix seconds)  2 prefix of tasks  3 how many at most
-- returns the tasks' messages, in the order of the queue; false for a task without one
if redis.call('EXISTS', KEYS[2]) == 1 then return {} end
local messages, leases = {}, {}
for i = 1, tonumber(ARGV[3]) do
  local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
  if not id then break end
  local task = ARGV[2] .. id
  local hash = type(redis.pcall('HSET', task, 'state', 'active')) ~= 'table' -- what is none is left to a sweep, and keeps no other task
  if hash then redis.call('HDEL', task, 'pending_since') end
  messages[i] = hash and redis.call('HGET', task, 'msg')
  leases[2 * i - 1], leases[2 * i] = ARGV[1], id
end
if #leases > 0 then redis.call('ZADD', KEYS[4], unpack(leases)) end
return messages
