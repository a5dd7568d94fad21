-- pulse.lua reads what an idle gateway must be told, in one look. It writes only the data's sign of life, and that the caller is too slow. If Redis's clock was set back, back-offs and
-- attempts from before end as much earlier. Composed after NowLua and alive.lua.
-- KEYS
--    1  pending
--    2  parked:rejected
--    3  scheduled
--    4  retrying
--    5  open
--    6  active
--    7  lease
--    8  limits set live
--    9… asynq's own sets, in which no task of ours belongs: retry, archived, scheduled, completed
--   13  alive
--   14  retries
--   15  replays
--   16  due
--   17  shelving
--   18  slow: HOST.PID: "since seen slots" of a dispatcher that is too slow for its limits: when that began and when it was last reported (µs), and how many slots it may have in hand
--   19  asking
--   20  classes
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  a lease that ends within this time is looked at (µs from now)
--    3  version of the data ('' = not watched)
--    4  the least sign of life it must have (µs)
--    5  the caller, HOST.PID, if it is too slow for its limits, else ''
--    6  since how long (µs)
--    7  how many slots it may have in hand
--    8  prefix of the lines of classes
-- returns {jobs in the queue, jobs parked as rejected, µs until the next job is due (0: one is due, -1: none waits for a time),
--          1 if a sweep will find something, version of the limits set live (0: never set), now,
--          the data's last sign of life (µs; 0: not watched, -1: it is not what the caller has seen), 1 if jobs of batches are to be shelved,
--          µs until the next look-up is due (0: one is due, -1: none is pending)}
local SET_BACK = 100000 -- at most so many jobs of each kind are moved for a clock that was set back: Redis answers nobody else meanwhile
local LEASE = 60 -- no lease is longer (s)
local now = now_us(ARGV[1])

-- earlier moves jobs that would wait for a clock that was set back to catch up. by is at most the time by which it was set back: no attempt's deadline comes before its end.
local function earlier(by)
  local prefix = string.match(KEYS[5], '^.*}:') .. 'job:'
  local function move(set, field, began)
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', set, '(' .. int(now), '+inf', 'LIMIT', 0, SET_BACK)) do
      local v = redis.pcall('HMGET', prefix .. id, field, began)
      local till, from = tonumber(v[1] or ''), tonumber(v[2] or '')
      if till and from and from > now then -- what began since by the clock as it is now stays
        redis.call('HSET', prefix .. id, field, int(till - by))
        redis.call('ZADD', set, int(till - by), id)
      end
    end
  end
  move(KEYS[4], '@due_at', '@due_at')
  move(KEYS[5], '@deadline', '@opened_at')
  -- A living worker extends its lease again, by its own clock.
  for _, task in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], string.format('(%.6f', now / 1000000 + LEASE), '+inf', 'LIMIT', 0, SET_BACK)) do
    redis.call('ZINCRBY', KEYS[7], string.format('%.6f', -by / 1000000), task)
  end
end

local beat, set_back = alive_beat(KEYS[13], ARGV[3], ARGV[4], now)
if set_back > 0 then earlier(set_back) end

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
  tonumber(redis.call('HGET', KEYS[8], 'version')) or 0, now, beat, redis.call('EXISTS', KEYS[17]),
  wait_for(KEYS[19])}
