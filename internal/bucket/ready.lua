-- ready.lua: a part of reserve.lua that finds out when the windows of the account have room, and takes it.

for k = 1, K do
  if width[k] > 0 and used[k] > 0 then -- the open sub-bucket
    local tail = call('LRANGE', KEYS[9 + k], -2, -1)
    push[k], open[k] = {tonumber(tail[1]), tonumber(tail[2])}, call('LLEN', KEYS[9 + k]) - 2
  end
end

-- ready moves window k's cursor past the permits that a call of this cost needs, and returns when the last of them is ready.
-- Permits taken by this reservation are never ready within the horizon, which is shorter than any window.
local function ready(k, cost, slot)
  local at, sum = cursor[k], used[k]
  while sum + cost > N[k] do
    if touched[k] and at == open[k] then return math.huge, at, sum end
    if buf[k] == nil or at < from[k] or at - from[k] >= #buf[k] then
      from[k], buf[k] = at, call('LRANGE', KEYS[9 + k], at, at + math.min(2 * want * cost, 64) - 1)
      if #buf[k] == 0 then return math.huge, at, sum end
    end
    slot = math.max(slot, tonumber(buf[k][at - from[k] + 1]) + R[k] + longer[k])
    sum = sum - tonumber(buf[k][at - from[k] + 2])
    at = at + 2
  end
  return slot, at, sum
end

local function charge(k, slot, cost)
  if open[k] and cursor[k] > open[k] then push[k], open[k] = {}, nil end -- the cursor has used it up
  local p, edge = push[k], width[k] == 0 and slot + allowance or pool_edge(slot, width[k])
  if width[k] > 0 and p[#p - 1] == edge then
    p[#p] = p[#p] + cost
    touched[k] = touched[k] or (open[k] ~= nil and #p == 2)
  else
    p[#p + 1], p[#p + 2] = edge, cost
  end
end

