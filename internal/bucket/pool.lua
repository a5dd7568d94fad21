-- pool.lua: a fragment; the fields of the pace, and finding one slot's entry in a window's list of permits.
--
-- A window's list holds pairs: edge (µs), units. An exact list has a pair for each slot, with the moment at which its call counts as its edge. It is
-- in order, but for what an older version of the program puts behind what counts later. A list of sub-buckets (width > 0) has a pair for each sub-bucket used, with the
-- sub-bucket's end as its edge; a late call can open one before its time.

local POOL_CHUNK, POOL_REACH = 128, 4096 -- numbers read at a time, and as many as a command takes, or are looked through for an estimate
local POOL_LATE = 1100000 -- µs by which a call counts later than its slot at the most: a younger one may lie so much before it

local function pool_edge(at, width)
  if width == 0 then return at end
  return math.ceil(at / width) * width
end

-- pool_numbers reads up to four numbers in one field of the pace; those that aren't there are 0.
local function pool_numbers(text)
  local a, b, c, d = string.match(text or '', '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')
  return tonumber(a) or 0, tonumber(b) or 0, tonumber(c) or 0, tonumber(d) or 0
end

-- pool_find returns the place of the pair that a slot of that cost is in, and the pair's units; or nothing. Slots that start together
-- have pairs with the same edge in an exact list: one of another cost isn't this slot's.
local function pool_find(list, edge, cost, width)
  local len, seen = redis.call('LLEN', list), 0
  while seen < len do
    local to = len - 1 - seen
    local from = math.max(to - POOL_CHUNK + 1, 0)
    local v = redis.call('LRANGE', list, from, to)
    for i = #v - 1, 1, -2 do
      local e, count = tonumber(v[i]), tonumber(v[i + 1])
      if e == edge and (count == cost or width > 0 and count > cost) then return from + i - 1, count end
      if e < edge - POOL_LATE - width then return end -- everything before is older still
    end
    seen = seen + POOL_CHUNK
  end
end

-- pool_drop takes cost units out of the pair at that place; a pair without units goes.
local function pool_drop(list, place, count, cost)
  if count > cost then
    redis.call('LSET', list, place + 1, int(count - cost))
    return
  end
  redis.call('LSET', list, place, 'x')
  redis.call('LSET', list, place + 1, 'x')
  redis.call('LREM', list, -2, 'x')
end
