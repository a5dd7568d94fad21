-- room.lua reads when a call would find room in every limit, as things are now. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2 flight  3… the windows' lists, shortest window first
-- ARGV 1 now (µs, 0 = Redis's)  2 cost of the call  3 shape of the limits, as reserve.lua keeps it
--      then for each window: units N, µs R until a permit is ready again
-- returns {now, when it finds room (µs; not after now: there is room, or it is unknown), number of the window that it waits for longest
--      (0: of no window, no slot is given out before, as after a loss), leases of calls in flight, the last slot that was given out (µs)}
local FEW, MOST = 64, 4096
local call = redis.call
local now, cost = now_us(ARGV[1]), tonumber(ARGV[2])
local K = (#ARGV - 3) / 2
local fields = {'g', 'h', 'y', 's'}
local FIXED = #fields
for k = 1, K do fields[FIXED + k] = 'n' .. k end
local pace = call('HMGET', KEYS[1], unpack(fields))
local flying = call('ZCOUNT', KEYS[2], '(' .. int(now), '+inf')
if pace[1] ~= ARGV[3] then return {int(now), 0, 0, flying, 0} end

-- ready returns when this many units of a list are ready again, the oldest first.
local function ready(list, missing, wait)
  local at = 0
  for from = 0, MOST, FEW do
    local pairs_of = call('LRANGE', list, from, from + FEW - 1)
    for i = 1, #pairs_of, 2 do
      at, missing = tonumber(pairs_of[i]) + wait, missing - tonumber(pairs_of[i + 1])
      if missing <= 0 then return at end
    end
    if #pairs_of < FEW then break end
  end
  return at
end

local latest, by, told = tonumber(pace[2]) or 0, 0, slewed_told(pace[3])
for k = 1, K do
  local missing = (tonumber(pace[FIXED + k]) or 0) + cost - tonumber(ARGV[2 + 2 * k])
  if missing > 0 then
    local R = tonumber(ARGV[3 + 2 * k])
    local _, longer = slewed_by(told, k, R, 0, now)
    local at = ready(KEYS[2 + k], missing, R + longer)
    if at > latest then latest, by = at, k end
  end
end
return {int(now), int(latest), by, flying, int(tonumber(pace[4]) or 0)}
