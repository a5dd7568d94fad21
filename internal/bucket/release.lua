-- release.lua gives unused slots back. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2 hold  3 flight  4… the windows' lists
-- ARGV 1 spacing of calls, for each unit (µs)  2 shape that the caller's slots belong to  3 how much later than its slot a call counts that was announced (µs)
--      4 number of windows, then the width of each window's sub-buckets (µs, 0 = exact), then for each slot five: slot (µs), the moment at which
--      exact lists count its call (µs), cost, lease ('' = none), number of the books that it was taken from
-- returns how many slots' permits were given back. If a slot is found nowhere, or was taken from other books, its permits stay taken. If its announcement got no answer, its pair may be where
-- the announcement has put it.
-- The last slot that was handed out stays where it is, so that slots never go backwards; only the spacing is given back.
local announced, K = tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = {'s', 'tat', 'g', 'u', 'o'}
for k = 1, K do fields[5 + k] = 'n' .. k end
local pace = redis.call('HMGET', KEYS[1], unpack(fields))
local last, tat, freed = tonumber(pace[1]) or 0, tonumber(pace[2]) or 0, 0
local units, before, since, dearest = pool_numbers(pace[4])
local _, books = pool_numbers(pace[5])

-- Exact lists are in order, so a pair is found by halving (a pair that an older version of the program has put elsewhere stays taken). All pairs are removed together at the end: behind slots that have passed there are
-- thousands of others. going has the places of the pairs by window. near has what was read last of the list: its first place and its values.
local going, near = {}, {}
local function among(k, edge, cost)
  local from, v = near[k][1], near[k][2]
  for i = #v - 1, 1, -2 do
    if tonumber(v[i]) == edge and tonumber(v[i + 1]) == cost and not going[k][from + i - 1] then return from + i - 1 end
  end
end

-- behind returns how many pairs of a list have at most that edge.
local function behind(list, edge)
  local low, high = 0, redis.call('LLEN', list) / 2
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(redis.call('LINDEX', list, 2 * middle)) <= edge then low = middle + 1 else high = middle end
  end
  return low
end

local function find(k, list, edge, cost)
  going[k] = going[k] or {}
  local v = near[k] and near[k][2]
  if v and #v > 2 and tonumber(v[1]) < edge and edge < tonumber(v[#v - 1]) then return among(k, edge, cost) end
  local to = 2 * behind(list, edge) + POOL_CHUNK / 2 -- the next slot is near, and usually before this one
  repeat
    local from = math.max(to - POOL_CHUNK, 0)
    near[k] = {from, redis.call('LRANGE', list, from, to - 1)}
    local place = among(k, edge, cost)
    if place then return place end
    to = from
  until from == 0 or tonumber(near[k][2][1]) < edge
end

local function free(k, slot, edge, cost)
  local list, width = KEYS[3 + k], tonumber(ARGV[4 + k])
  if width == 0 then
    local place = find(k, list, edge, cost) or find(k, list, slot + announced, cost)
    if not place then return false end
    going[k][place] = true
  else
    local place, count = pool_find(list, pool_edge(slot, width), cost, width)
    if not place then return false end
    pool_drop(list, place, count, cost)
  end
  pace[5 + k] = (tonumber(pace[5 + k]) or 0) - cost
  return true
end

local function gone()
  for k, places in pairs(going) do
    local list, n = KEYS[3 + k], 0
    for place in pairs(places) do
      redis.call('LSET', list, place, 'x')
      redis.call('LSET', list, place + 1, 'x')
      n = n + 2
    end
    if n > 0 then redis.call('LREM', list, -n, 'x') end
  end
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
gone()
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
