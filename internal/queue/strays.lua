-- strays.lua reads tasks that are not ours and that no process will look at again. Composed after NowLua.
-- KEYS 1 active  2 lease  3 asynq's retry set  4 asynq's archive
-- ARGV 1 a lease that ended this long ago is dead (s)  2 what a task's key begins with  3 most to return
-- returns {task id, its message ('' = it has none), …}. A task named ID~N is ours: the ledger knows where it belongs.
local most, dead, out = tonumber(ARGV[3]), now_us('0') / 1000000 - tonumber(ARGV[1]), {}
local function add(ids, lost)
  for _, id in ipairs(ids) do
    if #out >= 2 * most then return end
    local generation = tonumber(string.match(id, '^.+~(%d+)$'))
    if (not generation or generation < 1) and lost(id) then
      out[#out + 1], out[#out + 2] = id, redis.call('HGET', ARGV[2] .. id, 'msg') or ''
    end
  end
end
add(redis.call('LRANGE', KEYS[1], 0, -1), function(id)
  return (tonumber(redis.call('ZSCORE', KEYS[2], id)) or 0) < dead
end)
for _, set in ipairs({KEYS[3], KEYS[4]}) do
  add(redis.call('ZRANGE', set, 0, most - 1), function() return true end)
end
return out
