-- circuit.lua: a call failed by the gateway's fault. Composed after NowLua and outage.lua.
-- KEYS 1 hold  2 rate
-- ARGV 1 now (µs, 0 = Redis's)  2 job  3 the call's slot (µs)  4 how long the call was under way (µs)  5 "1": it was written
--      6 outages that the job has failed in before  7 what went wrong  8 failures in a row that open the circuit
--      9 share of failures that opens it (%)  10 among at least so many calls  11 within so long (µs)  12 longest back-off (µs)
--      13 channel  14 gateway
-- Returns {state, now, beginning of the outage that the failure belongs to (µs, 0 = of none yet), µs until the hold ends}. States:
--      counted  no outage so far       opened  this failure opened the circuit
--      again    the call that was sent ahead failed: held again, for longer      known  the circuit was open already
-- Hash (more in hold.lua and outage.lua): circuit (1 while open)  cdelay (its back-off, µs)
--      fails "part:failures:of them unwritten …", a part for each 5 s, as the rate has them
--      prun "at id id …": jobs that failed in a row and prove little, and when the first did
-- A job proves less with every failure of its own: one that failed last doesn't count twice in a row, and one that failed in
-- PROVEN outages counts no more, so that jobs which the gateway can't digest spend their attempts instead of stopping it. But many
-- such jobs in a row, each counted once, are an outage again: MANY times as many as of others. A call that was not written says
-- nothing of its job, so it always counts.
local FIRST, CLEAN, PART, PROVEN, MANY = 1000000, 30000000, 5000000, 2, 4
local BLUR = 2000000 -- an outage begins so long before its first failure in a row: processes that stall write down what they saw in any order
local call = redis.call
local now, slot, took, written = now_us(ARGV[1]), ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local most = tonumber(ARGV[12])
local names = {'until', 'need', 'slot', 'epoch', 'circuit', 'outages', 'run', 'runjob', 'runat', 'prun', 'fails', 'cdelay', 'clear'}
local got, v = call('HMGET', KEYS[1], unpack(names)), {}
for i, name in ipairs(names) do v[name] = got[i] or nil end
local held = tonumber(v['until']) or 0

local function answer(state, outage) return {state, int(now), int(outage or 0), int(math.max(held - now, 0))} end

-- shut holds the gateway for delay from that moment on. A hold is never shortened, and a longer one keeps its reason.
local function shut(from, delay, reason, outages)
  if from + delay > held then
    held = from + delay
    call('HSET', KEYS[1], 'until', int(held), 'reason', 'circuit open: ' .. ARGV[7] .. (written and ' from ' or ', ') .. reason)
  end
  call('HSET', KEYS[1], 'need', 1, 'circuit', 1, 'cdelay', int(delay), 'outages', outages, 'epoch', int((tonumber(v.epoch) or 0) + 1))
  call('HDEL', KEYS[1], 'probe', 'slot', 'run', 'runjob', 'runat', 'prun', 'fails')
  call('PUBLISH', ARGV[13], ARGV[14])
end

local longer = math.min(math.max(2 * (tonumber(v.cdelay) or 0), math.min(FIRST, most)), most)
if v.circuit then
  local outage = outage_of(v.outages, now, now)
  if v.slot ~= slot then return answer('known', outage) end
  shut(tonumber(slot), longer, 'the call sent ahead, too', v.outages) -- however long it hung, the next one goes when it is due
  return answer('again', outage)
end
local before = outage_of(v.outages, now - took, now) -- it was under way before the last outage had ended
if before then return answer('known', before) end

local run, since = tonumber(v.run) or 0, tonumber(v.runat) or now
local proven = written and tonumber(ARGV[6]) >= PROVEN
local counts = not proven and (not written or v.runjob ~= ARGV[2])
local this, oldest = math.floor(now / PART), math.floor((now - tonumber(ARGV[11])) / PART)
local failed, unwritten, first, kept, last = 0, 0, this, '', '0:0'
for part, f, u in string.gmatch(v.fails or '', '(%d+):(%d+):(%d+)') do
  if tonumber(part) >= oldest then
    failed, unwritten, first = failed + tonumber(f), unwritten + tonumber(u), math.min(first, tonumber(part))
    if tonumber(part) == this then last = f .. ':' .. u else kept = kept .. part .. ':' .. f .. ':' .. u .. ' ' end
  end
end
local f, u = string.match(last, '^(%d+):(%d+)')
f, u = tonumber(f), tonumber(u)
if counts then run, failed, f = run + 1, failed + 1, f + 1 end
if not written then unwritten, u = unwritten + 1, u + 1 end

-- calls counts the calls of the window: those whose end is written down, those that were not written, and this one.
local function calls()
  local parts, sum = {}, unwritten + (written and 1 or 0)
  for part = oldest, this do parts[#parts + 1] = int(part) end
  for _, n in ipairs(call('HMGET', KEYS[2], unpack(parts))) do sum = sum + (tonumber(n) or 0) end
  return sum
end

local function open(from, reason)
  local _, ended = string.match(v.outages or '', '(%d+):(%d+)$')
  local flaps = ended and now - tonumber(ended) < CLEAN
  if v.need ~= '1' and now - (tonumber(v.clear) or 0) >= CLEAN then call('HDEL', KEYS[1], 'delay') end -- this hold's end is not one of its own
  shut(now, flaps and longer or math.min(FIRST, most), reason, outage_begin(v.outages, from))
  return answer('opened', from)
end

if run >= tonumber(ARGV[8]) then return open(since - BLUR, int(run) .. ' calls in a row') end
if proven then
  v.prun = v.prun or int(now)
  if not string.find(v.prun .. ' ', ' ' .. ARGV[2] .. ' ', 1, true) then v.prun = v.prun .. ' ' .. ARGV[2] end
  local _, jobs = string.gsub(v.prun, ' ', '')
  if jobs >= MANY * tonumber(ARGV[8]) then
    return open(tonumber(string.match(v.prun, '^%d+')) - BLUR, int(jobs) .. ' jobs in a row that had failed before')
  end
  call('HSET', KEYS[1], 'prun', v.prun)
end
if failed > 0 then
  local all = calls()
  if all >= tonumber(ARGV[10]) and failed * 100 >= all * tonumber(ARGV[9]) then
    return open(math.min(first * PART, since - BLUR), int(failed) .. ' of ' .. int(all) .. ' calls')
  end
end
call('HSET', KEYS[1], 'run', int(run), 'runat', int(since), 'fails', kept .. int(this) .. ':' .. int(f) .. ':' .. int(u))
if counts then call('HSET', KEYS[1], 'runjob', ARGV[2]) end
return answer('counted')
