-- unask.lua: pending jobs are parked for a person, since no process asks about them any more: the configuration has no look-up for their gateway.
-- KEYS 1 asking  2 looks  3 counters  4 parked:unknown_outcome
-- ARGV 1 now (µs, 0 = Redis's)  2 prefix of records  3 how many at most  4 error  5 no process asks if none has looked for this long (µs)
-- returns {how many were parked, µs until the others may be (-1: there are no others)}
local now = now_us(ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, -1} end
local at = tonumber(redis.call('HGET', KEYS[2], 'beat')) or 0
if now - at < tonumber(ARGV[5]) then return {0, math.ceil(at + tonumber(ARGV[5]) - now)} end
local parked = 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1)) do
  local record = ARGV[2] .. id
  local job = read(record, '@state', '@reason', '@batch', '@money', '@pieces', '@seen')
  redis.call('ZREM', KEYS[1], id)
  if job.@state == 'pending' then
    local when = int(stamp(KEYS[3], now))
    job.drop = {'@ask_at', '@ask_owner'}
    become_of(record, job, 'parked', '@reason', 'unknown_outcome', '@error', ARGV[4] .. (job.@seen and '; last seen: ' .. job.@seen or ''), '@parked_at', when)
    redis.call('ZADD', KEYS[4], when, id)
    parked = parked + 1
  end
end
return {parked, redis.call('EXISTS', KEYS[1]) == 1 and 0 or -1}
