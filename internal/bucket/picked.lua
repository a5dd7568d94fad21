-- picked.lua: the end of pick.lua. It makes the tasks active, as asynq's own dequeue does.
local reply, leases, ends = granted(slots, hint), {}, int(math.floor(now / 1000000) + 30) -- the lease that asynq gives a task (v0.26.0, internal/rdb: LeaseDuration)
local tasks = string.gsub(KEYS[6], 'active$', 't:')
for i = 1, #slots do
  local b, message = bound[i], nil
  if b then
    local hash = type(redis.pcall('HSET', tasks .. b.task, 'state', 'active')) ~= 'table' -- a key of another type is left to a sweep, and does not keep back other tasks
    if hash then call('HDEL', tasks .. b.task, 'pending_since') end
    message = hash and call('HGET', tasks .. b.task, 'msg')
    leases[#leases + 1], leases[#leases + 2] = ends, b.task
  end
  local values = {b and b.task or '', message or '', b and b.class or '', (b or taken).name, (b or taken).lane, b and b.line or 0, slots[i][3]}
  for j = 1, #values do reply[#reply + 1] = values[j] end
end
if #leases > 0 then call('ZADD', string.gsub(KEYS[6], 'active$', 'lease'), unpack(leases)) end
return reply
