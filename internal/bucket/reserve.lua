-- reserve.lua reserves the next slots of one gateway. It finds out whether there may be any now. Which they are, slots.lua decides behind it; if the gateway has lanes, pick.lua does.
-- KEYS
--    1  pace (fields in pool.lua)
--    2  hold
--    3  flight
--    4  pending
--    5  costs
--    6  active
--    7  retries
--    8  replays
--    9  due
--   10… the windows' lists, shortest window first; the lists of windows that are out of force; if the gateway has classes, the lines of jobs that were never called, the highest class first
-- ARGV  times and lengths of time in µs
--    1  now (0 = Redis's)
--    2  lead: the least distance of a slot
--    3  horizon: the greatest
--    4  floor: the latest slot that the caller knows to have been given to any process
--    5  jump: how far Redis's clock was seen to leap ahead (0 = it did not)
--    6  spacing of calls, for each unit
--    7  tolerance of the spacing, for bursts
--    8  slots wanted
--    9  cost of each (0 = that of the waiting jobs, and no more slots than jobs)
--   10  cap of calls in flight (0 = none)
--   11  how long a lease outlives its slot
--   12  prefix of the leases' names
--   13  version of the limits
--   14  shape: the windows and widths that the lists are kept for
--   15  how long after its slot a call is written at most
--   16  life that the caller knows (0 = none)
--   17  channel
--   18  gateway
--   19  allowance: how much later than its slot exact lists count a call; no call is written later
--   20  when the caller last heard of a state (0 = never)
--   21  until when, on Redis's clock, the caller has watched how fast that clock goes
--   22  "at by …": what the clock gained too much until then, each gain as it was seen, oldest first
--   23  what it gains within the horizon at that rate
--   24  a number of the caller's own
--   25… for each window: units N; R until a permit is ready again; width of its sub-buckets (0 = exact); how much longer a permit takes because of those gains; how much longer for
--       this caller alone, which has not watched the clock for the whole window
-- returns {state, now, hint, held until, epoch, 1 if calls wait for a probe (2 if slots have leases, 4 if jobs have costs), s, o, slot, cost, slot, cost, …}; lease i is name:i. hint: µs after which to ask again
--    ok       slots follow, at least one
--    idle     no job waits
--    ahead    slots enough are out for the jobs that wait
--    horizon  the next slot is too far off
--    held     nobody calls before held until
--    probing  one call is on its way, the rest wait for it
--    braked   no brake has room for a job's money (brakes.lua of internal/record)
--    paused   an operator stopped it
--    full     as many calls are under way as may be
--    stale    a newer version of the limits is in force
--    reshape  run reshape.lua, then ask again
--    lost     Redis lost writes, or may have, or its clock leapt: one window must pass. The slots are replaced by the most units that each long window is charged with, and the reason
--             (WHY below). Field lost of the hold: when a loss was noticed (µs)
-- A refusal writes nothing, with these exceptions: it removes leases that ran out; lost sets the pause; a life begins that others may object to; and now and then it writes
-- a mark of the time, and y.
local STEP_BACK = 2000000 -- if the clock went back by no more than this, it stands still instead
local FULL_HINT, PAUSED_HINT, PROBE_HINT = 50000, 1000000, 100000
local PROBE_EVERY = 5000000 -- without news of the call that was sent ahead, the next one's slot comes after this time
local MARK_EVERY = 5000000 -- while nothing is granted, the time is written this often: it bounds what a restart can have lost
local OBJECTIONS = 250000 -- a new life waits this long if other processes may know an older one
local CELLS, CELL = 256, 1000000 -- u is marked this often in the first window that a loss charges, and at most once in this time (µs)
local KEPT = 3600000000 -- the state outlives its use by at least this: if it is gone sooner, it was lost
local WHY = {leapt = 0, emptied = 1, missing = 2, another = 3, list = 4, restored = 5, behind = 6} -- the reasons, as the log names them: see loss.go
local call = redis.call
local NEWS = 1000 -- without a slot, others are only told of more than this (µs)
local GONE = 3000000 -- while Redis's clock goes too fast, the process that told of it tells more within this time (µs)
local K = (#ARGV - 24) / 5
local real_now = now_us(ARGV[1])
local lead, horizon, floor, jump = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local T, tolerance, want, asked, cap, outlives = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local late, root, allowance, heard_at = tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[19]), tonumber(ARGV[20])

local fields = {'s', 'tat', 'h', 'c', 'x', 'v', 'g', 'r', 'o', 'u', 'k', 'y', 'charges', 'gap', 'p', 'leapt'}
local FIXED = #fields
for k = 1, K do fields[FIXED + k] = 'n' .. k end
local pace = call('HMGET', KEYS[1], unpack(fields))
local hold = call('HMGET', KEYS[2], 'until', 'need', 'probe', 'epoch', 'paused', 'few', 'fewat', 'fewfrom', 'brake', 'pulled')
local last, tat, quiet, clock = tonumber(pace[1]) or 0, tonumber(pace[2]) or 0, tonumber(pace[3]) or 0, tonumber(pace[4]) or 0
local held, need, probe = tonumber(hold[1]) or 0, tonumber(hold[2]) or 0, tonumber(hold[3]) or 0
local costly = false -- jobs have costs of their own
local function answer(state, hint)
  local out = {state, int(real_now), int(math.max(hint, 0)), int(held), hold[4] or '0', need + (cap > 0 and 2 or 0) + (costly and 4 or 0), int(last)}
  out[8] = pace[9] or ''
  return out
end

local now = math.max(real_now, clock)
-- few is the cap that fewer.lua asked for. It recovers by one call a second, until as many calls are allowed as had been too many.
local few = tonumber(hold[6])
if few then
  few = few + math.floor(math.max(now - (tonumber(hold[7]) or 0), 0) / 1000000)
  if few >= (tonumber(hold[8]) or 0) then few = nil end
end
if few and (cap == 0 or few < cap) then cap = few end
if clock - real_now > STEP_BACK then return answer('reshape', 0) end
if pace[6] and tonumber(pace[6]) > tonumber(ARGV[13]) then return answer('stale', PAUSED_HINT) end
if pace[7] and (pace[7] ~= ARGV[14] or pace[6] ~= ARGV[13]) then return answer('reshape', 0) end

-- The windows. Each has a read cursor over the head of its list: nothing is written until every slot is known.
local N, R, width, used, before, cursor, from, buf, push, longer = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local open, touched = {}, {} -- place of the open sub-bucket's pair, and whether this reservation added to it
local longest, least, most = 0, math.huge, 0
for k = 1, K do
  N[k], R[k], width[k], longer[k] = tonumber(ARGV[20 + 5 * k]), tonumber(ARGV[21 + 5 * k]), tonumber(ARGV[22 + 5 * k]), tonumber(ARGV[23 + 5 * k])
  used[k] = tonumber(pace[FIXED + k]) or 0
  before[k], cursor[k], push[k] = used[k], 0, {}
  longest, least = math.max(longest, R[k] + width[k]), math.min(least, N[k])
  most = math.max(most, N[k])
end
local present = ARGV[25] .. ' ' .. ARGV[26] .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] -- the field p

-- What one caller has seen of Redis's clock holds for all callers, also for those that come after it is gone, as long as it can lie within the window.
-- It may lie further back than a window: then no more of it is passed on than a clock can gain within one window. What this
-- caller has seen since then is added, because neither of them has seen all of it. When the caller that told is gone, another one tells all.
local watched, gains, ahead, me = tonumber(ARGV[21]), ARGV[22], tonumber(ARGV[23]), tonumber(ARGV[24])
local function gained_since(moment)
  local sum = 0
  for at, by in string.gmatch(gains, '(%d+) (%d+)') do
    if tonumber(at) > moment then sum = sum + tonumber(by) end
  end
  return sum
end
local told, tell, news = slewed_told(pace[12]), '', 0
for k = 1, K do
  local at, heard, who = slewed_by(told, k, R[k], width[k], now)
  local most, tells = slewed_most(R[k]), true
  local seen = math.min(longer[k], most)
  if heard > 0 then
    local all = math.min(heard + gained_since(at), most)
    tells = seen >= all or who == me or watched - at > GONE
    seen = math.max(seen, all)
  end
  longer[k] = math.max(longer[k], seen, heard) + ahead + tonumber(ARGV[24 + 5 * k])
  if tells and seen > heard then
    news = math.max(news, seen - heard)
    at, heard, who = watched, seen, me
  end
  tell = tell .. int(at) .. ' ' .. int(heard) .. ' ' .. int(who) .. ' '
end

local function forget_lists() -- without the hash the lists mean nothing: their units are no longer counted
  for k = 1, K do call('DEL', KEYS[9 + k]) end
end

local kept = kept_windows(pace[11])
for _, window in ipairs(kept) do longest = math.max(longest, kept_for(window)) end
local function kept_add(edge, units)
  for j, window in ipairs(kept) do kept_put(KEYS[9 + K + j], window, edge, units, now) end
end

local long = loss_first(R[1])
local life, id = pool_numbers(pace[9])
local units, before_since, since, dearest = pool_numbers(pace[10])
if pace[1] and not pace[10] then dearest = least end -- not counted so far
local mark, only = 0, 0 -- of a loss: nothing from before the mark was written later. If everything was lost, only is the life that the state has had since

local run, doubted, why, server = loss_run(pace[8])
local charges, emptied, between, leapt -- their values after a loss that was noticed now

-- state_fields returns the fields to write. The argument anew also makes a new id for the books, which were rebuilt.
local function state_fields(anew)
  if life == 0 then life, anew = root > 0 and math.min(root, now) or now, true end
  pace[10] = string.format('%.0f %.0f %.0f %.0f', units, before_since, since, dearest)
  local set = {'s', int(last), 'tat', int(tat), 'h', int(quiet), 'c', int(now), 'v', ARGV[13], 'g', ARGV[14], 'u', pace[10]}
  if run or doubted then set[#set + 1], set[#set + 2] = 'r', run or 'unknown' end
  if news > 0 then set[#set + 1], set[#set + 2] = 'y', tell end
  if charges then set[#set + 1], set[#set + 2] = 'charges', charges end
  if emptied then set[#set + 1], set[#set + 2] = 'emptied', int(mark) end
  if between then set[#set + 1], set[#set + 2] = 'gap', between end
  if leapt then set[#set + 1], set[#set + 2] = 'leapt', int(now) .. ' ' .. int(leapt) end
  if anew then
    pace[9] = int(life) .. ' ' .. int(math.max(now, id + 1))
    set[#set + 1], set[#set + 2] = 'o', pace[9]
  end
  for k = 1, K do
    set[#set + 1], set[#set + 2] = 'n' .. k, int(used[k])
  end
  return set
end

-- tally counts what is granted. If a slot is given back after its cell has passed, it stays counted: what was counted before a cell
-- never changes again.
local cell = math.max(R[math.min(long, K)] / CELLS, CELL)
local closed = {}
local function tally(slot, cost)
  if slot >= since + cell then
    if units > before_since then closed[#closed + 1] = {slot + late, units - before_since} end
    since, before_since = slot, units
  end
  units, dearest = units + cost, math.max(dearest, cost)
end

local function keep(set, always)
  local till, x = math.max(last, quiet, now) + longest, tonumber(pace[5]) or 0
  local renew = always or till + KEPT > x or x - till > 3 * KEPT
  if renew then x = till + 2 * KEPT end
  set[#set + 1], set[#set + 2] = 'x', int(x)
  call('HSET', KEYS[1], unpack(set))
  return renew, int(math.ceil((x - now) / 1000))
end

-- quarantine handles a loss: slots between from and upto that Redis no longer knows of may have been used, and may have been used late.
-- It waits for the shortest window, unless that is long, and charges every longer window with the most that can be missing from it. within is how short a time the lost slots lie in (0 = unknown).
local function quarantine(from, upto, why, within)
  local known = why == WHY.leapt
  if not pace[1] then
    forget_lists()
    local out = {} -- windows out of force still have their lists
    for _, c in ipairs(loss_charges(pace[13])) do
      if c[1] > K then out[#out + 1] = c end
    end
    charges = loss_text(out)
  end
  emptied, between = from == 0, within and within > 0 and int(from) .. ' ' .. int(upto) or ''
  call('HDEL', KEYS[1], 'w', 'q') -- w is a field of an older version
  if not known then call('HSET', KEYS[2], 'lost', int(now)) end
  last, tat = math.max(last, upto), math.max(tat, upto)
  local uncounted = units - before_since
  mark, before_since, since = upto + late, units, last + 1
  quiet = math.max(quiet, mark + (long > 1 and R[1] + longer[1] or 0))
  local missing, younger = LOSS_FULL, only > 0 -- it includes what limits allowed that were lowered since
  if from > 0 then
    local gap, dear = loss_gap(upto - from + (known and 0 or late + LOSS_REPORTED), within or 0), dearest == 0 or call('EXISTS', KEYS[5]) == 1
    missing = math.min(loss_missing(gap, pace[15], N[1], R[1], T, tolerance, dearest, dear, least), LOSS_FULL)
  end
  for k = long, K do
    charges = loss_charged(charges or pace[13], k, mark, missing, now - R[k] - width[k], younger and mark + 1 or 0, younger and math.huge or mark)
    loss_charge(KEYS[9 + k], mark, missing, younger)
    used[k] = used[k] + missing
  end
  lost_beside(mark, missing, from - late - LOSS_REPORTED)
  local edge = math.max(mark, last + late) -- the lists of windows out of force end no later
  kept_add(edge, missing + uncounted)
  for j, window in ipairs(kept) do
    charges = loss_charged(charges or pace[13], K + j, pool_edge(edge, kept_width(window)), missing, now - kept_for(window), 0, math.huge)
  end
  local _, ttl = keep(state_fields(true), true)
  call('PEXPIRE', KEYS[1], ttl)
  for k = 1, K do call('PEXPIRE', KEYS[9 + k], ttl) end
  local out = answer('lost', quiet - now - horizon)
  out[9], out[10] = int(long <= K and math.min(missing, most) or 0), why
  return out
end

do -- has anything been lost?
  if floor > now + horizon + STEP_BACK then floor = 0 end -- the caller heard of it before the clock was set back
  floor = math.min(floor, now + horizon)
  local floor_kept = math.max(floor, root) + longest + KEPT
  local kept_long = math.max(floor_kept, math.min(heard_at, now) + longest + KEPT) -- a state that is gone before then was lost
  local another = run and pace[8] and run ~= pace[8]
  if pace[1] and root > 0 and root < life and kept_long > life then -- Redis was emptied, and no process noticed
    local since = life
    life = root
    if another or doubted then return quarantine(0, now + horizon, WHY.emptied) end -- and part of the younger life is lost, too
    only = since
    return quarantine(0, math.min(only, now) + horizon, WHY.emptied)
  end
  local sure = math.max(last, clock) -- everything granted until then is there: writes are lost from the end
  if jump > 0 then sure = math.min(sure, now + horizon - jump) end
  if doubted then return quarantine(math.min(sure, doubted), now + horizon, WHY[why]) end
  local within = another and loss_span() or 0
  if floor > last and floor_kept > now or not pace[1] and root > 0 and kept_long > now then
    if jump > 0 or floor - sure > within + horizon then within = 0 end -- the file is older than its last moments
    return quarantine(sure, now + horizon, pace[1] and WHY.missing or WHY.emptied, within)
  end
  if another and jump > 0 then return quarantine(sure, now + horizon, WHY.another) end
  local gap_from, gap_upto = pool_numbers(pace[14])
  if floor > gap_from + LOSS_FILE + horizon and floor < gap_upto then return quarantine(math.min(gap_from, sure), now + horizon, WHY.missing) end
  if jump > 0 then -- all who watch the clock saw the same leap: it is charged once
    local at, by = pool_numbers(pace[16])
    local rest = at > now - jump and jump - by or jump
    if rest > 0 then
      leapt = jump
      return quarantine(now + horizon - rest, now + horizon, WHY.leapt)
    end
  end
  if another then return quarantine(sure, now + horizon, WHY.another, within) end
end

-- amnesia handles a list that does not agree with its count, because one of them was evicted. Nothing is certain then, as if everything had been lost.
local function amnesia()
  pace[1] = false
  for k = 1, K do used[k] = 0 end
  return quarantine(0, now + horizon, WHY.list)
end
for k = 1, K do
  if used[k] > 0 and call('EXISTS', KEYS[9 + k]) == 0 then return amnesia() end
end

-- Other processes that listen are called before a new life begins: they may know of an older one, which Redis has forgotten.
if not pace[1] and loss_others(ARGV[17], server) then
  forget_lists()
  quiet = now + OBJECTIONS + horizon
  local _, ttl = keep(state_fields(true), true)
  call('PEXPIRE', KEYS[1], ttl)
  call('PUBLISH', ARGV[17], ARGV[18])
  return answer('horizon', OBJECTIONS)
end

if pace[1] and now - clock > MARK_EVERY then
  local renew, ttl = keep({'c', int(now)}, false)
  if renew then
    call('PEXPIRE', KEYS[1], ttl)
    for k = 1, K do call('PEXPIRE', KEYS[9 + k], ttl) end
  end
end
if hold[5] == '1' then return answer('paused', PAUSED_HINT) end
if held > now then return answer('held', held - now) end
if hold[9] then
  if tonumber(hold[9]) > now then return answer('braked', tonumber(hold[9]) - now) end
  want = math.min(want, 1) -- the job that waits for room goes first, if that can be told
end
if need == 1 then
  if probe > now + lead then return answer('probing', math.min(probe - now - lead, PROBE_HINT)) end
  want = math.min(want, 1)
end
if cap > 0 then
  call('ZREMRANGEBYSCORE', KEYS[3], '-inf', int(now))
  local flying = call('ZCARD', KEYS[3])
  if few then flying = math.max(flying, call('LLEN', KEYS[6])) end -- calls from before the leases began
  want = math.min(want, cap - flying)
  if want < 1 then return answer('full', FULL_HINT) end
end

-- begin finds the sub-bucket of each list that is open.
local function begin()
  for k = 1, K do
    if width[k] > 0 and used[k] > 0 then
      local tail = call('LRANGE', KEYS[9 + k], -2, -1)
      push[k], open[k] = {tonumber(tail[1]), tonumber(tail[2])}, call('LLEN', KEYS[9 + k]) - 2
    end
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

-- granted ends the script: it writes down the slots that were granted ({slot, cost}), and returns the reply.
local function granted(slots, hint)
  local texts = {}
  local function digits(x) -- of numbers that occur often: slots are in every window's list and in the reply
    texts[x] = texts[x] or int(x)
    return texts[x]
  end
  if not pace[1] then forget_lists() end
  local set = state_fields()
  if pace[15] ~= present then set[#set + 1], set[#set + 2] = 'p', present end
  local renew, ttl = keep(set, false)
  if renew then call('PEXPIRE', KEYS[1], ttl) end
  for k = 1, K do
    local list, p, first, anew = KEYS[9 + k], push[k], 1, before[k] == 0
    if open[k] then
      if touched[k] then call('LSET', list, -1, int(p[2])) end
      first = 3
    end
    for i = first, #p do p[i] = digits(p[i]) end
    if width[k] == 0 then
      anew = pool_append(list, p) or anew
    elseif #p >= first then
      call('RPUSH', list, unpack(p, first))
    end
    if cursor[k] > 0 then call('LPOP', list, cursor[k]) end
    if renew or anew then call('PEXPIRE', list, ttl) end
  end
  for _, c in ipairs(closed) do kept_add(c[1], c[2]) end
  local out = answer('ok', hint)
  for i, s in ipairs(slots) do
    out[#out + 1], out[#out + 2] = digits(s[1]), digits(s[2])
    if cap > 0 then call('ZADD', KEYS[3], int(s[1] + outlives), ARGV[12] .. ':' .. i) end
  end
  if need == 1 then call('HSET', KEYS[2], 'probe', int(slots[1][1] + PROBE_EVERY), 'slot', int(slots[1][1])) end
  return out
end
