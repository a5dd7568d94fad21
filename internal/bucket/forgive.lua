-- forgive.lua: an operator lifts what losses have charged: those calls were not made, or may be made again. Composed after NowLua, pool.lua and loss.lua,
-- before act.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 shape  2 channel  3 gateway  then for each window the width of its sub-buckets (µs, 0 = exact)
-- Returns the units that each window is freed of; nothing where other windows are in force.
local K, freed = #ARGV - 3, {}
for k = 1, K do freed[k] = 0 end
local pace = redis.call('HMGET', KEYS[1], 'g', 'charges')
if pace[1] and pace[1] ~= ARGV[1] then return {} end
if not pace[2] then return freed end
for _, c in ipairs(loss_charges(pace[2])) do
  local k, units = c[1], c[3]
  local list, width = KEYS[1 + k], tonumber(ARGV[3 + k])
  local place, count = pool_find(list, c[2], units, width)
  if place then
    pool_drop(list, place, count, units)
    redis.call('HINCRBY', KEYS[1], 'n' .. k, int(-units))
    freed[k] = freed[k] + units
  end
end
redis.call('HDEL', KEYS[1], 'charges')
redis.call('PUBLISH', ARGV[2], ARGV[3])
return freed
