-- pulse.lua reads what an idle gateway must be told, in one look. It writes only the data's sign of life, and that the caller is too slow. Composed after NowLua and alive.lua.
-- KEYS 1 pending  2 parked:rejected  3 scheduled  4 retrying  5 open  6 active  7 lease  8 limits set live
--      9 … 12 asynq's own sets, in which no task of ours belongs: retry, archived, scheduled, completed  13 alive  14 retries  15 replays  16 due  17 shelving  18 slow (HOST.PID: "since seen slots" of a dispatcher that is too slow for
--      its limits: when that began and when it was last reported, in µs, and how many slots it may have in hand)  19 asking  20 classes
-- ARGV 1 now (µs, 0 = Redis's)  2 a lease that ends within this time is looked at (µs from now)
--      3 version of the data ('' = not watched)  4 the least sign of life it must have (µs)  5 the caller, HOST.PID, if it is too slow for its limits (else '')
--      6 since how long (µs)  7 how many slots it may have in hand  8 prefix of the lines of classes
-- returns {jobs in the queue, jobs parked as rejected, µs until the next job is due (0: one is due, -1: none waits for a time),
--          1 if a sweep will find something, version of the limits set live (0: never set), now,
--          the data's last sign of life (µs; 0: not watched, -1: it is not what the caller has seen), 1 if jobs of batches are to be shelved,
--          µs until the next look-up is due (0: one is due, -1: none is pending)}
local now = now_us(ARGV[1])
local function first(set)
  return tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
end

local function wait_for(set)
  local at = first(set)
  return at and math.max(at - now, 0) or -1
end

local due = -1
for _, set in ipairs({KEYS[3], KEYS[4]}) do
  local wait = wait_for(set)
  if wait >= 0 and (due < 0 or wait < due) then due = wait end
end

local function astray()
  if redis.call('EXISTS', KEYS[9], KEYS[10], KEYS[11], KEYS[12]) > 0 then return true end
  local deadline, lease = first(KEYS[5]), first(KEYS[7])
  if deadline and deadline <= now then return true end
  if lease and lease * 1000000 < now + tonumber(ARGV[2]) then return true end
  return redis.call('LLEN', KEYS[6]) ~= redis.call('ZCARD', KEYS[7])
end

if ARGV[5] ~= '' and type(redis.pcall('HSET', KEYS[18], ARGV[5], int(now - tonumber(ARGV[6])) .. ' ' .. int(now) .. ' ' .. ARGV[7])) == 'number' then
  redis.call('PEXPIRE', KEYS[18], 60000)
end

local queued = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[14]) + redis.call('LLEN', KEYS[15]) + redis.call('LLEN', KEYS[16])
for _, class in ipairs(redis.call('HKEYS', KEYS[20])) do queued = queued + queued_of(ARGV[8], class) end
return {queued, redis.call('ZCARD', KEYS[2]), due, astray() and 1 or 0,
  tonumber(redis.call('HGET', KEYS[8], 'version')) or 0, now, alive_beat(KEYS[13], ARGV[3], ARGV[4], now), redis.call('EXISTS', KEYS[17]),
  wait_for(KEYS[19])}
