-- brakes_mend.lua: rewrites the sum of a window from its parts. Composed after NowLua, books.lua and brakes.lua.
-- KEYS 1 brakes
-- ARGV 1 now (µs, 0 = Redis's)  2 the window  3 money that is missing in it, which counts as called now (minor units)  4 when the last open attempt is written at the latest (µs, 0 = none is open)
-- returns 1
local key, now, w = KEYS[1], now_us(ARGV[1]), money_window(ARGV[2])
now = math.max(now, tonumber(redis.call('HGET', key, 'clock') or '') or 0)
w.sum, w.has, w.add, w.moved = 0, {}, {}, true
local begins, gone = 'b:' .. w.name .. ':', {}
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  if string.sub(all[i], 1, #begins) == begins then
    local edge, has = tonumber(string.sub(all[i], #begins + 1)), tonumber(all[i + 1])
    if edge and has and has > 0 and edge > now - w.span then
      w.sum, w.has[edge] = w.sum + has, has
      w.first, w.newest = math.min(w.first or edge, edge), math.max(w.newest or edge, edge)
    else
      gone[#gone + 1] = all[i]
    end
  end
end
for i = 1, #gone, BRAKES_CHUNK do redis.call('HDEL', key, unpack(gone, i, math.min(#gone, i + BRAKES_CHUNK - 1))) end
if tonumber(ARGV[3]) > 0 then brakes_put(w, math.max(now + BRAKES_LEAD, tonumber(ARGV[4])), tonumber(ARGV[3])) end
local set = {}
brakes_written(set, key, {w})
redis.call('HSET', key, unpack(set))
return 1
