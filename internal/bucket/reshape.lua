-- reshape.lua: the limits have changed, or Redis's clock went far back: the lists are made anew. Composed after NowLua
-- and pool.lua. It runs once for each such change.
-- KEYS 1 pace  2 hold  3 flight  4… the lists of as many windows as there can be
-- ARGV 1 now (µs, 0 = Redis's)  2 version of the limits  3 shape: "window:width " for each window, shortest first (µs)
-- Returns 1, or 0 when a newer version is in force.
-- A new window is filled from an old one that remembers as long, or else from the one that remembers longest; what no
-- window remembers is waited for, at most MOST. After a step back every time is moved by as much: late rather than early.
local MOST, STEP_BACK, KEPT, CHUNK = 60000000, 2000000, 3600000000, 4000
local call = redis.call
local now = now_us(ARGV[1])
local pace = call('HMGET', KEYS[1], 'v', 'g', 's', 'tat', 'h', 'c', 'o', 'u')
if not pace[2] or tonumber(pace[1]) > tonumber(ARGV[2]) then return pace[2] and 0 or 1 end
local back = (tonumber(pace[6]) or 0) - now
if back <= STEP_BACK then back = 0 end
local quiet = (tonumber(pace[5]) or 0) - back

local function shape(text)
  local windows = {}
  for window, width in string.gmatch(text, '(%d+):(%d+)') do
    windows[#windows + 1] = {window = tonumber(window), width = tonumber(width)}
  end
  return windows
end

local old, new = shape(pace[2]), shape(ARGV[3])
for k, w in ipairs(old) do w.list = call('LRANGE', KEYS[3 + k], 0, -1) end

local function source(window)
  for _, w in ipairs(old) do -- shortest first
    if w.window >= window then return w end
  end
  return old[#old]
end

-- rewritten returns the pairs of w in sub-buckets of this width, and their units.
local function rewritten(w, width)
  local out, units, latest = {}, 0, 0
  for i = 1, #w.list, 2 do
    local edge, count = tonumber(w.list[i]) - back, tonumber(w.list[i + 1])
    if width > 0 then
      edge = math.max(pool_edge(edge, width), latest)
      latest = edge
    end
    if width > 0 and out[#out - 1] == edge then
      out[#out] = out[#out] + count
    else
      out[#out + 1], out[#out + 2] = edge, count
    end
    units = units + count
  end
  for i = 1, #out do out[i] = int(out[i]) end
  return out, units
end

local set, longest, lists = {}, 0, {}
for k, w in ipairs(new) do
  local from = source(w.window)
  local pairs_of, units = rewritten(from, w.width)
  if from.window < w.window then quiet = math.max(quiet, now + math.min(w.window - from.window, MOST)) end
  lists[k], longest = pairs_of, math.max(longest, w.window + w.width)
  set[#set + 1], set[#set + 2] = 'n' .. k, int(units)
end
for k = 1, math.max(#old, #new) do call('DEL', KEYS[3 + k]) end
for k = #new + 1, #old do call('HDEL', KEYS[1], 'n' .. k) end

local last, tat = (tonumber(pace[3]) or 0) - back, (tonumber(pace[4]) or 0) - back
local ttl = int(math.ceil((math.max(last, quiet, now) + 2 * longest + KEPT - now) / 1000))
for k, list in ipairs(lists) do
  for i = 1, #list, CHUNK do call('RPUSH', KEYS[3 + k], unpack(list, i, math.min(i + CHUNK - 1, #list))) end
  if #list > 0 then call('PEXPIRE', KEYS[3 + k], ttl) end
end
local life, id = pool_numbers(pace[7])
local units, _, _, dearest = pool_numbers(pace[8])
for _, x in ipairs({'v', ARGV[2], 'g', ARGV[3], 's', int(last), 'tat', int(tat), 'h', int(quiet), 'c', int(now), 'x', 0,
  'o', int(life > 0 and life or now) .. ' ' .. int(math.max(now, id + 1)),
  'u', string.format('%.0f %.0f %.0f %.0f', units, units, math.max(last, now) + 1, dearest)}) do
  set[#set + 1] = x
end
call('HSET', KEYS[1], unpack(set))
call('HDEL', KEYS[1], 'w') -- nobody remembers windows that are new
call('PEXPIRE', KEYS[1], ttl)

if back > 0 then
  local hold = call('HMGET', KEYS[2], 'until', 'probe')
  for i, name in ipairs({'until', 'probe'}) do
    if hold[i] then call('HSET', KEYS[2], name, int(tonumber(hold[i]) - back)) end
  end
  for _, lease in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do call('ZINCRBY', KEYS[3], int(-back), lease) end
end
return 1
