-- tend.lua looks how far the readers of a gateway's feed are, and deletes what all of them have. If a reader is too far behind, it holds the gateway, or drops what is too old.
-- Composed after NowLua and readers.lua.
-- KEYS 1 feed  2 outcomes
-- ARGV 1 now (µs, 0 = Redis's)  2 "1": only look, change nothing  3 how long an outcome stays if there is no reader (µs)
--      4 how many outcomes a reader may be behind (0 = any number)  5 hold | drop  6… the readers
-- returns {how many outcomes there were, how many are kept, since when the gateway is held (µs, 0 = it is not), the reader that it waits for}, then for each reader: its cursor, how many outcomes it is behind, when the
--      first of them was (µs, 0 = there is none), how many were dropped before it had them
local DROPS, AGAIN = 200, 0.9 -- entries looked at at a time; the hold is over when a reader is behind by this part of the bound or less
local feed, stream, look, most, now = KEYS[1], KEYS[2], ARGV[2] == '1', tonumber(ARGV[4]), now_us(ARGV[1])
local v = redis.call('HMGET', feed, 'number', 'held', 'waits')
local number, held, waits = tonumber(v[1] or '') or 0, tonumber(v[2] or '') or 0, v[3] or ''

local readers, worst = {}, nil
for a = 6, #ARGV do
  local r = redis.call('HMGET', feed, 'r:' .. ARGV[a], 'd:' .. ARGV[a])
  local epoch, time = place_of(r[1])
  local reader = {name = ARGV[a], epoch = epoch, time = time, cursor = r[1] or '', dropped = tonumber(r[2] or '') or 0}
  reader.behind, reader.since = behind(stream, number, epoch, time)
  readers[#readers + 1] = reader
  if not worst or reader.behind > worst.behind then worst = reader end
end

-- drop deletes the oldest entries until a reader that has had nothing is no further behind than it may be. Readers that are too far behind lose them.
local function drop()
  local till = number - most
  for _ = 1, DROPS do
    local entries, least = redis.call('XRANGE', stream, '-', '+', 'COUNT', int(DROPS)), nil
    for _, entry in ipairs(entries) do
      local first, count = string.match(entry[2][2], '^(%d+) (%d+);')
      if first and tonumber(first) + tonumber(count) - 1 > till then
        least = entry[1]
        break
      end
    end
    if not least and #entries > 0 then
      local epoch, time = place_of(entries[#entries][1])
      least = int(epoch) .. '-' .. int(time + 1)
      redis.call('XTRIM', stream, 'MINID', least)
    else
      if least then redis.call('XTRIM', stream, 'MINID', least) end
      break
    end
  end
  for _, r in ipairs(readers) do
    local left, since = behind(stream, number, r.epoch, r.time)
    if left < r.behind then
      r.dropped = r.dropped + r.behind - left
      redis.call('HSET', feed, 'd:' .. r.name, int(r.dropped))
    end
    r.behind, r.since = left, since
  end
end

-- trim deletes what all readers have or, without a reader, what has been kept for long enough.
local function trim()
  if worst then
    redis.call('XTRIM', stream, 'MINID', int(worst.epoch) .. '-' .. int(worst.time + 1))
    return
  end
  for _ = 1, 16 do -- once for each epoch
    local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', '1')[1]
    if not first then return end
    local epoch = place_of(first[1])
    if redis.call('XTRIM', stream, 'MINID', int(epoch) .. '-' .. int(math.max(now - tonumber(ARGV[3]), 0))) == 0 then return end
  end
end

if not look and redis.call('EXISTS', stream) == 1 then
  trim()
  if worst and most > 0 and ARGV[5] == 'drop' and worst.behind > most then drop() end
end
local over = worst and most > 0 and ARGV[5] == 'hold' and worst.behind or 0
if over > most and held == 0 then
  held, waits = now, worst.name
  if not look then redis.call('HSET', feed, 'held', int(now), 'waits', waits) end
elseif held > 0 and over <= most * AGAIN then
  held, waits = 0, ''
  if not look then redis.call('HDEL', feed, 'held', 'waits') end
elseif held > 0 and waits ~= worst.name then
  waits = worst.name
  if not look then redis.call('HSET', feed, 'waits', waits) end
end
local kept = behind(stream, number, 0, 0)
local out = {int(number), int(kept), int(held), waits}
for _, r in ipairs(readers) do
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = r.cursor, int(r.behind), int(r.since), int(r.dropped)
end
return out
