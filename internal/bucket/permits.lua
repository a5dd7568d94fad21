-- permits.lua: a fragment for the permits that calls have taken of a route or of a lane, in logs that are packed into one value.
--
-- A log is {width, edge, units, edge, units, …}, oldest first, all in µs. With width 0 it has each call by itself, and serves all windows that are kept exactly. Else it
-- has parts of that width, whose ends are the edges, and serves the windows with that width.

local permits = {}
local PERMITS_WAITED = 60000000 -- windows of lanes that are longer are not charged for what Redis has lost

-- permits.limits converts windows as pick.lua is given them: {units, µs until a permit is ready again, width, how much longer it takes}.
function permits.limits(windows)
  local limits = {longest = 0, most = 0, least = math.huge}
  for k, w in ipairs(windows) do
    local window = {N = w[1], R = w[2] + w[4], width = w[3]}
    limits[k] = window
    limits.longest, limits.least = math.max(limits.longest, window.R + window.width), math.min(limits.least, window.N)
    if window.width == 0 then limits.most = math.max(limits.most, window.N) end
  end
  return limits
end

-- permits.own parses limits that are in Redis as "units:window:width …"; the width is 0 for windows that are kept exactly. how says how a process computes them: least (shorter windows
-- count as this long, µs)  more (how much longer than the window a permit takes, µs)  late (and how much longer still in a window in parts)  longer ({window, how much longer a permit
-- takes in a window of up to that length}, …, the shortest first).
function permits.own(text, how)
  local windows = {}
  for units, length, width in string.gmatch(text, '(%d+):(%d+):(%d+)') do
    length, width = math.max(tonumber(length), how.least), tonumber(width)
    local longer = 0
    for _, step in ipairs(how.longer) do
      longer = step[2]
      if step[1] >= length then break end
    end
    windows[#windows + 1] = {tonumber(units), length + math.ceil(length / 10000) + how.more + (width > 0 and how.late or 0), width, longer}
  end
  return permits.limits(windows)
end

-- permits.both returns the windows of two limits together.
function permits.both(a, b)
  local limits = {longest = math.max(a.longest, b.longest), most = math.max(a.most, b.most), least = math.min(a.least, b.least)}
  for _, of in ipairs({a, b}) do
    for k = 1, #of do limits[#limits + 1] = of[k] end
  end
  return limits
end

function permits.edge(at, width)
  if width == 0 then return at end
  return math.ceil(at / width) * width
end

function permits.add(log, edge, units)
  local i = #log - 1
  while i > 1 and log[i] > edge do i = i - 2 end
  if i > 1 and log[i] == edge then
    log[i + 1] = log[i + 1] + units
    return
  end
  table.insert(log, i + 2, edge)
  table.insert(log, i + 3, units)
end

-- permits.drop removes units from the pair with that edge, and reports whether the pair had them.
function permits.drop(log, edge, units)
  for i = #log - 1, 2, -2 do
    if log[i] == edge and log[i + 1] >= units then
      log[i + 1] = log[i + 1] - units
      if log[i + 1] == 0 then
        table.remove(log, i)
        table.remove(log, i)
      end
      return true
    end
  end
  return false
end

-- permits.log returns the log of that width. A new log is filled from the one that reaches back furthest, because limits may have changed.
function permits.log(logs, width)
  local from
  for _, log in ipairs(logs) do
    if log[1] == width then return log end
    if log[2] and (not from or log[2] < from[2]) then from = log end
  end
  local log = {width}
  for i = 2, from and #from or 0, 2 do permits.add(log, permits.edge(from[i], width), from[i + 1]) end
  logs[#logs + 1] = log
  return log
end

-- permits.room returns when a log has units ready in a window of N units, R µs after each use, at t at the earliest. It counts back from the newest use:
-- the permit that must be ready again is that of the newest use that leaves no room for the units. lost = {mark, units, since}: at most so many units were used until the
-- mark that Redis has lost, and so were the reports of lateness of uses since then (nil = nothing was lost).
function permits.room(log, N, R, units, t, lost)
  local sum, mark = units, lost and lost.mark or -1
  for i = #log - 1, 2, -2 do
    local edge = log[i]
    if lost and edge >= lost.since and edge < lost.mark then edge = lost.mark end
    if mark >= edge then
      sum = sum + lost.units
      if sum > N then return math.max(t, mark + R) end
      mark = -1
    end
    if edge + R <= t then return t end
    sum = sum + log[i + 1]
    if sum > N then return edge + R end
  end
  if mark > 0 and sum + lost.units > N then return math.max(t, mark + R) end
  return t
end

-- permits.ready returns when all windows have units ready, at t at the earliest. Each window is asked from where the one before ended: nothing becomes ready earlier
-- as long as nothing is given back.
function permits.ready(logs, limits, units, t, lost, long)
  for k = 1, #limits do
    local w = limits[k]
    local charged = w.R <= PERMITS_WAITED or long
    t = permits.room(permits.log(logs, w.width), w.N, w.R, math.min(units, w.N), t, charged and lost or nil)
  end
  return t
end

-- permits.take records a use. Exact windows count it at edge, those in parts at its slot. Uses that no window needs any more are removed.
function permits.take(logs, limits, units, slot, edge, now)
  if #limits == 0 and #logs == 0 then return end
  local wanted = {}
  for k = 1, #limits do wanted[limits[k].width] = permits.log(logs, limits[k].width) end
  for i = #logs, 1, -1 do
    if wanted[logs[i][1]] ~= logs[i] then table.remove(logs, i) end
  end
  for _, log in ipairs(logs) do
    permits.add(log, log[1] == 0 and edge or permits.edge(slot, log[1]), units)
    local n, sum = #log - 1, 0
    while n > 1 and log[n] + limits.longest > now and (log[1] > 0 or sum < limits.most) do
      sum, n = sum + log[n + 1], n - 2
    end
    if n > 1 then
      local kept = {log[1]}
      for i = n + 2, #log do kept[#kept + 1] = log[i] end
      for i = 1, math.max(#log, #kept) do log[i] = kept[i] end
    end
  end
end

-- permits.back gives a use back.
function permits.back(logs, units, slot, edge)
  for _, log in ipairs(logs) do permits.drop(log, log[1] == 0 and edge or permits.edge(slot, log[1]), units) end
end

-- permits.move makes a use count at another moment. Windows in parts allow for a call that is written up to allowed µs after its slot.
function permits.move(logs, units, slot, edge, to, allowed)
  for _, log in ipairs(logs) do
    local was, is = edge, to
    if log[1] > 0 then was, is = permits.edge(slot, log[1]), permits.edge(to > slot + allowed and to or slot, log[1]) end
    if is ~= was and permits.drop(log, was, units) then permits.add(log, is, units) end
  end
end
