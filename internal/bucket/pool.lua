-- pool.lua: the hash pace of a gateway, the lists of permits of its windows, and what is charged for a loss. A fragment: local functions only.
-- Fields of the pace, times in µs:
--    s      the latest slot ever given to any process
--    tat    the moment of the next slot by the spacing alone: it comes at most the tolerance before
--    h      no slot before
--    c      when this was written
--    x      its end
--    v, g   version and shape of the limits (ARGV 13 and 14 of reserve.lua)
--    n1…    units taken of each window
--    r      run id of the Redis that wrote it. Another one means a restart or a fail-over: what came after c may be lost. "restored µs": an operator has restored a snapshot that
--           knows nothing since then. "behind µs": Redis was started again, or another one took over, and its clock was behind
--    k      windows that are out of force: their lists go on (below)
--    o      "life id": life is when the state began from nothing; a caller that knows an older life knows of slots that are lost. id changes whenever the lists are rebuilt
--    u      "units before since dearest": the units granted, less those given back at once; how many of them were granted before the slot at since; that slot; the cost of the dearest job
--    p      "N R T tolerance": the pace of the shortest window when a slot was last given, as the arguments of reserve.lua say it
--    q      "h other window at …": until when no slot is given for other reasons than that windows don't know their past, and for each of them when they do (reshape.lua)
--    y      "at by who …" for each window: how much longer its permits took, by what a caller had seen of Redis's clock until then; others may not have seen it
--    charges  what losses have charged (loss_charges)
--    emptied  the mark of the last loss of everything
--    gap      "from upto": only the last moments of an append-only file were charged, for a loss of slots between these two; a caller that knows of earlier slots proves that the
--             file was older
--    leapt    "at by": the last leap of Redis's clock that was charged
--
-- A window's list holds pairs: edge (µs), units.
-- - An exact list has a pair for each slot; its edge is the moment at which the call counts. It is in order, except for pairs that an older version of the program has added behind
--   later ones.
-- - A list of sub-buckets (width > 0) has a pair for each sub-bucket that was used; its edge is the end of the sub-bucket. A late call can open a sub-bucket before its time.

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

-- pool_append adds pairs to an exact list, each behind those that count no later. So a call that counts late delays none that counts
-- earlier. It reports whether it has rewritten the whole list.
local function pool_append(list, p)
  local first, reach = tonumber(p[1]), 2
  local v
  repeat
    v = redis.call('LRANGE', list, -reach, -1)
    reach = reach * 8
  until #v < reach / 8 or tonumber(v[1]) <= first
  local at, i = 1, 1
  while at <= #v and tonumber(v[at]) <= first do at = at + 2 end
  if at > #v then
    redis.call('RPUSH', list, unpack(p))
    return false
  end
  local all, stay = {}, redis.call('LLEN', list) - (#v + 1 - at)
  while at <= #v or i <= #p do
    if i > #p or at <= #v and tonumber(v[at]) <= tonumber(p[i]) then
      all[#all + 1], all[#all + 2], at = v[at], v[at + 1], at + 2
    else
      all[#all + 1], all[#all + 2], i = p[i], p[i + 1], i + 2
    end
  end
  if stay > 0 then redis.call('LTRIM', list, 0, stay - 1) else redis.call('DEL', list) end
  for n = 1, #all, POOL_REACH do redis.call('RPUSH', list, unpack(all, n, math.min(n + POOL_REACH - 1, #all))) end
  return stay == 0
end

-- The windows that are out of force (kept). Each still has a list, to which calls are added. So a window that comes back,
-- or a shorter one in its place, counts what was called before and in between. Calls are added by the cell (see tally in
-- reserve.lua), in parts of the window. Pairs that are over are removed, and the list goes with its last pair.

local KEPT_PARTS, KEPT_CHUNK, KEPT_MOST = 256, 32, 4 -- KEPT_MOST as in pacer.go

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

-- What processes have told one another about a clock of Redis that goes too fast: field y of the pace.

local SLEWED_FASTEST = 10 -- a clock that is being corrected gains at most one part in this many

local function slewed_told(text)
  local told = {}
  for number in string.gmatch(text or '', '%d+') do told[#told + 1] = tonumber(number) end
  return told
end

-- slewed_most returns the most that a clock can gain within a window.
local function slewed_most(window) return math.floor(window / SLEWED_FASTEST) end

-- slewed_by returns until when a process had watched, how much longer the permits of window k took then (0 if that lies before the window), and which process it was.
local function slewed_by(told, k, window, width, now)
  local at, by, who = told[3 * k - 2] or 0, told[3 * k - 1] or 0, told[3 * k] or 0
  if now >= at + window + width + slewed_most(window) then by = 0 end
  return at, by, who
end

-- What may be missing from the lists after Redis lost writes.
--
-- A loss has a mark: no call from before the loss was written later than the mark. The pairs of a list up to the mark are what is known from before the loss. The pair at
-- the mark itself is the most that can be missing. What was granted after the loss comes behind it. An operator can lift the charge: see forgive.lua.

local LOSS_WAITED = 60000000 -- a shortest window of up to this length is waited for after a loss, and is not charged

local LOSS_FULL = 2 ^ 50 -- units, more than any limit allows
local LOSS_REPORTED = 1000000 -- a report of lateness comes within this time after its call was written
local LOSS_FILE = 4000000 -- the most that an append-only file can lack after a crash: it reaches the disk within 2 s, and the lateness of a call that is in it is reported within 2 s more

local loss_server -- what INFO says of the server, if it was asked

-- loss_run returns the run id of the Redis that runs now, if it can be known; the moment since when nothing is known (nil = there is no such doubt) and why ("restored" or
-- "behind"); and what INFO says of the server. wrote is the field r of the pace.
local function loss_run(wrote)
  local server = loss_server or redis.pcall('INFO', 'server') -- empty if INFO is not allowed or not known
  if type(server) ~= 'string' then server = '' end
  loss_server = server
  local why, since = string.match(wrote or '', '^(%a+) (%d+)$')
  return string.match(server, 'run_id:(%w+)') or not why and wrote or nil, tonumber(since), why, server
end

-- loss_span returns how short the time is in which the slots lie that a Redis with another run id can have lost (µs), or 0 if that is unknown. A Redis that has
-- read its own append-only file lacks its last moments only, however long it was away. One that was a replica may lack more.
local function loss_span()
  local info = ''
  for _, part in ipairs({'persistence', 'stats'}) do
    local text = redis.pcall('INFO', part)
    if type(text) == 'string' then info = info .. text end
  end
  local file, alone = string.find(info, 'aof_enabled:1', 1, true), string.find(info, 'total_net_repl_input_bytes:0\r', 1, true)
  return file and alone and LOSS_FILE or 0
end

-- loss_gap returns the part of a gap that lost slots can lie in.
local function loss_gap(gap, span) return span > 0 and math.min(gap, span) or gap end

-- loss_first returns the number of the first window that is charged.
local function loss_first(R1) return R1 > LOSS_WAITED and 1 or 2 end

-- loss_most returns the most units that can have been granted in slots within gap µs, by the shortest window or by the spacing.
local function loss_most(gap, N1, R1, T, tolerance, dearest)
  if R1 <= LOSS_WAITED then return (math.floor(gap / R1) + 1) * N1 end
  return math.floor((gap + tolerance) / T) + dearest
end

-- loss_charges parses the field charges of the pace, "window mark units …": how much a loss has charged the window of that number, at its mark.
local function loss_charges(text)
  local all = {}
  for k, mark, units in string.gmatch(text or '', '(%d+) (%d+) (%d+)') do all[#all + 1] = {tonumber(k), tonumber(mark), tonumber(units)} end
  return all
end

-- loss_text formats charges for that field.
local function loss_text(charges)
  local all = ''
  for _, c in ipairs(charges) do all = all .. string.format('%.0f %.0f %.0f ', c[1], c[2], c[3]) end
  return all
end

-- loss_charged returns that field with one more charge. Charges of this window whose mark is not after `gone` are left out. Marks before `earliest` or after
-- `latest` are moved to that moment.
local function loss_charged(text, k, mark, units, gone, earliest, latest)
  local all = {}
  for _, c in ipairs(loss_charges(text)) do
    if c[1] == k then c[2] = c[2] > gone and math.min(math.max(c[2], earliest), latest) end
    if c[2] then all[#all + 1] = c end
  end
  all[#all + 1] = {k, mark, units}
  return loss_text(all)
end

-- loss_take removes the pairs up to the mark from the list, and returns their units.
local function loss_take(list, mark)
  local units = 0
  repeat
    local v, n = redis.call('LRANGE', list, 0, POOL_CHUNK - 1), 0
    while n < #v and tonumber(v[n + 1]) <= mark do
      units = units + tonumber(v[n + 2])
      n = n + 2
    end
    if n > 0 then redis.call('LPOP', list, n) end
  until n < POOL_CHUNK
  return units
end

-- loss_charge adds the units that may be missing to a window's list, behind what is known from before the loss. younger: the list belongs to a younger life than the
-- missing units, and is complete.
local function loss_charge(list, mark, missing, younger)
  if younger then
    local own = loss_take(list, mark)
    if own > 0 then redis.call('LPUSH', list, int(own), int(mark + 1)) end
    redis.call('LPUSH', list, int(missing), int(mark))
    return
  end
  local v, known = redis.call('LRANGE', list, -2, -1), 0
  while v[1] and tonumber(v[1]) > mark do -- a sub-bucket that ends later; its calls were written by then
    known = known + tonumber(v[2])
    redis.call('LTRIM', list, 0, -3)
    v = redis.call('LRANGE', list, -2, -1)
  end
  redis.call('RPUSH', list, int(mark), int(known + missing))
end

-- loss_missing returns the most units that can be missing from a stretch of time: at the pace of now (N1, R1, T, tolerance), or at that of the last slot (paced: field p).
-- A job that waits, or was lost with its slot, may have cost more than the dearest that is known: costly says so, and then least is the most that it can have cost.
local function loss_missing(gap, paced, N1, R1, T, tolerance, dearest, costly, least)
  local n, r, t, tol = pool_numbers(paced)
  local dear = costly and math.max(dearest, least, n) or dearest
  local missing = loss_most(gap, N1, R1, T, tolerance, dear)
  return n > 0 and math.max(missing, loss_most(gap, n, r, t, tol, dear)) or missing
end

-- loss_others reports whether other processes listen on a channel. In a cluster, Redis does not say how many listen. server is what INFO says.
local function loss_others(channel, server)
  local heard = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return string.find(server, 'redis_mode:cluster', 1, true) or type(heard) == 'table' and tonumber(heard[2]) and tonumber(heard[2]) > 1
end
