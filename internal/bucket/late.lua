-- late.lua: calls were written late after their slots, so their permits become ready later. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 shape that the slots belong to, then for each window the width of its sub-buckets (µs, 0 = exact), then for each call: slot (µs),
--      cost, the latest moment at which it was written (µs)
-- Returns of how many calls some window had the permit no more: that window counts them as early as before.
local FEW = 16 -- values of a list that are changed one by one; of more, its tail is written anew
local call, lists = redis.call, #KEYS - 1
local slots, costs, written, found = {}, {}, {}, {} -- found: in how many windows
for a = lists + 2, #ARGV, 3 do
  local n = #slots + 1
  slots[n], costs[n], written[n], found[n] = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), 0
end
if call('HGET', KEYS[1], 'g') ~= ARGV[1] then return #slots end
call('HDEL', KEYS[1], '') -- a full Redis lets a script go on that has begun to write, and others would be given these permits too soon

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
    if place then found[n] = found[n] + 1 end
  end
end

-- tail reads the list's values from before the slot on, and how many come before them.
local function tail(list, slot)
  local len, reach, from, v = call('LLEN', list), POOL_CHUNK / 4, 0, {}
  repeat
    reach = math.min(reach * 4, POOL_REACH)
    from = math.max(len - reach, 0)
    v = call('LRANGE', list, from, -1)
  until from == 0 or tonumber(v[1]) < slot - POOL_LATE or reach == POOL_REACH
  return v, from
end

-- moves finds the pair of each call among the values: the later edges by the places of the pairs, and the first of them. Slots that start
-- together have pairs with the same edge, each the pair of one call of its cost. Edges are compared as text: all are whole numbers.
local function moves(v)
  local newest, before, later, first = {}, {}, {}, math.huge
  for i = 1, #v, 2 do
    before[i], newest[v[i]] = newest[v[i]], i
  end
  for n = 1, #slots do
    local i = newest[int(slots[n])]
    while i and (later[i] or tonumber(v[i + 1]) ~= costs[n]) do i = before[i] end
    if i then
      found[n] = found[n] + 1
      later[i], first = math.max(written[n], slots[n]), math.min(first, i)
    end
  end
  return later, first
end

-- sort puts pairs of edge (a number), its text and units in order. Few are out of it, and not by much; what is equal stays as it was.
local function sort(edges, texts, units)
  for i = 2, #edges do
    local edge, text, unit, j = edges[i], texts[i], units[i], i - 1
    while j > 0 and edges[j] > edge do
      edges[j + 1], texts[j + 1], units[j + 1] = edges[j], texts[j], units[j]
      j = j - 1
    end
    edges[j + 1], texts[j + 1], units[j + 1] = edge, text, unit
  end
end

-- moved returns the values from the first pair that moves on, in their new order: a list of texts. Those that move and those that stay are
-- each in order, or nearly, and so are put into one another.
local function moved(v, later, first)
  local edges, texts, units, going, gone, away = {}, {}, {}, {}, {}, {}
  for i = first, #v, 2 do
    if later[i] then
      local n = #going + 1
      going[n], gone[n], away[n] = later[i], int(later[i]), v[i + 1]
    end
  end
  sort(going, gone, away)
  local at, n = 1, 0
  local function put(edge, text, unit)
    n = n + 1
    edges[n], texts[n], units[n] = edge, text, unit
  end
  for i = first, #v, 2 do
    if not later[i] then
      local edge = tonumber(v[i])
      while at <= #going and going[at] < edge do
        put(going[at], gone[at], away[at])
        at = at + 1
      end
      put(edge, v[i], v[i + 1])
    end
  end
  for rest = at, #going do put(going[rest], gone[rest], away[rest]) end
  sort(edges, texts, units)
  local values = {}
  for i = 1, n do values[2 * i - 1], values[2 * i] = texts[i], units[i] end
  return values
end

-- write replaces what has changed of the list, behind so many values that stay: each value, or all. A list that was cut to nothing would be gone.
local function write(list, before, old, values)
  local changes = {}
  for i = 1, #values do
    if values[i] ~= old[i] then changes[#changes + 1] = i end
  end
  if #changes <= FEW or before == 0 then
    for _, i in ipairs(changes) do call('LSET', list, before + i - 1, values[i]) end
    return
  end
  call('LTRIM', list, 0, before - 1)
  call('RPUSH', list, unpack(values))
end

-- move_exactly gives each pair its new edge and its place among the younger ones, so that it keeps none of them waiting.
local function move_exactly(list)
  local v, from = tail(list, math.min(unpack(slots)))
  local later, first = moves(v)
  if first > #v then return end
  write(list, from + first - 1, {unpack(v, first)}, moved(v, later, first))
end

for k = 1, lists do
  local width = tonumber(ARGV[1 + k])
  if width == 0 then move_exactly(KEYS[1 + k]) else move_in_parts(KEYS[1 + k], width) end
end
local lost = 0
for n = 1, #slots do
  if found[n] < lists then lost = lost + 1 end
end
return lost
