-- pulse.lua: what an idle gateway must be told, in one look. Reads only.
-- KEYS 1 pending  2 parked:rejected  3 scheduled  4 retrying  5 open  6 active  7 asynq's retry set  8 limits set live
-- ARGV 1 now (µs, 0 = Redis's)
-- returns {jobs pending, jobs parked as rejected, µs until the next job is due (0: one is due, -1: none waits for a time),
--          1 if a sweep may find something, version of the limits set live (0: never set)}
local now = now_us(ARGV[1])
local due = -1
for _, set in ipairs({KEYS[3], KEYS[4]}) do
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  if first[2] then
    local wait = math.max(tonumber(first[2]) - now, 0)
    if due < 0 or wait < due then due = wait end
  end
end
local sweep = redis.call('EXISTS', KEYS[5], KEYS[6], KEYS[7]) > 0 and 1 or 0
return {redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), due, sweep,
  tonumber(redis.call('HGET', KEYS[8], 'version')) or 0}
