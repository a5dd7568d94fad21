-- late.lua: calls were written late after their slots, so their permits become ready later. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 shape that the slots belong to, then for each window the width of its sub-buckets (µs, 0 = exact), then for each call: slot (µs),
--      cost, the latest moment at which it was written (µs)
-- Returns of how many calls no window had the permit any more.
local FEW = 16 -- values of a list that are changed one by one; of more, its tail is written anew
local call, lists = redis.call, #KEYS - 1
local slots, costs, written, known = {}, {}, {}, {}
for a = lists + 2, #ARGV, 3 do
  local n = #slots + 1
  slots[n], costs[n], written[n] = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
end
if call('HGET', KEYS[1], 'g') ~= ARGV[1] then return #slots end

-- into_later puts the units into the first sub-bucket after `place` that ends late enough, or into a new one.
local function into_later(list, place, edge, cost)
  local v = call('LRANGE', list, place, -1)
  for i = 1, #v, 2 do
    if tonumber(v[i]) >= edge then
      call('LSET', list, place + i, int(tonumber(v[i + 1]) + cost))
      return
    end
  end
  call('RPUSH', list, int(edge), int(cost))
end

local function move_in_parts(list, width)
  for n = 1, #slots do
    local was, edge = pool_edge(slots[n], width), pool_edge(written[n], width)
    local place, count = pool_find(list, was, costs[n], width)
    if place and edge > was then
      into_later(list, place, edge, costs[n])
      pool_drop(list, place, count, costs[n])
    end
    known[n] = known[n] or place
  end
end

-- tail reads the list's pairs from before the slot on: their edges, their units, and how many values come before them.
local function tail(list, slot)
  local len, reach, from, v = call('LLEN', list), POOL_CHUNK / 4, 0, {}
  repeat
    reach = math.min(reach * 4, POOL_REACH)
    from = math.max(len - reach, 0)
    v = call('LRANGE', list, from, -1)
  until from == 0 or tonumber(v[1]) < slot or reach == POOL_REACH
  local edges, units = {}, {}
  for i = 1, #v, 2 do edges[#edges + 1], units[#units + 1] = tonumber(v[i]), v[i + 1] end
  return edges, units, from
end

-- sort puts the pairs from the first one on in order again. Few are out of it, and not by much; what is equal stays as it was.
local function sort(edges, units, first)
  for i = first + 1, #edges do
    local edge, unit, j = edges[i], units[i], i - 1
    while j >= first and edges[j] > edge do
      edges[j + 1], units[j + 1] = edges[j], units[j]
      j = j - 1
    end
    edges[j + 1], units[j + 1] = edge, unit
  end
end

-- write replaces what has changed of the list: each value, or all from the first on. A list that was cut to nothing would be gone.
local function write(list, edges, units, from, first, old_edges, old_units)
  local changes = {}
  for i = first, #edges do
    if edges[i] ~= old_edges[i] then changes[#changes + 1], changes[#changes + 2] = 2 * i - 2, int(edges[i]) end
    if units[i] ~= old_units[i] then changes[#changes + 1], changes[#changes + 2] = 2 * i - 1, units[i] end
  end
  local before = from + 2 * (first - 1)
  if #changes <= 2 * FEW or before == 0 then
    for c = 1, #changes, 2 do call('LSET', list, from + changes[c], changes[c + 1]) end
    return
  end
  local values = {}
  for i = first, #edges do values[#values + 1], values[#values + 2] = int(edges[i]), units[i] end
  call('LTRIM', list, 0, before - 1)
  call('RPUSH', list, unpack(values))
end

-- move_exactly gives each pair its new edge and its place among the younger ones, so that it keeps none of them waiting.
local function move_exactly(list)
  local edges, units, from = tail(list, math.min(unpack(slots)))
  local old_edges, old_units, first, taken = {unpack(edges)}, {unpack(units)}, math.huge, {}
  for n = 1, #slots do
    local i = #edges
    while i > 0 and old_edges[i] >= slots[n] and (taken[i] or old_edges[i] ~= slots[n] or tonumber(units[i]) ~= costs[n]) do i = i - 1 end
    if i > 0 and old_edges[i] == slots[n] then
      known[n], taken[i] = true, true
      edges[i], first = math.max(written[n], slots[n]), math.min(first, i)
    end
  end
  if first > #edges then return end
  sort(edges, units, first)
  write(list, edges, units, from, first, old_edges, old_units)
end

for k = 1, lists do
  local width = tonumber(ARGV[1 + k])
  if width == 0 then move_exactly(KEYS[1 + k]) else move_in_parts(KEYS[1 + k], width) end
end
local lost = #slots
for n = 1, #slots do
  if known[n] then lost = lost - 1 end
end
return lost
