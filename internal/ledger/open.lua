-- open.lua: writes an attempt down before its call, or says why there must be none.
-- KEYS 1 record  2 open  3 costs  4 counters  5 hold  6 alive
-- ARGV 1 now (µs, 0 = Redis's)  2 id  3 generation  4 owner  5 µs from now to the attempt's deadline
--      6 "1": the gateway keeps idempotency keys  7 how long it keeps one (µs)  8 attempts allowed
--      9 version of the data ('' = not watched)  10 the least sign of life it must have (µs)  11 marks of confirmed restores (alive.lua)
-- returns {opening, payload, cost, batch, spent, key generation, age of the key (µs, -1 = never sent), accepted (µs),
--      outages it has failed in, what went wrong last (with 'exhausted' and 'paused')};
--      with 'held' (the data is not what the caller has seen), 'stale' and 'busy' nothing was written, with any other opening the
--      record is in flight and the caller's, to be called with 'go' and to be parked otherwise
local record, id, owner = KEYS[1], ARGV[2], ARGV[4]
if ARGV[9] ~= '' and not alive_fits(KEYS[6], ARGV[9], ARGV[10]) then return {'held'} end
local now = now_us(ARGV[1])
local v = redis.call('HMGET', record, 's', 'g', 'o', 'od', 'n', 'k', 'f', 'x', 'c', 'p', 'b', 't', 'am', 'oa', 'fl', 'fo', 'e', 'kn', 'ed', 'rc', 'pn')
local state, spent, first, cost = v[1], tonumber(v[5]) or 0, tonumber(v[7]) or 0, tonumber(v[9]) or 1
if cost > 1 then redis.call('HDEL', KEYS[3], id .. '~' .. ARGV[3]) end
if v[2] ~= ARGV[3] or (state ~= 'queued' and state ~= 'in_flight') then return {'stale'} end
local mine = state == 'in_flight' and v[3] == owner
if mine and v[7] and v[7] == v[14] then first = 0 end -- opened before by the same owner, and not called since
local over = state == 'in_flight' and not mine
if over and now < (tonumber(v[4]) or 0) then return {'busy'} end

if over and paid_before(record, KEYS[4], now) then
  redis.call('ZREM', KEYS[2], id)
  return {'stale'}
end

-- A restore that was confirmed after the job was accepted, or after a person last settled what had become of it: a call that these
-- books don't know of may have been made since the data's time. Only the key makes another one safe, as old as it may be; and not one that
-- came with another payload since.
local from = alive_unknown(ARGV[11], math.max(tonumber(v[12]) or 0, tonumber(v[18]) or 0))
if from then
  if first == 0 or from < first then first = from end
  v[13] = '1'
  redis.call('HSET', record, 'am', '1', 'f', int(first))
end
local rekeyed = from and (tonumber(v[19]) or 0) >= from

local last_error = ''
if v[15] then
  spent = outage_forgive(record, KEYS[5], v[15], spent)
  v[16] = redis.call('HGET', record, 'fo')
end

local cut = over and v[14] -- its last owner died with the call under way, as far as anybody knows
local function opening()
  local forgotten = ARGV[6] ~= '1' or rekeyed or (first > 0 and now - first > tonumber(ARGV[7]))
  if cut then -- that attempt counts
    spent = redis.call('HINCRBY', record, 'n', 1)
    history(record, int(now) .. ' 0 0 cut_off')
    redis.call('HSET', record, 'am', '1')
    v[13] = '1'
    if forgotten then return 'unknown' end
    if spent >= tonumber(ARGV[8]) then return 'exhausted' end
  end
  if v[13] and forgotten then return 'unknown' end
  if v[8] and now >= tonumber(v[8]) then return v[13] and 'unknown' or 'expired' end -- unknown: it may have been charged
  local stopped, cancelled = books_stopped(record, v[11])
  if stopped and not (cancelled and v[20]) then
    last_error = stopped
    return 'paused'
  end
  if v[15] and spent >= tonumber(ARGV[8]) then -- the last failure was no outage's
    last_error = v[17] or ''
    return 'exhausted'
  end
  if first == 0 then redis.call('HSET', record, 'f', int(now)) end
  return 'go'
end

local what = opening()
local deadline = now + tonumber(ARGV[5])
become(record, 'in_flight', 'o', owner, 'od', int(deadline))
if what == 'go' or cut then
  redis.call('HSET', record, 'oa', int(now))
else -- to be parked: who finds this attempt cut off knows that nothing was sent
  redis.call('HDEL', record, 'oa')
  if first == 0 then redis.call('HDEL', record, 'f') end
end
redis.call('ZADD', KEYS[2], int(deadline), id)
return {what, payload_of(record, v[10], v[21]), int(cost), v[11] or '', int(spent), v[6] or '1', int(first > 0 and now - first or -1), v[12] or '0',
  v[16] or '0', last_error}
