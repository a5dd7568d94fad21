-- open.lua records an attempt before its call, or says why there must be none.
-- KEYS
--    1  record
--    2  open
--    3  costs
--    4  counters
--    5  hold
--    6  alive
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  id
--    3  generation
--    4  owner
--    5  µs from now to the attempt's deadline
--    6  "1": the gateway keeps idempotency keys
--    7  how long it keeps one (µs, 0 = one covers no second call)
--    8  attempts allowed
--    9  version of the data ('' = not watched)
--   10  the least sign of life it must have (µs)
--   11  marks of confirmed restores (alive.lua)
--   12  digest of what a call is made of now, but for the payload ('' = not watched)
--   13  the same of the gateway's routes: a blank, name, blank, digest, and a blank behind each ('' = it has none)
--   14  the brakes of the file (brakes.lua; '' = it has none)
--   15  µs from now until the call is written at the latest
--   16  what the caller has seen of what is counted (brakes_tell.lua)
--   17  the caller's process
--   18  the longest of its 15 so far
-- returns {opening, cost, spent, key generation, age of the key (µs, -1 = never sent), accepted (µs), outages it has failed in, batch,
--    what went wrong last (with go, exhausted, paused, cancelled and awaiting_approval; with differs the digest of what was sent),
--    the payload's digest,
--    1 if a call with the present key may have charged (2: if there was one, since Redis may have forgotten it),
--    when its first failure was that counts as an attempt (µs, 0 = there is none),
--    calls made since it was last admitted, route ('' = none), lane ('' = none),
--    what the caller has now seen ('' = nothing is counted),
--    µs from now to its expiry (0 = never), payload, in one piece or several}
--    opening: held (the data is not what the caller has seen), stale, busy: nothing was written. With any other, the record is in flight and the caller's, to be called with go, and
--    to be parked otherwise
local record, id, owner = KEYS[1], ARGV[2], ARGV[4]
-- alive returns whether the data is what the caller has seen, its last sign of life on the clock as it is, and by how much that was set back in all: one
-- look for all that are opened together and have seen the same.
local function alive()
  local asked = ARGV[9] .. ' ' .. ARGV[10]
  local of = gather_seen(asked)
  if not of then
    local fits, _, last, back = alive_fits(KEYS[6], ARGV[9], ARGV[10])
    of = {fits, last, back}
    gather_see(asked, of)
  end
  return unpack(of)
end
local fits, last_alive, set_back = true, 0, 0
if ARGV[9] ~= '' then fits, last_alive, set_back = alive() end
if not fits then return {'held'} end
local now = now_us(ARGV[1])
local job = read_all(record)
local state, spent, first, cost = job.@state, tonumber(job.@spent) or 0, tonumber(job.@first_call_at) or 0, tonumber(job.@cost) or 1
if cost > 1 then redis.call('HDEL', KEYS[3], id .. '~' .. ARGV[3]) end
if job.@generation ~= ARGV[3] or (state ~= 'queued' and state ~= 'in_flight') then return {'stale'} end
local mine = state == 'in_flight' and job.@owner == owner
if mine and job.@first_call_at and job.@first_call_at == job.@opened_at then first = 0 end -- the same owner opened it before, and has not called since
local over = state == 'in_flight' and not mine
if over and now < (tonumber(job.@deadline) or 0) then return {'busy'} end

if over and paid_before(record, KEYS[4], now, job) then
  redis.call('ZREM', KEYS[2], id)
  return {'stale'}
end

-- After a restore, only the key makes another call safe, as old as it may be, and not a key that came with another payload since.
local from, rekeyed
from, first, rekeyed = restored(job, ARGV[11], first)
if from then
  job.@may_have_charged = '1'
  redis.call('HSET', record, '@may_have_charged', '1', '@first_call_at', int(first))
end

-- Redis was found to have lost its latest writes since the job was accepted, settled or given another payload. An attempt may be among them. So what the gateway says of an earlier call
-- may be about this job's own.
local LOST_MATTERS = 600000000
local unbraked = ARGV[14] == '' and ARGV[16] == '' -- then the hold is not changed here, unless money is counted
local stands = unbraked and gather_seen('stands') or redis.call('HMGET', KEYS[5], 'lost', 'brakes', 'brake')
gather_see('stands', unbraked and not stands[2] and stands or nil)
local lost = tonumber(stands[1] or '')
local known = math.max(tonumber(job.@accepted_at) or 0, tonumber(job.@looked_up_at) or 0, tonumber(job.@edited_at) or 0)
local lapse = lost and known < lost and now - lost < LOST_MATTERS

local last_error, outages, calls = '', tonumber(job.@outages_met) or 0, calls_made(job)
if job.@failures then
  spent = outage_forgive(record, KEYS[5], job.@failures, spent)
  outages = tonumber(redis.call('HGET', record, '@outages_met')) or 0
end

-- digest returns that of the job's call as it would be made now, or '' if it is not watched, or the gateway has no such route.
local digest = ARGV[12]
if job.@route then digest = string.match(ARGV[13], ' ' .. string.gsub(job.@route, '%-', '%%-') .. ' (%S+)') or '' end

if job.@counted then -- that of an attempt that was opened before
  if mine then brakes_back(record, job.@counted) end
  redis.call('HDEL', record, '@counted')
end
local money

local cut = over and job.@opened_at -- its last owner died during the call, as far as is known
local function opening()
  local forgotten = ARGV[6] ~= '1' or tonumber(ARGV[7]) == 0 or rekeyed or key_age(job, first, now, last_alive, set_back) > tonumber(ARGV[7])
  if cut then -- that attempt counts
    spent, calls = redis.call('HINCRBY', record, '@spent', 1), calls + 1
    history(record, int(now) .. ' 0 0 cut_off')
    redis.call('HSET', record, '@may_have_charged', '1', '@calls', int(calls))
    job.@may_have_charged = '1'
    if forgotten then return 'unknown' end
    if spent >= tonumber(ARGV[8]) then return 'exhausted' end
  end
  if job.@may_have_charged and forgotten then return 'unknown' end
  if job.@may_have_charged and job.@sent_digest and digest ~= '' and job.@sent_digest ~= digest then
    last_error = job.@sent_digest
    return 'differs'
  end
  if job.@expires_at and now >= tonumber(job.@expires_at) then return job.@may_have_charged and 'unknown' or 'expired' end -- unknown: it may have been charged
  local stopped, reason = gather_stopped(record, job.@batch, job.@despite_cancel)
  if stopped then
    last_error = stopped
    return reason
  end
  if job.@failures and spent >= tonumber(ARGV[8]) then -- the last failure was not an outage
    last_error = job.@error or ''
    return 'exhausted'
  end
  if payload_damaged(job) then
    last_error = 'its payload is damaged in Redis: another program has written to ' .. record .. '; compare it with the billing file'
    return 'changed'
  end
  if ARGV[14] ~= '' or stands[2] or ARGV[16] ~= '' then
    money = {record = record, hold = KEYS[5], alive = KEYS[6], now = now, lead = tonumber(ARGV[15]), money = job.@money, setting = ARGV[14],
      process = ARGV[17], longest = tonumber(ARGV[18]), known = ARGV[16], marks = ARGV[11], lost = lost, waits = tonumber(stands[3] or '')}
    local braked, why = brakes_ask(money)
    if braked then
      last_error = why
      return braked
    end
  end
  last_error = job.@error or ''
  return 'go'
end

local what = opening()
local deadline, moment = int(now + tonumber(ARGV[5])), int(now)
local set = {'@owner', owner, '@deadline', deadline}
if what == 'go' and first == 0 then
  set[5], set[6] = '@first_call_at', moment
  if set_back > 0 then set[7], set[8] = '@first_call_back', int(set_back) end
end
if what == 'go' and digest ~= '' and job.@sent_digest ~= digest then set[#set + 1], set[#set + 2] = '@sent_digest', digest end
if what == 'go' or cut then set[#set + 1], set[#set + 2] = '@opened_at', moment end
if money and money.counted then set[#set + 1], set[#set + 2] = '@counted', money.counted end
job.set = set
become_of(record, job, 'in_flight')
if what ~= 'go' and not cut then -- to be parked: if this attempt is found cut off, nothing was sent
  redis.call('HDEL', record, '@opened_at')
  if first == 0 then redis.call('HDEL', record, '@first_call_at') end
end
gather_add(KEYS[2], deadline, id)
return payload_pieces({what, cost, spent, tonumber(job.@key_generation) or 1, key_age(job, first, now, last_alive, set_back), tonumber(job.@accepted_at) or 0, outages,
  job.@batch or '', last_error, job.@digest or '', job.@may_have_charged and 1 or lapse and 2 or 0,
  job.@failures and tonumber(string.match(redis.call('HGET', record, '@failures') or '', '^%d+') or 0) or 0, calls,
  job.@route or '', job.@lane or '', money and money.counted and money.known or '',
  job.@expires_at and math.max(tonumber(job.@expires_at) - now, 1) or 0}, job)
