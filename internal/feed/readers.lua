-- readers.lua: how far the readers of a gateway's outcome feed are. A fragment: local functions only. The feed is told.lua's (internal/record).
-- Fields of spillway:{gateway}:feed beside those of told.lua:
--   r:READER  cursor up to which it has acknowledged    d:READER  how many outcomes were dropped before it had
--   held, waits  since when the feed holds the gateway (µs), and the reader that it waits for; absent: it does not

-- place_of parses a cursor.
local function place_of(cursor)
  local epoch, time = string.match(cursor or '', '^(%d+)-(%d+)$')
  return tonumber(epoch) or 0, tonumber(time) or 0
end

-- entry_behind returns the first entry after a place: its epoch and time, the number of its first outcome, and how many it has; or nil.
local function entry_behind(stream, epoch, time)
  local entry = redis.call('XRANGE', stream, int(epoch) .. '-' .. int(time + 1), '+', 'COUNT', '1')[1]
  if not entry then return nil end
  local e, t = place_of(entry[1])
  local first, count = string.match(entry[2][2], '^(%d+) (%d+);')
  return e, t, tonumber(first) or 0, tonumber(count) or 1
end

-- behind returns how many outcomes come after a place, if number is how many there were in all, and when the first of them was (µs; 0 if there is none).
local function behind(stream, number, epoch, time)
  local e, t, first, count = entry_behind(stream, epoch, time)
  if not e then return 0, 0 end
  local had = e == epoch and t - time < count and count - (t - time) or 0
  return math.max(number - first - had + 1, 1), t - count + 1 + had
end
