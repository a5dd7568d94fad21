-- recount.lua checks the numbers of tasks and lanes (lanes.lua of internal/bucket: tasks, n<flow>, busy) against the lines, and may correct them. If more lanes
-- have tasks than one script can count, they are counted a few at a time: that is valid if nothing has changed meanwhile.
-- KEYS 1 lanes, where lanes.lua lists all keys  2 throttled  3 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 all: counts all lanes, or none if there are more than ARGV[2]. ARGV[3] = 1: corrects the numbers
--        part: counts the lanes of the set ARGV[2] from the place ARGV[3] to the place ARGV[4]
--        level: takes ARGV[4…], names and numbers in turn, for true, unless something has changed since ARGV[3]; what is not named is 0. ARGV[2] = 1: corrects the numbers
-- returns all, level: {name, number in the hash, true number, …} for each that differs; or only: all 'many' if there are more lanes, level 'changed'
--         part: {a text that is different after a change, how many lanes it looked at, name, number, …}
local prefix, on = string.match(KEYS[1], '^.*}:'), redis.call('HGET', KEYS[1], 'on') or ''
local sets, names, is, flows = {[KEYS[2]] = ''}, {KEYS[2]}, {tasks = 0, busy = 0}, {} -- flows: for each lane, those that it may have
for flow in string.gmatch(on, '%S+') do
  local set = prefix .. 'ready:' .. flow
  if not sets[set] then sets[set], names[#names + 1] = flow, set end
end

local function said()
  local flat, all, text = redis.call('HGETALL', KEYS[1]), {}, {}
  for i = 1, #flat, 2 do
    local name = flat[i]
    if name == 'tasks' or name == 'busy' or string.find(name, '^n') then all[name] = tonumber(flat[i + 1]) or 0 end
    if all[name] or name == 'G' then text[#text + 1] = name .. '=' .. flat[i + 1] end
  end
  table.sort(text)
  return all, text
end

local function look(lane, here)
  if not flows[lane] then
    flows[lane] = {}
    local read, v = pcall(cmsgpack.unpack, redis.pcall('GET', prefix .. 'lane:' .. lane) or '\192')
    if not read or type(v) ~= 'table' then v = {} end
    for i = 4, #v - 2, 3 do flows[lane][v[i]] = true end
  end
  if here ~= '' then flows[lane][here] = true end
end

local function add(lane, flow)
  local n = 0
  for line in string.gmatch('due pending retries replays', '%l+') do n = n + redis.call('LLEN', prefix .. 'flow:' .. flow .. ':' .. line .. ':' .. lane) end
  local name = string.format('n%s', flow)
  is[name], is.tasks = (is[name] or 0) + n, is.tasks + n
end

-- differences returns where the hash differs from is, and may correct it.
local function differences(write)
  local all, out = said(), {}
  for name in pairs(all) do is[name] = is[name] or 0 end
  for name, n in pairs(is) do
    if (all[name] or 0) ~= n then
      out[#out + 1], out[#out + 2], out[#out + 3] = name, string.format('%d', all[name] or 0), string.format('%d', n)
      if write then redis.call('HSET', KEYS[1], name, string.format('%d', n)) end
    end
  end
  return out
end

-- mark changes if a task or a lane has come or gone, or a lane has moved from one set to another: the first lane leaves throttled first.
local function mark()
  local _, text = said()
  for _, set in ipairs(names) do text[#text + 1] = redis.call('ZCARD', set) end
  return table.concat(text, ' ') .. table.concat(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES'), ' ')
end

if ARGV[1] == 'all' then
  local most = tonumber(ARGV[2])
  for _, set in ipairs(names) do most = most - redis.call('ZCARD', set) end
  if most < 0 then return {'many'} end
  for _, set in ipairs(names) do
    for _, lane in ipairs(redis.call('ZRANGE', set, 0, -1)) do look(lane, sets[set]) end
  end
  for lane, all in pairs(flows) do
    is.busy = is.busy + 1
    for flow in pairs(all) do add(lane, flow) end
  end
  return differences(ARGV[3] == '1')
end

if ARGV[1] == 'level' then
  if mark() ~= ARGV[3] then return {'changed'} end
  for i = 4, #ARGV, 2 do is[ARGV[i]] = tonumber(ARGV[i + 1]) end
  return differences(ARGV[2] == '1')
end

local here, all = sets[ARGV[2]], redis.call('ZRANGE', ARGV[2], ARGV[3], ARGV[4])
for _, lane in ipairs(here and all or {}) do
  look(lane, here)
  local first = true
  for flow in pairs(flows[lane]) do
    if here == '' or flow == here then add(lane, flow) end -- otherwise it is counted in its other set
    if here ~= '' and flow < here and redis.call('ZSCORE', prefix .. 'ready:' .. flow, lane) then first = false end
  end
  if first then is.busy = is.busy + 1 end
end
local out = {mark(), string.format('%d', #all)}
for name, n in pairs(is) do out[#out + 1], out[#out + 2] = name, string.format('%d', n) end
return out
