-- brakes_tell.lua: a process tells what it has opened. What Redis lacks of it was lost, and counts as called now. What a process has opened stays known as long as it tells (brakes_kept). Composed after NowLua, books.lua and brakes.lua.
-- KEYS 1 brakes
-- ARGV 1 now (µs, 0 = Redis's)  2 the process  3 what it has seen: "born CURRENCY:MONEY …"  4 how long after its opening one of its calls may be written at most (µs)
-- returns 1 Redis lacked some of it  0 it did not
local key, now = KEYS[1], now_us(ARGV[1])
local v = redis.call('HMGET', key, 'born', 'clock', 'latest', 'on')
local born, told = string.match(ARGV[3], '^(%d*)(.*)$')
if not v[1] or v[1] ~= born then return 0 end
now = math.max(now, tonumber(v[2] or '') or 0)
local before, at, on, lacked = tonumber(v[3] or '') or 0, now + math.max(tonumber(ARGV[4]), BRAKES_LEAD), v[4] or '', 0
for currency, money in string.gmatch(told, ' (%u+):(%d+)') do
  local mine = 'p:' .. ARGV[2] .. ':' .. currency
  local known = redis.call('HGET', key, mine)
  local missing, said = tonumber(money) - brakes_short(known), tonumber(string.match(known or '', ' (%d+)$') or '')
  if missing > 0 then
    local set, windows = {'latest', int(math.max(at, before)), mine, money .. ' ' .. int(now)}, {money_span(currency, BRAKES_DAY_TEXT)}
    brakes_load(key, windows, at, {})
    windows, on = brakes_on(key, on, windows, currency, now, before)
    for _, w in ipairs(windows) do
      brakes_expire(key, w, now)
      brakes_put(w, at, missing)
    end
    brakes_written(set, key, windows)
    redis.call('HSET', key, unpack(set))
    lacked = 1
  elseif said and now - said > 3600000000 then
    redis.call('HSET', key, mine, int(brakes_short(known)) .. ' ' .. int(now))
  end
end
return lacked
