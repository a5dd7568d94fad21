-- pool.lua: a fragment that reads fields of the pace, and finds one slot's entry in a window's list of permits.
--
-- A window's list holds pairs: edge (µs), units. An exact list has a pair for each slot; its edge is the moment at which the call counts. The list is
-- in order, except for pairs that an older version of the program has added behind later ones. A list of sub-buckets (width > 0) has a pair for each sub-bucket that was used; its
-- edge is the end of the sub-bucket. A late call can open a sub-bucket before its time.

local POOL_CHUNK, POOL_REACH = 128, 4096 -- numbers read at a time; and how many one command takes, or an estimate looks through
local POOL_LATE = 1100000 -- µs by which a call can count later than its slot: a younger pair may come up to this much before it

local function pool_edge(at, width)
  if width == 0 then return at end
  return math.ceil(at / width) * width
end

-- pool_numbers parses up to four numbers in one field of the pace; missing ones are 0.
local function pool_numbers(text)
  local a, b, c, d = string.match(text or '', '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
  return tonumber(a) or 0, tonumber(b) or 0, tonumber(c) or 0, tonumber(d) or 0
end

-- pool_find returns the place of the pair that a slot of that cost is in, and the pair's units, or nothing. In an exact list, slots that start together
-- have pairs with the same edge: a pair of another cost is not this slot's.
local function pool_find(list, edge, cost, width)
  local len, seen = redis.call('LLEN', list), 0
  while seen < len do
    local to = len - 1 - seen
    local from = math.max(to - POOL_CHUNK + 1, 0)
    local v = redis.call('LRANGE', list, from, to)
    for i = #v - 1, 1, -2 do
      local e, count = tonumber(v[i]), tonumber(v[i + 1])
      if e == edge and (count == cost or width > 0 and count > cost) then return from + i - 1, count end
      if e < edge - POOL_LATE - width then return end -- all pairs before this one are older
    end
    seen = seen + POOL_CHUNK
  end
end

-- pool_drop removes cost units from the pair at that place, and the pair if it has none left.
local function pool_drop(list, place, count, cost)
  if count > cost then
    redis.call('LSET', list, place + 1, int(count - cost))
    return
  end
  redis.call('LSET', list, place, 'x')
  redis.call('LSET', list, place + 1, 'x')
  redis.call('LREM', list, -2, 'x')
end
