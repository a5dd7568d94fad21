-- forgive.lua: an operator lifts what losses have charged: those calls were not made, or may be made again. Composed after NowLua, pool.lua and loss.lua,
-- before act.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 shape  2 channel  3 gateway  then for each window the width of its sub-buckets (µs, 0 = exact)
-- Returns the units that each window is freed of; nothing where other windows are in force.
-- What processes remember of the windows has the charges in it, so the lists count as others from now on, and are read again.
local K, freed = #ARGV - 3, {}
local fields = {'g', 'o', 'charges'}
for k = 1, K do fields[3 + k], freed[k] = 'n' .. k, 0 end
local pace = redis.call('HMGET', KEYS[1], unpack(fields))
if pace[1] and pace[1] ~= ARGV[1] then return {} end
if not pace[3] then return freed end
for _, c in ipairs(loss_charges(pace[3])) do
  local k, units = c[1], c[3]
  local list, width = KEYS[1 + k], tonumber(ARGV[3 + k])
  local place, count = pool_find(list, c[2], units, width)
  if place then
    pool_drop(list, place, count, units)
    freed[k] = freed[k] + units
  end
end
local life, id = pool_numbers(pace[2])
local set = {'o', int(life) .. ' ' .. int(id + 1)}
for k = 1, K do set[#set + 1], set[#set + 2] = 'n' .. k, int((tonumber(pace[3 + k]) or 0) - freed[k]) end
redis.call('HSET', KEYS[1], unpack(set))
redis.call('HDEL', KEYS[1], 'charges')
redis.call('PUBLISH', ARGV[2], ARGV[3])
return freed
