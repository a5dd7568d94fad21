-- loss.lua: a fragment behind pool.lua; what may be missing from the windows' lists after Redis lost writes.
--
-- A loss has a mark: nothing from before it was written later. A list's pairs up to the mark are what is known from before the loss, and, at the
-- mark itself, the most that can be missing. What is granted after it lies behind. An operator can lift what was charged: see forgive.lua.

local LOSS_WAITED = 60000000 -- a shortest window no longer than this is waited for after a loss, and needs no charge

local LOSS_FULL = 2 ^ 50 -- units, more than any limit allows
local LOSS_REPORTED = 1000000 -- a report of lateness comes so soon after its call was written
local LOSS_FILE = 4000000 -- an append-only file lacks what came so shortly before a crash, at most: 2 s until it is on the disk, and whose lateness was reported then

local loss_server -- what INFO says of the server, once it was asked

-- loss_run returns the run id of the Redis that runs now, as far as it can be known, since when nothing is known (nil = that isn't doubted) and why ("restored" or
-- "behind"), and what INFO says of the server. wrote is the field r of the pace.
local function loss_run(wrote)
  local server = loss_server or redis.pcall('INFO', 'server') -- nothing where INFO is not allowed, or not known
  if type(server) ~= 'string' then server = '' end
  loss_server = server
  local why, since = string.match(wrote or '', '^(%a+) (%d+)$')
  return string.match(server, 'run_id:(%w+)') or not why and wrote or nil, tonumber(since), why, server
end

-- loss_span returns in how short a time the slots lie that a Redis with another run id can have lost (µs); 0 where nobody knows. One that has
-- read its own append-only file lacks its last moments, however long it was away. One that was a replica may lack more.
local function loss_span()
  local info = ''
  for _, part in ipairs({'persistence', 'stats'}) do
    local text = redis.pcall('INFO', part)
    if type(text) == 'string' then info = info .. text end
  end
  local file, alone = string.find(info, 'aof_enabled:1', 1, true), string.find(info, 'total_net_repl_input_bytes:0\r', 1, true)
  return file and alone and LOSS_FILE or 0
end

-- loss_gap returns how much of a gap lost slots can lie in.
local function loss_gap(gap, span) return span > 0 and math.min(gap, span) or gap end

-- loss_first returns the number of the first window that is charged.
local function loss_first(R1) return R1 > LOSS_WAITED and 1 or 2 end

-- loss_most returns the most units that can have been granted in slots within gap µs, by the shortest window or by the spacing.
local function loss_most(gap, N1, R1, T, tolerance, dearest)
  if R1 <= LOSS_WAITED then return (math.floor(gap / R1) + 1) * N1 end
  return math.floor((gap + tolerance) / T) + dearest
end

-- loss_charges reads the field charges of the pace, "window mark units …": with how much a loss has charged the window of that number, at its mark.
local function loss_charges(text)
  local all = {}
  for k, mark, units in string.gmatch(text or '', '(%d+) (%d+) (%d+)') do all[#all + 1] = {tonumber(k), tonumber(mark), tonumber(units)} end
  return all
end

-- loss_text is that field for charges.
local function loss_text(charges)
  local all = ''
  for _, c in ipairs(charges) do all = all .. string.format('%.0f %.0f %.0f ', c[1], c[2], c[3]) end
  return all
end

-- loss_charged is that field with one more charge, and without those of the window whose mark is not after `gone`. What has a mark before `earliest` or after
-- `latest` is now at that one.
local function loss_charged(text, k, mark, units, gone, earliest, latest)
  local all = {}
  for _, c in ipairs(loss_charges(text)) do
    if c[1] == k then c[2] = c[2] > gone and math.min(math.max(c[2], earliest), latest) end
    if c[2] then all[#all + 1] = c end
  end
  all[#all + 1] = {k, mark, units}
  return loss_text(all)
end

-- loss_take takes the pairs up to the mark off the list, and returns their units.
local function loss_take(list, mark)
  local units = 0
  repeat
    local v, n = redis.call('LRANGE', list, 0, POOL_CHUNK - 1), 0
    while n < #v and tonumber(v[n + 1]) <= mark do
      units = units + tonumber(v[n + 2])
      n = n + 2
    end
    if n > 0 then redis.call('LPOP', list, n) end
  until n < POOL_CHUNK
  return units
end
