-- succeeded.lua: a call succeeded. After a hold, the rest may follow. Composed after NowLua and outage.lua.
-- KEYS 1 hold  2 rate
-- ARGV 1 now (µs, 0 = Redis's)  2 channel  3 gateway  4 slot of the call (µs)  5 "1": its job had never been called before
-- returns 1 if calls may go, 2 if they may because this closed the circuit, 0 if the hold still lasts, no call was sent ahead yet,
-- or the call had left before the hold ended: such a success proves nothing.
-- If a job that was never called succeeds soon, the trouble may have been that of other jobs: the next time it takes more of
-- them to hold the gateway (outage.lua). A wait says what it wants, so its end proves nothing.
local PART = 5000000
local DOUBTED, SOON = 3, 15000000 -- after this many rounds of calls sent ahead in vain, or this long (µs), the trouble was the gateway's
local now = now_us(ARGV[1])
redis.call('HDEL', KEYS[1], '') -- Redis lets a script that has begun to write continue, even if its memory is full
local names = {'until', 'need', 'probe', 'circuit', 'outages', 'kind', 'again'}
local got, v = redis.call('HMGET', KEYS[1], unpack(names)), {}
for i, name in ipairs(names) do v[name] = got[i] or nil end
local held = tonumber(v['until']) or 0
if v.need ~= '1' then return 1 end
if held > now or not v.probe or tonumber(ARGV[4]) < held then return 0 end
local counted = redis.pcall('HGET', KEYS[2], int(math.floor(now / PART))) -- damaged data in it must not keep a gateway held
redis.call('HSET', KEYS[1], 'need', 0, 'clear', int(now), 'cleared', type(counted) == 'string' and counted or 0)
redis.call('HDEL', KEYS[1], 'probe', 'slot', 'reason', 'circuit', 'kind', 'tries', 'again', 'probed', 'cdelay', 'endless')
if v.outages then redis.call('HSET', KEYS[1], 'outages', outage_end(v.outages, now)) end
local from = tonumber(string.match(v.outages or '', '(%d+):$') or 0)
if ARGV[5] == '1' and now - from < SOON and (v.kind == 'fail' or v.kind == 'deny') and (tonumber(v.again) or 0) < DOUBTED then
  local field = 'level:' .. v.kind
  redis.call('HSET', KEYS[1], field, level_raised(redis.call('HGET', KEYS[1], field), now))
end
redis.call('PUBLISH', ARGV[2], ARGV[3])
return v.circuit and 2 or 1
