-- wake.lua: the first sign of life after a silence. It records the silence: a process that saw life during it knows that the data is an old
-- snapshot, whose last sign of life was moved on by a process that did not know. Composed after NowLua and alive.lua.
-- KEYS 1 alive  ARGV 1 now (µs, 0 = Redis's)  2 v as the caller has seen it
-- returns 1 written  0 another process was faster
local KEPT = 16
local now, v = now_us(ARGV[1]), redis.call('HMGET', KEYS[1], 'v', 'at', 'gaps')
local at = tonumber(v[2]) or 0
if v[1] ~= ARGV[2] or now - at <= ALIVE_SILENCE then return 0 end
local gaps = {}
for gap in string.gmatch(v[3] or '', '%S+') do gaps[#gaps + 1] = gap end
gaps[#gaps + 1] = int(at) .. '-' .. int(now)
while #gaps > KEPT do table.remove(gaps, 1) end
redis.call('HSET', KEYS[1], 'gaps', table.concat(gaps, ' '), 'at', int(now), 'v', alive_changed(v[1], now))
return 1
