-- unfit.lua: parked jobs that cost more than admission can ever grant are moved out of the parts of their flows, so that they don't delay other jobs. Or they come back, to
-- be looked at again.
-- KEYS 1 parked:flows  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 prefix of records  2 how many come back, or 0 and the ids of those that are moved out
-- returns how many it moved
local record, moved, call = ARGV[1], 0, redis.call
local unfit = shelf_key(record, 'parked:rejected:unfit')
local function move(id, from, to, flow)
  local score = call('ZSCORE', from, id)
  if not score then return end
  call('ZREM', from, id)
  call('ZADD', to, score, id)
  if flow then call('ZADD', KEYS[1], 'NX', shelf_turn(0, false, tonumber(score)), flow) end
  moved = moved + 1
end
for i = 3, #ARGV do move(ARGV[i], shelf_flow_set(record, shelf_flow(record .. ARGV[i])), unfit) end
for _, id in ipairs(ARGV[2] ~= '0' and call('ZRANGE', unfit, 0, tonumber(ARGV[2]) - 1) or {}) do
  local flow = shelf_flow(record .. id)
  move(id, unfit, shelf_flow_set(record, flow), flow)
end
return moved
