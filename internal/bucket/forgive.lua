-- forgive.lua: an operator lifts what losses have charged, because those calls were not made, or may be made again. Composed after NowLua and
-- pool.lua, before act.lua.
-- KEYS 1 pace  2… the windows' lists, then those of windows out of force
-- ARGV 1 shape  2 channel  3 gateway  then for each window the width of its sub-buckets (µs, 0 = exact)
-- returns the units that each window in force is freed of, or nothing if other windows are in force.
local K, freed = #ARGV - 3, {}
for k = 1, K do freed[k] = 0 end
local pace = redis.call('HMGET', KEYS[1], 'g', 'charges', 'k')
if pace[1] and pace[1] ~= ARGV[1] then return {} end
if not pace[2] then return freed end
local charges, width = loss_charges(pace[2]), {}
for k = 1, K do width[k] = tonumber(ARGV[3 + k]) end
for j, window in ipairs(kept_windows(pace[3])) do width[K + j] = kept_width(window) end
table.sort(charges, function(a, b) return a[3] > b[3] end) -- a small charge that is taken out of a large one's pair would leave too little there
for _, c in ipairs(charges) do
  local k, units = c[1], c[3]
  local place, count = pool_find(KEYS[1 + k], c[2], units, math.max(width[k] or 0, 1)) -- its pair may have more units, also in an exact list
  if place then
    pool_drop(KEYS[1 + k], place, count, units)
    if k <= K then
      redis.call('HINCRBY', KEYS[1], 'n' .. k, int(-units))
      freed[k] = freed[k] + units
    end
  end
end
redis.call('HDEL', KEYS[1], 'charges')
redis.call('PUBLISH', ARGV[2], ARGV[3])
return freed
