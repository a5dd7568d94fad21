-- relist.lua reads which flows have lanes that may be called, and are not among those that are looked at (lanes.lua of internal/bucket: on), as after the hash lanes was deleted. It may
-- add them there, with the virtual time of their class and the holds of routes.
-- KEYS 1 lanes, where lanes.lua lists all keys  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 now (µs, 0 = Redis's)  2 1 = write  3… the possible flows, CLASS:ROUTE
-- returns {flow, …}
local call, prefix = redis.call, string.match(KEYS[1], '^.*}:')
local on, known, lost, times = call('HGET', KEYS[1], 'on') or '', {}, {}, {}
for flow in string.gmatch(on, '%S+') do known[flow] = true end
for i = 3, #ARGV do
  local first = not known[ARGV[i]] and call('ZRANGE', prefix .. 'ready:' .. ARGV[i], 0, 0, 'WITHSCORES')
  if first and first[2] then
    lost[#lost + 1] = ARGV[i]
    local class = string.match(ARGV[i], '^[^:]*')
    times[class] = math.min(times[class] or math.huge, tonumber(first[2]))
  end
end
if ARGV[2] ~= '1' then return lost end
if #lost > 0 then call('HSET', KEYS[1], 'on', on .. ' ' .. table.concat(lost, ' ') .. ' ') end
for class, time in pairs(times) do call('HSETNX', KEYS[1], 'V' .. class, string.format('%.17g', time)) end -- otherwise newcomers would go first until they had as many calls as the others
local now = now_us(ARGV[1]) + (tonumber(call('HGET', KEYS[1], 'moved') or '') or 0)
for i = 3, #ARGV do
  local route = string.match(ARGV[i], '[^:]*$')
  local left = call('PTTL', prefix .. 'hold:r:' .. route)
  if left > 0 then call('HSETNX', KEYS[1], 'H' .. route, int(now + left * 1000)) end
end
return lost
