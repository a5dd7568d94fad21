-- late.lua: calls are, or were, written at other moments than those at which they are counted. Later ones keep their permits for longer, earlier ones give them
-- back sooner. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 shape that the slots belong to  2 how late after its slot a call may be written that a list of sub-buckets allows for (µs), then for each
--      window the width of its sub-buckets (µs, 0 = exact), then for each call: slot (µs), the moment at which exact lists count it (µs), cost, the moment at which
--      it should count (µs), number of the books that its slot was taken from
-- returns for each call 1, or 0 if some window no longer had the permit: that window counts the call as early as before. A call moves to an earlier moment
-- only in the books of its slot: in others, a pair at that moment can belong to another call.
local FEW = 32 -- how many values of a list are changed one by one
local call, lists = redis.call, #KEYS - 1
local slots, edges, costs, written, found = {}, {}, {}, {}, {} -- found: in how many windows
local nth, counted = {}, {} -- places among the given calls, and for each of these whether it counts as it should
local pace = call('HMGET', KEYS[1], 'g', 'o')
local _, books = pool_numbers(pace[2])
for a = lists + 3, #ARGV, 5 do
  local slot, edge, cost, at = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  counted[#counted + 1] = 0
  if at > edge or tonumber(ARGV[a + 4]) == books then
    local n = #slots + 1
    slots[n], edges[n], costs[n], written[n], found[n], nth[n] = slot, edge, cost, at, 0, #counted
  end
end
if pace[1] ~= ARGV[1] or #slots == 0 then return counted end
call('HDEL', KEYS[1], '') -- a full Redis lets a script that has begun to write continue; otherwise others would get these permits too soon

-- into_later adds the units to the first sub-bucket after `place` that ends late enough, or to a new one.
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

-- tail reads the list's values from a moment on, and returns them and how many come before them.
local function tail(list, moment)
  local len, reach = call('LLEN', list), 2 * POOL_CHUNK
  local from, v
  repeat
    reach = reach * 2
    from = math.max(len - reach, 0)
    v = call('LRANGE', list, from, -1)
  until from == 0 or tonumber(v[1]) < moment
  return v, from
end

-- moves finds the pair of each call among the values. It returns their places, and the new edge and the units of each, in order. It compares edges as text: all
-- are whole numbers.
local function moves(v)
  local of, goes, going = {}, {}, {} -- of: calls by the moment at which they are counted
  for n = 1, #slots do
    local edge = int(edges[n])
    of[edge] = of[edge] or {}
    table.insert(of[edge], n)
  end
  for i = 1, #v, 2 do
    local calls = of[v[i]]
    for k = 1, calls and #calls or 0 do
      local n = calls[k]
      if tonumber(v[i + 1]) == costs[n] then
        found[n], goes[i], going[#going + 1] = found[n] + 1, true, {written[n], v[i + 1]}
        table.remove(calls, k)
        break
      end
    end
  end
  table.sort(going, function(a, b) return a[1] < b[1] end)
  return goes, going
end

-- move_exactly gives each pair its new edge, and its place in order, so that it delays none of the others. Values before the first change and after
-- the last one stay. Few values in between are changed one by one; for many, the tail is written again as a whole.
local function move_exactly(list)
  local v, from = tail(list, math.min(math.min(unpack(edges)), unpack(written)))
  local goes, going = moves(v)
  if #going == 0 then return end
  local first = 1
  while not goes[first] and tonumber(v[first]) <= going[1][1] do first = first + 2 end
  local values, at, left, i = {}, 1, #going, first
  while left > 0 or at <= #going do
    if at <= #going and (i > #v or going[at][1] < tonumber(v[i])) then
      values[#values + 1], values[#values + 2], at = int(going[at][1]), going[at][2], at + 1
    else
      if goes[i] then left = left - 1 else values[#values + 1], values[#values + 2] = v[i], v[i + 1] end
      i = i + 2
    end
  end
  first = from + first - 1
  if #values <= FEW or first == 0 then
    for n, value in ipairs(values) do call('LSET', list, first + n - 1, value) end
    return
  end
  for n = i, #v do values[#values + 1] = v[n] end
  call('LTRIM', list, 0, first - 1)
  for n = 1, #values, POOL_REACH do call('RPUSH', list, unpack(values, n, math.min(n + POOL_REACH - 1, #values))) end
end

for k = 1, lists do
  local width = tonumber(ARGV[2 + k])
  if width == 0 then move_exactly(KEYS[1 + k]) else move_in_parts(KEYS[1 + k], width) end
end
for n = 1, #slots do
  if found[n] == lists then counted[nth[n]] = 1 end
end
return counted
