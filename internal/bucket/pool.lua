-- pool.lua: a fragment for the lists of permits of the windows, in force and out of force. It reads fields of the pace, and finds one slot's entry in a list.
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

-- The windows that are out of force (kept). Each still has a list, to which calls are added. So a window that comes back,
-- or a shorter one in its place, counts what was called before and in between. Calls are added by the cell (see tally in
-- reserve.lua), in parts of the window. Pairs that are over are removed, and the list goes with its last pair.

local KEPT_PARTS, KEPT_CHUNK, KEPT_MOST = 256, 32, 4 -- KEPT_MOST as in plan.go

local function kept_windows(text)
  local windows = {}
  for window in string.gmatch(text or '', '%d+') do windows[#windows + 1] = tonumber(window) end
  return windows
end

-- kept_for returns how long a pair counts in the window at most: a window that comes back needs it for no longer, whatever its jitter is.
local function kept_for(window) return math.ceil(window * 1.01) + 10000000 end

local function kept_width(window) return math.ceil(window / KEPT_PARTS) end

local function kept_put(list, window, edge, units, now)
  if units == 0 then return end
  edge = pool_edge(edge, kept_width(window))
  local tail, head = redis.call('LRANGE', list, -2, -1), redis.call('LRANGE', list, 0, KEPT_CHUNK - 1)
  if tonumber(tail[1]) == edge then
    redis.call('LSET', list, -1, int(tonumber(tail[2]) + units))
  else
    redis.call('RPUSH', list, int(edge), int(units))
  end
  for i = 1, #head, 2 do
    if tonumber(head[i]) + kept_for(window) <= now then redis.call('LPOP', list, 2) end
  end
  redis.call('PEXPIRE', list, int(math.ceil((edge + kept_for(window) - now) / 1000)))
end
