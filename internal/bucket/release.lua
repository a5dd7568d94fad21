-- release.lua: gives unused slots back. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2 hold  3 flight  4… the windows' lists
-- ARGV 1 spacing of calls, for each unit (µs)  2 shape that the caller's slots belong to  3 so much later than its slot a call counts that was announced (µs)
--      4 number of windows, then the width of each window's sub-buckets (µs, 0 = exact), then for each slot five: slot (µs), the moment at which
--      exact lists count its call (µs), cost, lease ('' = none), number of the books that it was taken from
-- Returns how many slots' permits went back. The permits of a slot that is found nowhere, or was taken from other books, stay taken. One whose announcement got no answer may be found where
-- that has put it.
-- The last slot handed out stays where it is, so that slots never go backwards; only the spacing is given back.
local announced, K = tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = {'s', 'tat', 'g', 'u', 'o'}
for k = 1, K do fields[5 + k] = 'n' .. k end
local pace = redis.call('HMGET', KEYS[1], unpack(fields))
local last, tat, freed = tonumber(pace[1]) or 0, tonumber(pace[2]) or 0, 0
local units, before, since, dearest = pool_numbers(pace[4])
local _, books = pool_numbers(pace[5])

local function free(k, slot, edge, cost)
  local list, width = KEYS[3 + k], tonumber(ARGV[4 + k])
  local place, count = pool_find(list, width == 0 and edge or pool_edge(slot, width), cost, width)
  if not place and width == 0 then place, count = pool_find(list, slot + announced, cost, 0) end
  if not place then return false end
  pool_drop(list, place, count, cost)
  pace[5 + k] = (tonumber(pace[5 + k]) or 0) - cost
  return true
end

for i = 5 + K, #ARGV, 5 do
  local slot, edge, cost = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if ARGV[i + 3] ~= '' then redis.call('ZREM', KEYS[3], ARGV[i + 3]) end
  if redis.call('HGET', KEYS[2], 'slot') == int(slot) then redis.call('HDEL', KEYS[2], 'probe', 'slot') end
  local found = false
  if pace[3] == ARGV[2] and tonumber(ARGV[i + 4]) == books then
    for k = 1, K do found = free(k, slot, edge, cost) or found end
  end
  if found then
    freed = freed + 1
    if slot == last then tat = tat - tonumber(ARGV[1]) * cost end
    if since > 0 and slot >= since then units = units - cost end
  end
end
if freed > 0 then
  local set = {'tat', int(tat)}
  if pace[4] then set[3], set[4] = 'u', string.format('%.0f %.0f %.0f %.0f', units, before, since, dearest) end
  for k = 1, K do
    set[#set + 1] = 'n' .. k
    set[#set + 1] = int(tonumber(pace[5 + k]) or 0)
  end
  redis.call('HSET', KEYS[1], unpack(set))
end
return freed
