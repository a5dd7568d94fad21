-- brakes_look.lua reads the state of a gateway's brakes. Composed after NowLua, books.lua and brakes.lua.
-- KEYS 1 brakes  2 hold
-- ARGV 1 now (µs, 0 = Redis's)  2 the brakes (brakes.lua)
-- returns {now, lifted until (µs, 0 = they are in force), when that was done (µs), by whom, why, since when a job waits for room (µs, 0 = none does), until when at the latest (µs), why,
--      and for each limit: what counts now (minor units), until when it is unknown what was called (µs, 0 = it is known)}
local key, now, b = KEYS[1], now_us(ARGV[1]), brakes_read(ARGV[2])
local v = redis.call('HMGET', key, 'clock', 'born', 'full', 'forgiven', 'lifted', 'lifted_at', 'lifted_by', 'lifted_why')
local hold = redis.call('HMGET', KEYS[2], 'brake', 'brake_until', 'brake_why', 'brake_since')
local lifted, till = tonumber(v[5] or '') or 0, tonumber(hold[2] or '') or 0
local full = math.max(tonumber(v[3] or '') or 0, 0)
if full <= (tonumber(v[4] or '') or 0) then full = 0 end
local live, waits = lifted > now, hold[1] and till > now
local out = {now, live and lifted or 0, live and tonumber(v[6] or '') or 0, live and v[7] or '', live and v[8] or '',
  waits and tonumber(hold[4] or '') or 0, waits and till or 0, waits and hold[3] or ''}
local moment = math.max(now, tonumber(v[1] or '') or 0)
for _, l in ipairs(b and b.limits or {}) do
  local w = money_span(l.currency, l.length)
  brakes_load(key, {w}, moment, {})
  local sum = 0
  brakes_parts(key, w, math.max(w.first or 1, math.floor((moment - w.span) / w.width + 1) * w.width), w.newest or 0, function(_, has) sum = sum + has end)
  out[#out + 1] = sum
  local known = full + BRAKES_LEAD + w.span
  out[#out + 1] = full > 0 and known > now and known or 0
end
return out
