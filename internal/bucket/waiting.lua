-- waiting.lua: a part of reserve.lua that finds out how many slots the waiting jobs need, and what each costs.

-- Slots that were already given out, to any process, are for the jobs that come first.
local function slots_ahead()
  if last <= now or width[1] > 0 then return 0 end
  local count, seen = 0, 0
  local v
  repeat
    v = call('LRANGE', KEYS[10], -seen - POOL_CHUNK, -seen - 1)
    for i = 1, #v, 2 do
      if tonumber(v[i]) > now + allowance then count = count + 1 end
    end
    seen = seen + POOL_CHUNK
  until not v[1] or tonumber(v[1]) <= now + allowance or seen == POOL_REACH
  return math.min(count, math.floor((last - now + tolerance) / T) + 1) -- other processes may allow for more: some of these were called already
end

local costs = {}
if asked == 0 then
  local called = call('LLEN', KEYS[7]) + call('LLEN', KEYS[8])
  local first, pending = {KEYS[9], KEYS[4]}, called
  if #KEYS > 9 + K + KEPT_MOST then first = {unpack(KEYS, 10 + K + KEPT_MOST)} end
  for _, line in ipairs(first) do pending = pending + call('LLEN', line) end
  if pending == 0 then return answer('idle', 0) end
  local priced, ahead = call('EXISTS', KEYS[5]) == 1, 0
  if priced or pending <= POOL_CHUNK then ahead = slots_ahead() end
  want = math.min(want, pending - ahead)
  if want < 1 then return answer('ahead', math.min(last - now, horizon)) end
  if priced then
    costs = call('HMGET', KEYS[5], unpack(upcoming(ahead + want, first, called, need == 1), ahead + 1))
  end
end
-- A cost above a limit can never be had: the job's handler reports it.
local function cost_of(i)
  if asked > 0 then return asked end
  return math.min(tonumber(costs[i]) or 1, least)
end

