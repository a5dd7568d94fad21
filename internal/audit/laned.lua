-- laned.lua reads which lanes in a stretch of a set are not where a lane with jobs belongs: in throttled and in no ready set, or in the ready sets of all its flows with jobs.
-- It writes nothing.
-- KEYS 1 lanes, where bucket's lanes.lua lists all keys  2 throttled, or one of the ready sets
-- ARGV 1 place of the first lane in that set  2 place of the last
-- returns {how many lanes it looked at, lane, what is wrong, lane, what is wrong, …}
local prefix, set = string.match(KEYS[1], '^.*}:'), KEYS[2]
local flow_here = string.match(set, '}:ready:(.*)$')
local on = redis.call('HGET', KEYS[1], 'on') or ''
local all = redis.call('ZRANGE', set, ARGV[1], ARGV[2])

-- wrong returns what is wrong with a lane, or nil.
local function wrong(lane)
  local read, v = pcall(cmsgpack.unpack, redis.pcall('GET', prefix .. 'lane:' .. lane) or '\192')
  local work, there = {}, {}
  if not read or type(v) ~= 'table' then v = {} end
  for i = 4, #v - 2, 3 do work[v[i]] = bit.band(v[i + 2], 15) > 0 or nil end
  for flow in string.gmatch(on, '%S+') do there[flow] = redis.call('ZSCORE', prefix .. 'ready:' .. flow, lane) and true or nil end
  if not next(work) then return 'has no jobs that its record knows of' end
  local waits = redis.call('ZSCORE', prefix .. 'throttled', lane)
  if waits and next(there) then return 'stands in throttled and in ready:' .. next(there) end
  if flow_here and not work[flow_here] then return 'stands in ready:' .. flow_here .. ' without jobs of it' end
  for flow in pairs(work) do
    if not waits and not there[flow] then return 'stands in ' .. string.match(set, '}:(.*)$') .. ' and not in ready:' .. flow end
  end
end

local out = {int(#all)}
for _, lane in ipairs(all) do
  local what = wrong(lane)
  if what then out[#out + 1], out[#out + 2] = lane, what end
end
return out
