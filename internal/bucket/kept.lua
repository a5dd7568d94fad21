-- kept.lua: a fragment behind pool.lua, for the windows that are out of force. Each still has a list, to which calls are added. So a window that comes back,
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
