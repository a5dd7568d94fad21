-- late.lua: a call was written late after its slot, so its permits become ready later. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 slot (µs)  2 cost  3 the latest moment at which the call was written (µs)  4 shape that the slot belongs to
--      then for each window the width of its sub-buckets (µs, 0 = exact)
-- Returns in how many windows the permit was still there to be moved.
local MOVE_REACH = 256 -- pairs that a late one is moved behind, at most
local slot, cost, written = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('HGET', KEYS[1], 'g') ~= ARGV[4] then return 0 end

-- into_later puts the units into the first sub-bucket after `place` that ends late enough, or into a new one.
local function into_later(list, place, edge)
  local v = redis.call('LRANGE', list, place, -1)
  for i = 1, #v, 2 do
    if tonumber(v[i]) >= edge then
      redis.call('LSET', list, place + i, int(tonumber(v[i + 1]) + cost))
      return
    end
  end
  redis.call('RPUSH', list, int(edge), int(cost))
end

-- move gives the pair its new edge and its place among the younger ones, so that it keeps none of them waiting.
local function move(list, place, edge, count)
  local v, passed = redis.call('LRANGE', list, place + 2, place + 1 + 2 * MOVE_REACH), 0
  while passed < #v and tonumber(v[passed + 1]) < edge do
    redis.call('LSET', list, place + passed, v[passed + 1])
    redis.call('LSET', list, place + passed + 1, v[passed + 2])
    passed = passed + 2
  end
  redis.call('LSET', list, place + passed, int(edge))
  redis.call('LSET', list, place + passed + 1, int(count))
end

local moved = 0
for k = 1, #ARGV - 4 do
  local list, width = KEYS[1 + k], tonumber(ARGV[4 + k])
  local was, edge = pool_edge(slot, width), pool_edge(written, width)
  local place, count = pool_find(list, was, cost, width)
  if place and edge > was then
    if width == 0 then
      move(list, place, edge, count)
    else
      into_later(list, place, edge)
      pool_drop(list, place, count, cost)
    end
  end
  if place then moved = moved + 1 end
end
return moved
