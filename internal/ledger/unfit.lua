-- unfit.lua: parked jobs that cost more than admission can ever grant stand aside from the parts of their flows, so that they hold nobody up; or they come back to them, to
-- be looked at again.
-- KEYS 1 parked:flows  2 one that nobody writes: half of the script could run while a cluster's slot moves
-- ARGV 1 prefix of records  2 how many come back, or 0 and the ids of those that stand aside from now on
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
