-- late.lua: calls are, or were, written at other moments than those at which they are counted. Later ones keep their permits for longer, earlier ones give them
-- back sooner. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 shape that the slots belong to  2 a list of sub-buckets allows for a call that is written so late after its slot (µs), then for each
--      window the width of its sub-buckets (µs, 0 = exact), then for each call: slot (µs), the moment at which exact lists count it (µs), cost, the latest
--      moment at which it was written (µs), number of the books that its slot was taken from
-- Returns of how many calls some window had the permit no more: that window counts them as early as before. A call moves to an earlier moment
-- only while the books are those of its slot: in others a pair of that moment can be another call's.
local FEW = 16 -- values of a list that are changed one by one; of more, its tail is written anew
local call, lists = redis.call, #KEYS - 1
local slots, edges, costs, written, found = {}, {}, {}, {}, {} -- found: in how many windows
local pace = call('HMGET', KEYS[1], 'g', 'o')
local _, books = pool_numbers(pace[2])
for a = lists + 3, #ARGV, 5 do
  local slot, edge, cost, at = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  if at > edge or tonumber(ARGV[a + 4]) == books then
    local n = #slots + 1
    slots[n], edges[n], costs[n], written[n], found[n] = slot, edge, cost, at, 0
  end
end
if pace[1] ~= ARGV[1] or #slots == 0 then return #slots end
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
    if place and edge > was and written[n] > slots[n] + tonumber(ARGV[2]) then
      into_later(list, place, edge, costs[n])
      pool_drop(list, place, count, costs[n])
    end
    if place then found[n] = found[n] + 1 end
  end
end

-- tail reads the list's values from a moment on, and how many come before them.
local function tail(list, moment)
  local len, reach, from, v = call('LLEN', list), POOL_CHUNK / 4, 0, {}
  repeat
    reach = math.min(reach * 4, POOL_REACH)
    from = math.max(len - reach, 0)
    v = call('LRANGE', list, from, -1)
  until from == 0 or tonumber(v[1]) < moment or reach == POOL_REACH
  return v, from
end

-- moves finds the pair of each call among the values: the new edges by the places of the pairs. Calls that are counted at one moment have pairs with the
-- same edge, each the pair of one call of its cost. Edges are compared as text: all are whole numbers.
local function moves(v)
  local newest, before, to = {}, {}, {}
  for i = 1, #v, 2 do
    before[i], newest[v[i]] = newest[v[i]], i
  end
  for n = 1, #slots do
    local i = newest[int(edges[n])]
    while i and (to[i] or tonumber(v[i + 1]) ~= costs[n]) do i = before[i] end
    if i then
      found[n] = found[n] + 1
      to[i] = written[n]
    end
  end
  return to
end

-- moved returns the values in their new order: a list of texts. Those that stay are in order; those that move are sorted, and put in between.
local function moved(v, to)
  local going, values = {}, {}
  for i = 1, #v, 2 do
    if to[i] then going[#going + 1] = {to[i], v[i + 1]} end
  end
  table.sort(going, function(a, b) return a[1] < b[1] end)
  local at = 1
  local function put_until(edge)
    while at <= #going and going[at][1] < edge do
      values[#values + 1], values[#values + 2], at = int(going[at][1]), going[at][2], at + 1
    end
  end
  for i = 1, #v, 2 do
    if not to[i] then
      if at <= #going then put_until(tonumber(v[i])) end
      values[#values + 1], values[#values + 2] = v[i], v[i + 1]
    end
  end
  put_until(math.huge)
  return values
end

-- write replaces what has changed of the list, behind so many values that stay: each value, or all from the first on. A list that was cut to nothing would be gone.
local function write(list, before, old, values)
  local changes = {}
  for i = 1, #values do
    if values[i] ~= old[i] then changes[#changes + 1] = i end
  end
  local stay = before + (changes[1] or 1) - 1
  if #changes <= FEW or stay == 0 then
    for _, i in ipairs(changes) do call('LSET', list, before + i - 1, values[i]) end
    return
  end
  call('LTRIM', list, 0, stay - 1)
  call('RPUSH', list, unpack(values, changes[1]))
end

-- move_exactly gives each pair its new edge and its place among the others, so that it keeps none of them waiting.
local function move_exactly(list)
  local v, from = tail(list, math.min(math.min(unpack(edges)), unpack(written)))
  local to = moves(v)
  if next(to) then write(list, from, v, moved(v, to)) end
end

for k = 1, lists do
  local width = tonumber(ARGV[2 + k])
  if width == 0 then move_exactly(KEYS[1 + k]) else move_in_parts(KEYS[1 + k], width) end
end
local lost = 0
for n = 1, #slots do
  if found[n] < lists then lost = lost + 1 end
end
return lost
