-- circuit.lua: a call met trouble: it failed, or the gateway told it to wait or did not let it in. If the trouble is the gateway's, calls stop
-- for a while. Else it is the job's own. Composed after NowLua and outage.lua.
-- KEYS
--    1  hold
--    2  rate
--    3  pending
--    4  due
--    5… the lines of classes
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  kind: fail | wait (429, 503 with Retry-After) | deny (401, 403)
--    3  how long the gateway asked to be left alone (µs, 0 = it did not say)
--    4  job
--    5  the call's slot (µs)
--    6  how long the call took (µs)
--    7  "1": it was written
--    8  outages that the job has met before
--    9  attempts that it has spent
--   10  what went wrong
--   11  failures in a row that open the circuit (0 = never)
--   12  share of failures that opens it (%)
--   13  among at least this many calls
--   14  within this time (µs)
--   15  longest back-off between two calls sent ahead (µs)
--   16  channel
--   17  gateway
--   18  when the job first failed in a way that counts as an attempt (µs, 0 = never)
-- returns {state, now, beginning of the outage that the trouble belongs to (µs, 0 = of none), µs until the hold ends}. States:
--      counted  no hold so far; the attempt counts, unless an outage turns out to have begun with it
--      opened   calls stop from now on, until a call that is sent ahead succeeds
--      again    the call that was sent ahead met trouble, too: the gateway is held again, for longer, or another call goes at once
--      known    the gateway was held already
--      own      the job's own trouble: it met FORGIVEN outages before, each of which ended with the success of another job. Its attempt counts
-- An outage is the time from the first trouble to the first success of a call sent ahead, whether calls failed or were told to wait. A job is
-- forgiven what it met in its first FORGIVEN outages (outage.lua). Trouble of a job that met more opens nothing: jobs that the gateway can't digest spend their attempts.
-- A failure of a job that failed before says little about the gateway. It opens nothing either, as long as jobs wait that were never called. If many of those are bad, the circuit opens in vain. Then a job that was never called succeeds soon, and for a
-- while it takes several times as many failures in a row to open it (outage.lua). A call that was not written says nothing about its job: it always counts.
-- If no call has succeeded for a whole window, all failures count, except those of jobs that failed before a call succeeded.
-- A wait is believed at once, since a gateway that is called too often answers other calls in between. If a job was found to have such
-- trouble of its own, it takes several jobs in a row, or a share of all calls. But if jobs that were told to wait succeed later (done.lua), every
-- wait is the gateway's: that is what a real limit does, and what a job's own trouble never does.
-- Hash: until (µs)  reason  need (1: one call goes ahead, the rest follow when it succeeds)  probe (µs until which its outcome is awaited)
--      slot (its slot)  tries (calls sent ahead in this round that failed)  again (rounds that failed)  epoch  kind (of the trouble that opened it)
--      clear (µs when the last hold was over)  cleared (calls in its part of 5 s until then)  delay (back-off of waits, µs)  circuit (1 while it is open)  cdelay (back-off of this hold, if a wait did not cause it, µs)
--      endless (1 if a wait did not cause the hold, and its end is unknown; 2 if the gateway does not let calls in)
--      fails "part:failures:of them unwritten:of jobs that had failed before …", a part for each 5 s, like those of the rate
--      run, unrun (of them unwritten), runjob, runat: failures in a row that count, the last one's job, and when the first was
--      probed (calls sent ahead in vain: see dequeue.lua)  heeded (µs when a job was done that had been told to wait before)
--      runs, runlast: the same for jobs that may have failed before, and the last one's job
--      bad (µs when a job last failed that had failed before)  level:KIND, outages: see outage.lua
--      few, fewat, fewfrom: see fewer.lua   turn: see dequeue.lua   paused, why, paused_at: see pause.lua
local FIRST, CLEAN, PART = 1000000, 30000000, 5000000
local ENOUGH = 20 -- calls that a gateway answers between two waits: after so many, the second wait begins a back-off of its own
local LONGEST_WAIT, USUAL_MOST = 60000000, 5000000
local BLUR = 2000000 -- an outage begins this long before its first failure in a row, because processes that stall write down in any order what they saw
-- How many calls are sent ahead one after the other before the gateway is held again, if jobs are known to be bad, and if the answer is a 500,
-- which may be about this one request. Any other failure is the gateway's own trouble.
local ROUND, ROUND_OF_500 = 8, 4
local HEEDED = 10000000
local CHANCE, MOST_SHARE = 1e-6, 0.9
local call = redis.call
call('HDEL', KEYS[1], '') -- Redis lets a script that has begun to write continue, even if its memory is full
local now, kind, asked, id, slot = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local took, written = tonumber(ARGV[6]), ARGV[7] == '1'
local proven, spent = written and tonumber(ARGV[8]) >= FORGIVEN, tonumber(ARGV[9])
local least, ratio, most = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[15])
if most == 0 then most = USUAL_MOST end
local names = {'until', 'need', 'slot', 'epoch', 'circuit', 'outages', 'run', 'unrun', 'runjob', 'runat', 'fails', 'cdelay', 'clear', 'delay',
  'tries', 'again', 'endless', 'bad', 'runs', 'runlast', 'heeded', 'cleared', 'level:fail', 'level:deny', 'level:wait'}
local got, v = call('HMGET', KEYS[1], unpack(names)), {}
for i, name in ipairs(names) do v[name] = got[i] or nil end
if v.need ~= '1' and v.outages then v.outages = outage_end(v.outages, tonumber(v.clear) or now) end -- an older version of the program may have left it open
local held = tonumber(v['until']) or 0
local heeded = kind == 'wait' and now - (tonumber(v.heeded) or 0) < HEEDED
local level = heeded and 0 or level_of(v['level:' .. kind], now)
if kind == 'fail' and now - (tonumber(v.bad) or 0) < LEVEL_MEMORY then level = math.max(level, 1) end -- a few in a row may well be bad

local function answer(state, outage) return {state, int(now), int(outage or 0), int(math.max(held - now, 0))} end

-- mine is the outage that this trouble is forgiven for, or 0.
local function mine(outage) return proven and kind == 'fail' and 0 or outage end

-- shut holds the gateway for a time, from a moment on. It never shortens a hold, and a longer one keeps its reason.
local function shut(from, length, reason, ...)
  if from + length > held then
    held = from + length
    call('HSET', KEYS[1], 'until', int(held), 'reason', reason)
  end
  call('HSET', KEYS[1], 'need', 1, 'epoch', int((tonumber(v.epoch) or 0) + 1), ...)
  call('HDEL', KEYS[1], 'probe', 'slot', 'tries', 'run', 'unrun', 'runjob', 'runat', 'runs', 'runlast', 'fails')
  call('PUBLISH', ARGV[16], ARGV[17])
end

local function said(more) return 'circuit open: ' .. ARGV[10] .. (written and ' from ' or ', ') .. more end

-- ended counts the calls whose end was recorded, from the part of a moment on.
local function ended(moment)
  local parts, sum = {}, 0
  for part = math.floor(moment / PART), math.floor(now / PART) do parts[#parts + 1] = int(part) end
  for _, n in ipairs(call('HMGET', KEYS[2], unpack(parts))) do sum = sum + (tonumber(n) or 0) end
  return sum
end

-- delay_before returns the back-off of the last wait, if it still counts. If the gateway has answered calls since then other than the one that was sent ahead, it does not ask
-- for a longer one: it finds some calls too many, or is called somewhat too often.
local function delay_before()
  local delay, clear = tonumber(v.delay) or 0, tonumber(v.clear) or 0
  if v.need == '1' or delay == 0 then return delay end
  if now - clear >= CLEAN then return 0 end
  local worked = ended(clear) - (tonumber(v.cleared) or 0)
  if worked <= 1 then return delay end
  return worked < ENOUGH and delay / 4 or 0
end

-- waits returns how long a gateway is left alone that said "wait", and the back-off that goes with it.
local function waits()
  local before = delay_before()
  if asked > 0 then return asked, before end
  if proven then return FIRST, before end -- it may be its own trouble after all
  local delay = math.max(FIRST, math.min(2 * before, LONGEST_WAIT))
  return delay, delay
end

local longer = math.min(math.max(2 * (tonumber(v.cdelay) or 0), math.min(FIRST, most)), most)

-- hold_for leaves the gateway alone for as long as this kind of trouble asks for.
local function hold_for(from, reason, delay, ...)
  if kind == 'wait' then
    call('HDEL', KEYS[1], 'endless')
    local length, back_off = waits()
    return shut(now, length, ARGV[10], 'delay', int(back_off), ...)
  end
  if kind == 'deny' then reason = ARGV[10] end
  call('HSET', KEYS[1], 'endless', kind == 'deny' and 2 or 1)
  shut(from, math.max(delay, asked), reason, 'cdelay', int(delay), ...)
end

if v.need == '1' then
  if not outage_of(v.outages, now, now) then -- an older version of the program began the hold
    v.outages = outage_begin(v.outages, now - took)
    call('HSET', KEYS[1], 'outages', v.outages)
  end
  local outage = outage_of(v.outages, now, now)
  if v.slot ~= slot then
    if kind == 'wait' and now + asked > held then shut(now, asked, ARGV[10], unpack(v.endless and {'endless', 1} or {})) end
    return answer('known', mine(outage))
  end
  local tries, round = (tonumber(v.tries) or 0) + 1, 1
  if level > 0 or kind == 'deny' and now - (tonumber(v.bad) or 0) < LEVEL_MEMORY then
    round = ROUND
  elseif kind == 'fail' and ARGV[10] == 'HTTP 500' then
    round = ROUND_OF_500
  end
  call('HINCRBY', KEYS[1], 'probed', 1)
  if written and tries < round then
    call('HSET', KEYS[1], 'tries', tries)
    call('HDEL', KEYS[1], 'probe', 'slot')
    call('PUBLISH', ARGV[16], ARGV[17])
  else -- the next one goes when it is due, however long this one hung
    if kind == 'fail' then call('HSET', KEYS[1], 'circuit', 1) end -- whatever the hold began with
    hold_for(tonumber(slot), said(v.circuit and 'the call sent ahead, too' or 'the call sent ahead'), longer, 'again', (tonumber(v.again) or 0) + 1)
  end
  return answer('again', mine(outage))
end

local before = kind ~= 'wait' and outage_of(v.outages, now - took, now) -- it began before the last outage had ended
if before then return answer('known', mine(before)) end
if written and (proven or spent > 0) then call('HSET', KEYS[1], 'bad', int(now)) end
if proven and not heeded then
  if kind == 'wait' then call('HSET', KEYS[1], 'level:wait', level_raised(v['level:wait'], now)) end
  return answer('own')
end

-- open ends the time in which calls go on as usual. from is when the outage began.
local function open(from, reason)
  from = math.max(from, tonumber(string.match(v.outages or '', ':(%d+)$') or 0)) -- no outage begins within another one
  local fields = {'outages', outage_begin(v.outages, from), 'kind', written and kind or 'gone'}
  if kind == 'fail' then
    if now - (tonumber(v.clear) or 0) >= CLEAN then call('HDEL', KEYS[1], 'delay') end -- this hold does not end a wait
    fields[#fields + 1], fields[#fields + 2] = 'circuit', 1
  end
  call('HDEL', KEYS[1], 'again', 'probed')
  hold_for(now, reason and said(reason), math.min(FIRST, most), unpack(fields))
  return answer('opened', from)
end
if kind ~= 'fail' and level == 0 then return open(now - took) end

local failed_before = spent > 0 or tonumber(ARGV[8]) > 0 and call('EXISTS', unpack(KEYS, 3)) > 0
local counts = not written or not failed_before and v.runjob ~= id
local run, unrun, since = tonumber(v.run) or 0, tonumber(v.unrun) or 0, tonumber(v.runat) or now
local this, oldest = math.floor(now / PART), math.floor((now - tonumber(ARGV[14])) / PART)
local failed, unwritten, stale, first, kept, last = 0, 0, 0, this, '', '0:0:0'
for part, f, u, s in string.gmatch(v.fails or '', '(%d+):(%d+):(%d+):(%d+)') do
  if tonumber(part) >= oldest then
    failed, unwritten, stale = failed + tonumber(f), unwritten + tonumber(u), stale + tonumber(s)
    first = math.min(first, tonumber(part))
    local text = f .. ':' .. u .. ':' .. s
    if tonumber(part) == this then last = text else kept = kept .. part .. ':' .. text .. ' ' end
  end
end
local f, u, s = string.match(last, '^(%d+):(%d+):(%d+)')
f, u, s = tonumber(f), tonumber(u), tonumber(s)
if counts then run, failed, f = run + 1, failed + 1, f + 1 else stale, s = stale + 1, s + 1 end
if not written then unrun, unwritten, u = unrun + 1, unwritten + 1, u + 1 end

-- calls counts the calls of the window: those whose end was recorded, those that were not written, and this one. Failures of jobs
-- that had failed before are not counted.
local function calls() return ended(oldest * PART) + unwritten - stale + (written and 1 or 0) end

-- in_a_row returns how many failures in a row are the gateway's trouble. If a share of the calls before them failed too, it is as many as
-- come together by chance once in a million calls.
local function in_a_row()
  local needed = (kind == 'fail' and least or 1) * LEVEL_STEP ^ level
  if kind ~= 'fail' or run < needed or failed <= run then return needed end
  local before = calls() - run
  if before < tonumber(ARGV[13]) then return needed end
  return math.max(needed, math.log(CHANCE) / math.log(math.min((failed - run) / before, MOST_SHARE)))
end

if counts and (run >= in_a_row() or kind == 'fail' and unrun >= least) then return open(since - BLUR, int(run) .. ' calls in a row') end
local contradicted = spent > 0 and (tonumber(ARGV[18]) == 0 or tonumber(ARGV[18]) < since) -- it failed, then another job succeeded
local runs = tonumber(v.runs) or 0
if not contradicted and v.runlast ~= id then
  runs = runs + 1
  call('HSET', KEYS[1], 'runs', int(runs), 'runlast', id)
end
if kind ~= 'wait' and runs >= math.max(least, 2) and now - since >= tonumber(ARGV[14]) then
  return open(since - BLUR, int(runs) .. ' calls, and none succeeded')
end
local share = kind == 'wait' and ratio / 2 or 100 - (100 - ratio) / LEVEL_STEP ^ level
if counts and ratio > 0 then
  local all = calls()
  if all >= tonumber(ARGV[13]) and failed * 100 >= all * share then
    return open(math.min(first * PART, since - BLUR), int(failed) .. ' of ' .. int(all) .. ' calls')
  end
end
call('HSET', KEYS[1], 'run', int(run), 'unrun', int(unrun), 'runat', int(since), 'fails', kept .. int(this) .. ':' .. int(f) .. ':' .. int(u) .. ':' .. int(s))
if counts then call('HSET', KEYS[1], 'runjob', id) end
return answer('counted')
