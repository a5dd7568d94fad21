-- look_claim.lua claims a look-up that is due, or reads how many may begin now. A claim moves the job's place in asking to the claim's deadline. The claim of a dead process runs out by
-- itself, and the look-up is made again.
-- KEYS
--    1  asking
--    2  looks: beat (when somebody looked last who asks, µs), until (the gateway asks for no look-ups, µs), and of each limit the moment at which it is as if none had been made (µs)
--    3  hold
--    4  alive
--    5  retrying
--    6… the lines of the queue
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  prefix of records
--    3  owner ('' = only read, claim nothing)
--    4  id of the job whose look-up goes on, since its answer has more pages ('' = none: the first that is due)
--    5  how long the claim holds (µs)
--    6  version of the data ('' = not watched)
--    7  the least sign of life it must have (µs)
--    8  how many limits look-ups have
--    9… of each limit three: its field in looks, with a - behind it if it holds only while jobs wait in the queue; the time between two look-ups (µs); how many may begin together
-- returns {how many may begin now (with an owner: 1 if one was claimed; -1: the record of the job whose id follows is damaged),
--    µs until more may (-1: none is pending; of a look-up that goes on: its claim is another one's, or the job is pending no more)}, and behind a claim:
--    id, generation, key generation, 1 if the gateway has accepted the payment, its reference, first call with the key (µs), end of the call (µs),
--    look-ups made, those of them that said not_done in a row, those that failed in a row, when the job was accepted (µs), when this one was claimed (µs),
--    cost, batch, the payload's digest, key generation when look-ups last found no payment of the job (1: they never did),
--    1 if one of its calls since was answered with a no and tried again, route ('' = none), lane ('' = none), payload, in one piece or several
local AT_ONCE, BEAT, IDLE, SOON, STAY = 64, 5000000, 1000000, 10000000, 86400000
local now, owner = now_us(ARGV[1]), ARGV[3]
if ARGV[6] ~= '' and not alive_fits(KEYS[4], ARGV[6], ARGV[7]) then return {0, IDLE} end
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, -1} end
if now - (tonumber(redis.call('HGET', KEYS[2], 'beat')) or 0) > BEAT then
  redis.call('HSET', KEYS[2], 'beat', int(now))
  redis.call('PEXPIRE', KEYS[2], STAY)
end

local queued = false -- whether jobs wait in the queue
for i = 6, #KEYS do queued = queued or redis.call('EXISTS', KEYS[i]) == 1 end

-- held returns for how long no look-up may begin (µs, 0: one may), and how many may then. While the gateway is tried after a hold, jobs that are
-- called soon go first: their calls say more about it.
local function held()
  local v = redis.call('HMGET', KEYS[3], 'paused', 'until', 'need', 'probe')
  if v[1] == '1' then return IDLE, 0 end
  local asked = tonumber(redis.call('HGET', KEYS[2], 'until')) or 0 -- it asked for no look-ups until then
  if asked > now then return asked - now, 0 end
  if owner == '' and (tonumber(v[2]) or 0) > now then return tonumber(v[2]) - now, 0 end
  if v[3] ~= '1' then return 0, AT_ONCE end
  local retry = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]
  if queued or retry and tonumber(retry) < now + SOON then return IDLE, 0 end
  if owner == '' and (tonumber(v[4]) or 0) > now then return math.min(tonumber(v[4]) - now, IDLE), 0 end
  return 0, 1
end

-- limited returns the same for the limits, each of which allows a number at once and one more each interval. It also returns the limits after one more look-up.
local function limited()
  local wait, most, after = 0, AT_ONCE, {}
  for a = 9, 6 + 3 * tonumber(ARGV[8]) + 2, 3 do
    local field, while_queued = string.match(ARGV[a], '^(%w+)(%-?)$')
    if while_queued == '' or queued then
      local interval, tolerance = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 1]) * (tonumber(ARGV[a + 2]) - 1)
      local full = math.max(math.min(tonumber(redis.call('HGET', KEYS[2], field)) or 0, now + tolerance + interval), now) -- a clock that was set back makes no look-up wait
      if full - now > tolerance then
        wait, most = math.max(wait, full - now - tolerance), 0
      else
        most = math.min(most, math.floor((tolerance - (full - now)) / interval) + 1)
      end
      after[#after + 1], after[#after + 2] = field, int(math.ceil(full + interval))
    end
  end
  return wait, most, after
end

-- due returns the ids of jobs whose look-up is due, up to a number, and how long it is until the next one is due.
local function due(most)
  local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', 0, most)
  if #ids > 0 then return ids, 0 end
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return ids, first[2] and tonumber(first[2]) - now or -1
end

-- mine reports whether the next look-up of a job may be claimed, or returns nil if its record is damaged. A job that is not in the place that its record names is moved there: the
-- record is right.
local function mine(id)
  local v = redis.pcall('HMGET', ARGV[2] .. id, '@state', '@ask_at', '@ask_owner', '@generation')
  if v.err or v[1] == 'pending' and not string.find(v[4] or '', '^%d+$') then return nil end
  if v[1] ~= 'pending' then
    redis.call('ZREM', KEYS[1], id)
    return false
  end
  if ARGV[4] ~= '' then return v[3] == owner end
  local at = tonumber(v[2]) or 0
  if at > now then redis.call('ZADD', KEYS[1], int(at), id) end
  return at <= now
end

-- declined reports whether, since look-ups last found no payment of the job, the gateway itself answered one of its calls with a no, and the call was tried again
-- all the same. Each of these may have left a payment of its own, which failed. A 429 leaves none, and a 408, 409 or 422 is in doubt itself.
local function declined(history)
  local no = false
  for status, what in string.gmatch(history or '', '%d+ %d+ (%d+) ([^\n]+)\n') do
    if what == 'look_not_done' then no = false end
    no = no or what == 'retry' and string.sub(status, 1, 1) == '4' and not string.find(' 408 409 422 425 429 ', ' ' .. status .. ' ', 1, true)
  end
  return no
end

-- whole returns a whole number of a record, as text; the field may hold anything.
local function whole(value, otherwise)
  local n = tonumber(value)
  if n and n >= 0 and n < 9007199254740992 and n == math.floor(n) then return int(n) end
  return otherwise or '0'
end

local function claimed(id, after)
  local record, deadline = ARGV[2] .. id, int(now + tonumber(ARGV[5]))
  redis.call('HSET', record, '@ask_owner', owner, '@ask_at', deadline)
  redis.call('ZADD', KEYS[1], deadline, id)
  if #after > 0 then redis.call('HSET', KEYS[2], unpack(after)) end
  local job = read_all(record)
  local ended = whole(job.@call_ended_at, int(now))
  if ended ~= job.@call_ended_at then redis.call('HSET', record, '@call_ended_at', ended) end
  return payload_pieces({1, 0, id, whole(job.@generation), whole(job.@key_generation, '1'), job.@accepted_by_gateway or '0', job.@reference or '', whole(job.@first_call_at), ended, whole(job.@asked),
    whole(job.@absent), whole(job.@ask_failed), whole(job.@accepted_at), int(now), whole(job.@cost, '1'), job.@batch or '', job.@digest or '', whole(job.@absent_key, '1'),
    declined(job.@history) and '1' or '0', job.@route or '', job.@lane or ''}, job)
end

local wait, most = held()
if most == 0 then return {0, math.ceil(wait)} end
local pause, room, after = limited()
if room == 0 then return {0, math.ceil(pause)} end
most = math.min(most, room)
if owner == '' then
  local ids, next_in = due(most)
  return {#ids, math.ceil(next_in)}
end
local ids, next_in = {ARGV[4]}, -1
if ARGV[4] == '' then ids, next_in = due(AT_ONCE) end
for _, id in ipairs(ids) do
  local is = mine(id)
  if is then return claimed(id, after) end
  if is == nil then return {-1, 0, id} end
end
return {0, math.ceil(next_in)}
