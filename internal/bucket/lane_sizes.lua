-- lane_sizes.lua reads how many jobs some lanes have in the queue.
-- KEYS 1 lanes, where lanes.lua lists all keys  2 throttled, or a set of lanes that may be called
-- ARGV 1 cursor of ZSCAN ('' = the lanes that are named)  2 about how many lanes, then names of lanes
-- returns {cursor ('0' = these were the last of the set), lane, jobs, throttled until (µs, 0 = it is not), for named lanes also their next task and its flow, lane, …}
local prefix = string.match(KEYS[1], '^.*}:')
local moved = tonumber(redis.call('HGET', KEYS[1], 'moved')) or 0
local LINES = {[1] = 'due', [2] = 'pending', [4] = 'retries', [8] = 'replays'}
local names, step, cursor, named = {}, 1, '0', ARGV[1] == ''
if named then
  for i = 3, #ARGV do names[#names + 1] = ARGV[i] end
else
  local page = redis.call('ZSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
  cursor, names, step = page[1], page[2], 2
end
local out = {cursor}
for i = 1, #names, step do
  local jobs, x, head, flow = 0, 0, '', ''
  local read, v = pcall(cmsgpack.unpack, redis.pcall('GET', prefix .. 'lane:' .. names[i]) or '\192')
  if not read or type(v) ~= 'table' then v = {0} end -- something else has overwritten it
  for f = 4, #v - 2, 3 do
    for bits, line in pairs(LINES) do
      if bit.band(v[f + 2], bits) > 0 then
        local key = prefix .. 'flow:' .. v[f] .. ':' .. line .. ':' .. names[i]
        jobs = jobs + redis.call('LLEN', key)
        local first = named and redis.call('LINDEX', key, -1)
        if first and (head == '' or first < head) then head, flow = first, v[f] end
      end
    end
  end
  if v[1] > 0 then x = v[1] - moved end
  for _, value in ipairs({names[i], jobs, string.format('%.0f', math.max(x, 0)), head, flow}) do out[#out + 1] = value end
end
return out
