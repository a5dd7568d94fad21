-- relane.lua puts a lane where it belongs, by what is in its lists: if it has tasks, into throttled until now, so that the next pick looks at it.
-- KEYS 1 lanes, where bucket's lanes.lua lists all keys  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 now (µs, 0 = Redis's)  2 lane  3 a flow that it may have besides those of its record, CLASS:ROUTE ('' = none)
-- returns 1 if it has tasks
local prefix, lane = string.match(KEYS[1], '^.*}:'), ARGV[2]
local known, tasks, last = {}, 0, nil
local now = now_us(ARGV[1]) + (tonumber(redis.call('HGET', KEYS[1], 'moved') or '') or 0)
local packed = redis.pcall('GET', prefix .. 'lane:' .. lane)
local read, v = pcall(cmsgpack.unpack, packed or '\192')
if not packed then
  v = {0, '', {}}
elseif not read or type(v) ~= 'table' or type(v[3]) ~= 'table' then
  v = {0, '', {{0, now + 2000000, 2 ^ 50}}} -- something else has overwritten it: as in lanes.lua, the lane counts as having used up its limits
end
if #v % 3 == 1 then last = table.remove(v) end
local function look(at)
  local flow, lines = v[at], v[at + 2] > 15 and 16 or 0
  known[flow] = true
  local line = 1
  for name in string.gmatch('due pending retries replays', '%l+') do
    if redis.call('EXISTS', prefix .. 'flow:' .. flow .. ':' .. name .. ':' .. lane) == 1 then lines, tasks = lines + line, 1 end
    line = 2 * line
  end
  v[at + 2] = lines
end
for i = 4, #v, 3 do look(i) end
local on = redis.call('HGET', KEYS[1], 'on') or ''
for flow in string.gmatch(on .. ' ' .. ARGV[3], '%S+') do
  if not known[flow] then
    v[#v + 1], v[#v + 2], v[#v + 3] = flow, 0, 0
    look(#v - 2)
  end
end
for flow in pairs(known) do redis.call('ZREM', prefix .. 'ready:' .. flow, lane) end
v[1], v[2] = tasks == 1 and now or 0, ''
if last then v[#v + 1] = last end
redis.call('SET', prefix .. 'lane:' .. lane, cmsgpack.pack(v), 'KEEPTTL')
if tasks == 1 then
  redis.call('PERSIST', prefix .. 'lane:' .. lane)
  redis.call('ZADD', prefix .. 'throttled', int(now), lane)
else
  redis.call('ZREM', prefix .. 'throttled', lane)
  redis.call('PEXPIRE', prefix .. 'lane:' .. lane, 3600000)
end
return tasks
