-- recount.lua: holds what is said of how many tasks and lanes there are (lanes.lua of internal/bucket: tasks, n<flow>, busy) against the lines, in one step, and may write it anew.
-- KEYS 1 lanes, where lanes.lua lists all keys  2 throttled  3 one that nobody writes: half of the script could run while a cluster's slot moves
-- ARGV 1 how many lanes it counts at most, as Redis does nothing else meanwhile  2 1 = write what is so
-- returns {what, said, is, …} of all that differs; nothing if there are more lanes
local prefix, on = string.match(KEYS[1], '^.*}:'), redis.call('HGET', KEYS[1], 'on') or ''
local sets, most = {[KEYS[2]] = ''}, tonumber(ARGV[1])
for flow in string.gmatch(on, '%S+') do sets[prefix .. 'ready:' .. flow] = flow end
for set in pairs(sets) do most = most - redis.call('ZCARD', set) end
if most < 0 or redis.call('EXISTS', KEYS[1]) == 0 then return {} end

local flows, is = {}, {tasks = 0, busy = 0} -- of each lane, the flows that it may have
for set, here in pairs(sets) do
  for _, lane in ipairs(redis.call('ZRANGE', set, 0, -1)) do
    if not flows[lane] then
      flows[lane], is.busy = {}, is.busy + 1
      local packed = redis.call('GET', prefix .. 'lane:' .. lane)
      local v = packed and cmsgpack.unpack(packed) or {}
      for i = 4, #v - 2, 3 do flows[lane][v[i]] = true end
    end
    if here ~= '' then flows[lane][here] = true end
  end
end
for lane, all in pairs(flows) do
  for flow in pairs(all) do
    local n = 0
    for line in string.gmatch('due pending retries replays', '%l+') do n = n + redis.call('LLEN', prefix .. 'flow:' .. flow .. ':' .. line .. ':' .. lane) end
    local name = string.format('n%s', flow)
    is[name], is.tasks = (is[name] or 0) + n, is.tasks + n
  end
end

local said, out = {}, {}
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do
  local name = flat[i]
  if name == 'tasks' or name == 'busy' or string.find(name, '^n') then
    said[name], is[name] = tonumber(flat[i + 1]) or 0, is[name] or 0
  end
end
for name, n in pairs(is) do
  if (said[name] or 0) ~= n then
    out[#out + 1], out[#out + 2], out[#out + 3] = name, string.format('%d', said[name] or 0), string.format('%d', n)
    if ARGV[2] == '1' then redis.call('HSET', KEYS[1], name, string.format('%d', n)) end
  end
end
return out
