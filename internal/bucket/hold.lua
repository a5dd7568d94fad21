-- hold.lua: nobody calls the gateway for a time. Composed after NowLua.
-- KEYS 1 hold
-- ARGV 1 now (µs, 0 = Redis's)  2 for how long (µs, 0 = the growing back-off)  3 reason  4 channel  5 gateway
-- Returns until when (µs). A hold is never shortened, and the back-off grows once for each hold, however many
-- calls come back with the same news: those that arrive while it lasts change nothing.
-- Hash: until (µs)  reason  delay (back-off, µs)  need (1: one call goes first)  clear (µs when the last hold was over)
--       few, fewat, fewfrom: see fewer.lua   circuit, cdelay, fails, run, runjob, runat, prun: see circuit.lua   outages: see outage.lua
--       probe (µs until which news of the call sent ahead is awaited)  slot (its slot)  epoch  paused  why
local FIRST, MOST, CLEAN = 1000000, 60000000, 30000000
local now, length = now_us(ARGV[1]), tonumber(ARGV[2])
local v = redis.call('HMGET', KEYS[1], 'until', 'delay', 'need', 'clear', 'epoch')
local held, delay = tonumber(v[1]) or 0, tonumber(v[2]) or 0
local till = now + length
if length == 0 then
  if held > now then return int(held) end
  local clean = v[3] ~= '1' and now - (tonumber(v[4]) or 0) >= CLEAN
  if clean or delay == 0 then delay = FIRST else delay = math.min(delay * 2, MOST) end
  till = now + delay
end
if till <= held then return int(held) end
redis.call('HSET', KEYS[1], 'until', int(till), 'reason', ARGV[3], 'delay', int(delay), 'need', 1,
  'epoch', int((tonumber(v[5]) or 0) + 1))
redis.call('HDEL', KEYS[1], 'probe', 'slot')
redis.call('PUBLISH', ARGV[4], ARGV[5])
return int(till)
