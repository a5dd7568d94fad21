-- reshape.lua rebuilds the lists after the limits have changed, or after Redis's clock went far back. Composed after NowLua and
-- pool.lua. It runs once for each such change.
-- KEYS 1 pace  2 hold  3 flight  4… the lists of as many windows as there can be (LISTS), then those of windows out of force
-- ARGV 1 now (µs, 0 = Redis's)  2 version of the limits  3 shape: "window:width " for each window, shortest first (µs)
--      4 how long after its slot a call is written at most (µs)
-- returns 1, or 0 if a newer version is in force.
-- A new window is filled from an old one that reaches back as far, in force or not, or else from the one that reaches back furthest. What no
-- window remembers is waited for, at most MOST, as long as the window is in force; it is charged in full if everything was lost within the window. After a step back every
-- time is moved by the same amount, late rather than early.
local MOST, STEP_BACK, KEPT, CHUNK, LISTS = 60000000, 2000000, 3600000000, 4000, 8
local EPSILON = 2000 -- an exact window allows for unreported lateness up to this (µs)
local LATE = 1000000 -- a call is written within this time after its slot, and reported within this time after that
local call = redis.call
local now = now_us(ARGV[1])
local pace = call('HMGET', KEYS[1], 'v', 'g', 's', 'tat', 'h', 'c', 'o', 'u', 'k', 'y', 'charges', 'emptied', 'r', 'q')
if not pace[2] or tonumber(pace[1]) > tonumber(ARGV[2]) then return pace[2] and 0 or 1 end
local back = (tonumber(pace[6]) or 0) - now
if back <= STEP_BACK then back = 0 end

-- read_unknown returns until when no slot is given for other reasons than windows whose past is unknown, and for each of these when it is known. The field q holds
-- the h that it is true of.
local function read_unknown()
  local h, other, rest = string.match(pace[14] or '', '^(%d+) (%d+)(.*)$')
  if h ~= pace[5] then return (tonumber(pace[5]) or 0) - back, {} end
  local known = {}
  for window, at in string.gmatch(rest, '(%d+) (%d+)') do known[tonumber(window)] = tonumber(at) - back end
  return tonumber(other) - back, known
end

local others, known = read_unknown()
local quiet = others
local units, before, _, dearest = pool_numbers(pace[8])

local function shape(text)
  local windows = {}
  for window, width in string.gmatch(text, '(%d+):(%d+)') do
    windows[#windows + 1] = {window = tonumber(window), width = tonumber(width)}
  end
  return windows
end

local old, new = shape(pace[2]), shape(ARGV[3])
local in_force, same = #old, pace[2] == ARGV[3]
-- Reports of lateness that are on their way find none of the permits any more, except in lists that stay as they are. So calls with such slots, and all calls after a
-- step back, count as written as late as possible. The same holds for calls in parts, whose windows allowed for lateness and no longer do. Other calls count as late as their windows allowed for.
local late = math.max(tonumber(ARGV[4]), math.min(LATE, old[1].window / 4))
local reported = back > 0 and -math.huge or same and math.huge or now - late - LATE
local newest = (tonumber(pace[3]) or 0) + LATE -- no call was later, however late a part of a window ends
local latest_write = (tonumber(pace[3]) or 0) + late - back -- no unreported call was later, however often the lists are rebuilt
for k, w in ipairs(old) do w.k, w.list = k, call('LRANGE', KEYS[3 + k], 0, -1) end
for j, window in ipairs(kept_windows(pace[9])) do
  local list = call('LRANGE', KEYS[3 + LISTS + j], 0, -1)
  if units > before then list[#list + 1], list[#list + 2] = (tonumber(pace[3]) or 0) + LATE, units - before end
  old[in_force + j] = {k = in_force + j, window = window, list = list}
end
table.sort(old, function(a, b) return a.window < b.window end)

local function source(window)
  for _, w in ipairs(old) do -- shortest first
    if w.window >= window then return w end
  end
  return old[#old]
end

-- later returns how much later than its edge a call of w may have been written, as far as its new window knows.
local function later(w, edge)
  if edge > reported or not same and (w.width or 0) > 0 then return late end
  return same and 0 or EPSILON
end

-- rewritten returns the pairs of w in sub-buckets of this width, their units, and for each edge the one that replaces it.
local function rewritten(w, width)
  local out, units, latest, stands = {}, 0, 0, {}
  for i = 1, #w.list, 2 do
    local edge, count = math.min(tonumber(w.list[i]), newest) - back, tonumber(w.list[i + 1])
    edge = math.max(edge, math.min(edge + later(w, edge), latest_write))
    if width > 0 then edge = pool_edge(edge, width) end
    edge = math.max(edge, latest)
    latest = edge
    stands[w.list[i]] = edge
    if width > 0 and out[#out - 1] == edge then
      out[#out] = out[#out] + count
    else
      out[#out + 1], out[#out + 2] = edge, count
    end
    units = units + count
  end
  for i = 1, #out do out[i] = int(out[i]) end
  return out, units, stands
end

-- put_in inserts a pair in order.
local function put_in(pairs_of, width, edge, units)
  local at = 1
  while pairs_of[at] and tonumber(pairs_of[at]) <= edge do at = at + 2 end
  if width > 0 and tonumber(pairs_of[at - 2]) == edge then
    pairs_of[at - 1] = int(tonumber(pairs_of[at - 1]) + units)
  else
    table.insert(pairs_of, at, int(units))
    table.insert(pairs_of, at, int(edge))
  end
end

-- out_of_force returns the windows to remember beside the new ones: the longest that are not among them.
local function out_of_force()
  local seen, out = {}, {}
  for _, w in ipairs(new) do seen[w.window] = true end
  for i = #old, 1, -1 do
    if not seen[old[i].window] and #out < #KEYS - 3 - LISTS then table.insert(out, 1, old[i]) end
    seen[old[i].window] = true
  end
  return out
end

local set, longest, lists, kept, charges, unknown = {}, 0, {}, out_of_force(), '', {}

-- carry_charges turns charges of an old window into charges of window k; stands says where its pairs are now.
local function carry_charges(from, k, stands)
  for _, c in ipairs(loss_charges(pace[11])) do
    local edge = c[1] == from.k and stands[int(c[2])]
    if edge then charges = loss_charged(charges, k, edge, c[3], 0, 0, math.huge) end
  end
end

for k, w in ipairs(new) do
  local from = source(w.window)
  local pairs_of, sum, stands = rewritten(from, w.width)
  carry_charges(from, k, stands)
  unknown[w.window] = known[from.window]
  if from.window < w.window then
    unknown[w.window] = math.max(unknown[w.window] or 0, math.min(math.max(now, known[from.window] or 0) + w.window - from.window, now + MOST))
    if (tonumber(pace[12]) or -math.huge) - back + w.window > now then -- nobody knows what was called in it until now
      local mark = pool_edge(math.max(now, latest_write), w.width)
      put_in(pairs_of, w.width, mark, LOSS_FULL)
      sum, charges = sum + LOSS_FULL, loss_charged(charges, k, mark, LOSS_FULL, 0, 0, math.huge)
    end
  end
  quiet = math.max(quiet, unknown[w.window] or 0)
  lists[k], longest = pairs_of, math.max(longest, w.window + w.width)
  set[#set + 1], set[#set + 2] = 'n' .. k, int(sum)
end
for k = 4, #KEYS do call('DEL', KEYS[k]) end
for k = #new + 1, in_force do call('HDEL', KEYS[1], 'n' .. k) end

local function put(key, list, ttl)
  for i = 1, #list, CHUNK do call('RPUSH', key, unpack(list, i, math.min(i + CHUNK - 1, #list))) end
  if #list > 0 then call('PEXPIRE', key, ttl) end
end
local windows = {}
for j, w in ipairs(kept) do
  local list, _, stands = rewritten(w, kept_width(w.window))
  local over = 0
  carry_charges(w, #new + j, stands)
  unknown[w.window] = known[w.window] -- if it comes back before then, the rest is waited for
  while list[over + 1] and tonumber(list[over + 1]) + kept_for(w.window) <= now do over = over + 2 end
  list = {unpack(list, over + 1)}
  windows[j], longest = int(w.window), math.max(longest, kept_for(w.window))
  put(KEYS[3 + LISTS + j], list, int(math.ceil((math.max(tonumber(list[#list - 1]) or 0, now) + kept_for(w.window) - now) / 1000)))
end
local last, tat = (tonumber(pace[3]) or 0) - back, (tonumber(pace[4]) or 0) - back
local ttl = int(math.ceil((math.max(last, quiet, now) + 2 * longest + KEPT - now) / 1000))
for k, list in ipairs(lists) do put(KEYS[3 + k], list, ttl) end
local life, id = pool_numbers(pace[7])
for _, x in ipairs({'v', ARGV[2], 'g', ARGV[3], 's', int(last), 'tat', int(tat), 'h', int(quiet), 'c', int(math.min(now, tonumber(pace[6]) or now)), 'x', 0,
  'o', int(life > 0 and math.min(life, now) or now) .. ' ' .. int(math.max(now, id + 1)), 'k', table.concat(windows, ' '),
  'u', string.format('%.0f %.0f %.0f %.0f', units, units, math.max(last, now) + 1, dearest)}) do
  set[#set + 1] = x
end
local left = int(quiet) .. ' ' .. int(math.max(others, 0))
for window, at in pairs(unknown) do
  if at > now then left = left .. ' ' .. int(window) .. ' ' .. int(at) end
end
set[#set + 1], set[#set + 2] = 'q', left
call('HSET', KEYS[1], unpack(set))
if pace[11] or charges ~= '' then call('HSET', KEYS[1], 'charges', charges) end

-- The gains of a clock that goes too fast, as seen in the longest window, hold for new windows.
local function gained(text)
  local told, latest, most = {}, 0, 0
  for at, by, who in string.gmatch(text, '(%d+) (%d+) (%d+)') do
    told[#told + 1] = int(math.max(at - back, 0)) .. ' ' .. by .. ' ' .. who
    latest, most = math.max(latest, at - back), math.max(most, tonumber(by))
  end
  if not same then
    for k = 1, #new do told[k] = int(latest) .. ' ' .. int(most) .. ' 0' end
  end
  return table.concat(told, ' ')
end
if pace[10] then call('HSET', KEYS[1], 'y', gained(pace[10])) end
call('PEXPIRE', KEYS[1], ttl)

if back > 0 then
  local lanes = string.match(KEYS[1], '^.*}:') .. 'lanes' -- their times go on: see lanes.lua
  if call('EXISTS', lanes) == 1 then call('HINCRBY', lanes, 'moved', int(back)) end
  call('HDEL', KEYS[1], 'leapt', 'gap') -- moments that are compared with those of processes, which move theirs by another amount
  if pace[12] then call('HSET', KEYS[1], 'emptied', int(pace[12] - back)) end
  -- When a Redis with another run id wrote last can't be told by this one's clock.
  local run, doubted = loss_run(pace[13])
  if run and pace[13] and run ~= pace[13] and not doubted then
    local span = loss_span()
    call('HSET', KEYS[1], 'r', 'behind ' .. int(span > 0 and now - span or 0))
  end
  local hold = call('HMGET', KEYS[2], 'until', 'probe')
  for i, name in ipairs({'until', 'probe'}) do
    if hold[i] then call('HSET', KEYS[2], name, int(tonumber(hold[i]) - back)) end
  end
  for _, lease in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do call('ZINCRBY', KEYS[3], int(-back), lease) end
end
return 1
