-- trim.lua gives back the units of a slot that its job does not need. Composed after NowLua and pool.lua.
-- KEYS 1 pace  2… the windows' lists
-- ARGV 1 spacing of calls, for each unit (µs)  2 shape that the slot belongs to  3 slot (µs)  4 the moment at which exact lists count its call (µs)  5 cost
--      6 units that the job needs  7 number of the books that the slot was taken from, then the width of each window's sub-buckets (µs, 0 = exact)
-- Returns 1, or 0 if the slot is found nowhere: then nothing has changed. In a window in which it is not found, all its units stay taken.
local slot, edge, cost, need, K = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), #ARGV - 7
local fields = {'s', 'tat', 'g', 'u', 'o'}
for k = 1, K do fields[5 + k] = 'n' .. k end
local pace = redis.call('HMGET', KEYS[1], unpack(fields))
local units, before, since, dearest = pool_numbers(pace[4])
local _, books = pool_numbers(pace[5])
if pace[3] ~= ARGV[2] or books ~= tonumber(ARGV[7]) then return 0 end
local set, spare = {}, cost - need
for k = 1, K do
  local width = tonumber(ARGV[7 + k])
  local place, count = pool_find(KEYS[1 + k], width == 0 and edge or pool_edge(slot, width), cost, width)
  if place then
    pool_drop(KEYS[1 + k], place, count, spare)
    set[#set + 1], set[#set + 2] = 'n' .. k, int((tonumber(pace[5 + k]) or 0) - spare)
  end
end
if #set == 0 then return 0 end
if slot == tonumber(pace[1]) then set[#set + 1], set[#set + 2] = 'tat', int(tonumber(pace[2]) - tonumber(ARGV[1]) * spare) end
if since > 0 and slot >= since then set[#set + 1], set[#set + 2] = 'u', string.format('%.0f %.0f %.0f %.0f', units - spare, before, since, dearest) end
redis.call('HSET', KEYS[1], unpack(set))
return 1
