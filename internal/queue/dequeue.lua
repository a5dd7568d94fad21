-- dequeue.lua: what asynq's own dequeue does, for several tasks in one step.
-- KEYS 1 pending  2 paused  3 active  4 lease
-- ARGV 1 when the leases end (Unix seconds)  2 prefix of tasks  3 how many at most
-- returns the tasks' messages, in the order of the queue; false for a task without one
local call = redis.call
if call('EXISTS', KEYS[2]) == 1 then return {} end

-- pull moves the first tasks from pending to active. A Redis whose memory is full refuses the first move, and with it all.
local function pull(most)
  local first = call('RPOPLPUSH', KEYS[1], KEYS[3])
  if not first or most == 1 then return {first or nil} end
  local ids = call('RPOP', KEYS[1], most - 1)
  if not ids or #ids == 0 then return {first} end
  call('LPUSH', KEYS[3], unpack(ids))
  return {first, unpack(ids)}
end

local messages, leases = {}, {}
for i, id in ipairs(pull(tonumber(ARGV[3]))) do
  local task = ARGV[2] .. id
  local hash = type(redis.pcall('HSET', task, 'state', 'active')) ~= 'table' -- what is none is left to a sweep, and keeps no other task
  if hash then call('HDEL', task, 'pending_since') end
  messages[i] = hash and call('HGET', task, 'msg')
  leases[2 * i - 1], leases[2 * i] = ARGV[1], id
end
if #leases > 0 then call('ZADD', KEYS[4], unpack(leases)) end
return messages
