-- look.lua reads a gateway at a glance, all of one moment.
-- KEYS
--    1  pending
--    2  active
--    3  scheduled
--    4  retrying
--    5  counters
--    6  rate
--    7  open
--    8  retries
--    9  replays
--   10  due
--   11  asking
--   12  classes
--   13… parked:<reason> of every reason
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  prefix of records
--    3  prefix of the lines of classes
-- returns {now, queued, in flight, scheduled, retrying, done, accepted, discarded, calls of the last minute,
--          age of the oldest bucket counted (µs), bytes of the parked ones' payloads, pending, calls of the whole buckets without a
--          gap before the present one, how many these are, calls of the present bucket and the one before, parked1, parked2, …,
--          then of each reason when its oldest job was parked (µs, 0 = there is none)}
local now = now_us(ARGV[1])
local flying = redis.call('ZCARD', KEYS[7]) -- attempts begun, and tasks pulled whose attempt has not begun yet
for _, task in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local id, generation = string.match(task, '^(.*)~(%d+)$')
  if id then
    local v = redis.call('HMGET', ARGV[2] .. id, '@state', '@generation')
    if v[2] == generation and v[1] == 'queued' then flying = flying + 1 end
  end
end
local counters = redis.call('HMGET', KEYS[5], 'done', 'accepted', 'discarded')
local bucket, calls, oldest, of = math.floor(now / 5000000), 0, nil, {}
local last = {} -- of the last minute
for i = 1, 12 do last[i] = int(bucket - 12 + i) end
for i, text in ipairs(redis.call('HMGET', KEYS[6], unpack(last))) do
  local n = text and tonumber(text)
  if n then
    of[bucket - 12 + i], calls, oldest = n, calls + n, oldest or bucket - 12 + i
  end
end
local fresh = (of[bucket] or 0) + (of[bucket - 1] or 0)
local lately, spans, at = 0, 0, bucket - 1
while of[at] do
  lately, spans, at = lately + of[at], spans + 1, at - 1
end
if spans > 0 and at > bucket - 12 then -- calls began within the first of them
  lately, spans = lately - of[at + 1], spans - 1
end
local queued = redis.call('LLEN', KEYS[1])
local scheduled, retrying, asking = 0, 0, 0
if redis.call('EXISTS', KEYS[3], KEYS[4], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]) > 0 then -- rarely: most gateways have none of them
  queued = queued + redis.call('LLEN', KEYS[8]) + redis.call('LLEN', KEYS[9]) + redis.call('LLEN', KEYS[10])
  for _, class in ipairs(redis.call('HKEYS', KEYS[12])) do queued = queued + queued_of(ARGV[3], class) end
  scheduled, retrying, asking = redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[11])
end
local seen = {now, queued, flying, scheduled, retrying, tonumber(counters[1]) or 0, tonumber(counters[2]) or 0, tonumber(counters[3]) or 0,
  calls, oldest and now - oldest * 5000000 or 0, 0, asking, lately, spans, fresh}
local firsts, parked = {}, redis.call('EXISTS', unpack(KEYS, 13)) > 0
for i = 13, #KEYS do
  local jobs, first = parked and redis.call('ZCARD', KEYS[i]) or 0, 0
  if jobs > 0 then
    first = tonumber(redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2])
    seen[11] = seen[11] + (tonumber(redis.call('HGET', KEYS[5], 'b:' .. string.match(KEYS[i], 'parked:[^:]+$'))) or 0)
  end
  seen[#seen + 1], firsts[#firsts + 1] = jobs, first
end
for _, first in ipairs(firsts) do seen[#seen + 1] = first end
return seen
