-- loss.lua: a fragment behind pool.lua. It works out what may be missing from the windows' lists after Redis lost writes.
--
-- A loss has a mark: no call from before the loss was written later than the mark. The pairs of a list up to the mark are what is known from before the loss. The pair at
-- the mark itself is the most that can be missing. What was granted after the loss comes behind it. An operator can lift the charge: see forgive.lua.

local LOSS_WAITED = 60000000 -- a shortest window of up to this length is waited for after a loss, and is not charged

local LOSS_FULL = 2 ^ 50 -- units, more than any limit allows
local LOSS_REPORTED = 1000000 -- a report of lateness comes within this time after its call was written
local LOSS_FILE = 4000000 -- the most that an append-only file can lack after a crash: it reaches the disk within 2 s, and the lateness of a call that is in it is reported within 2 s more

local loss_server -- what INFO says of the server, if it was asked

-- loss_run returns the run id of the Redis that runs now, if it can be known; the moment since when nothing is known (nil = there is no such doubt) and why ("restored" or
-- "behind"); and what INFO says of the server. wrote is the field r of the pace.
local function loss_run(wrote)
  local server = loss_server or redis.pcall('INFO', 'server') -- empty if INFO is not allowed or not known
  if type(server) ~= 'string' then server = '' end
  loss_server = server
  local why, since = string.match(wrote or '', '^(%a+) (%d+)$')
  return string.match(server, 'run_id:(%w+)') or not why and wrote or nil, tonumber(since), why, server
end

-- loss_span returns how short the time is in which the slots lie that a Redis with another run id can have lost (µs), or 0 if that is unknown. A Redis that has
-- read its own append-only file lacks its last moments only, however long it was away. One that was a replica may lack more.
local function loss_span()
  local info = ''
  for _, part in ipairs({'persistence', 'stats'}) do
    local text = redis.pcall('INFO', part)
    if type(text) == 'string' then info = info .. text end
  end
  local file, alone = string.find(info, 'aof_enabled:1', 1, true), string.find(info, 'total_net_repl_input_bytes:0\r', 1, true)
  return file and alone and LOSS_FILE or 0
end

-- loss_gap returns the part of a gap that lost slots can lie in.
local function loss_gap(gap, span) return span > 0 and math.min(gap, span) or gap end

-- loss_first returns the number of the first window that is charged.
local function loss_first(R1) return R1 > LOSS_WAITED and 1 or 2 end

-- loss_most returns the most units that can have been granted in slots within gap µs, by the shortest window or by the spacing.
local function loss_most(gap, N1, R1, T, tolerance, dearest)
  if R1 <= LOSS_WAITED then return (math.floor(gap / R1) + 1) * N1 end
  return math.floor((gap + tolerance) / T) + dearest
end

-- loss_charges parses the field charges of the pace, "window mark units …": how much a loss has charged the window of that number, at its mark.
local function loss_charges(text)
  local all = {}
  for k, mark, units in string.gmatch(text or '', '(%d+) (%d+) (%d+)') do all[#all + 1] = {tonumber(k), tonumber(mark), tonumber(units)} end
  return all
end

-- loss_text formats charges for that field.
local function loss_text(charges)
  local all = ''
  for _, c in ipairs(charges) do all = all .. string.format('%.0f %.0f %.0f ', c[1], c[2], c[3]) end
  return all
end

-- loss_charged returns that field with one more charge. Charges of this window whose mark is not after `gone` are left out. Marks before `earliest` or after
-- `latest` are moved to that moment.
local function loss_charged(text, k, mark, units, gone, earliest, latest)
  local all = {}
  for _, c in ipairs(loss_charges(text)) do
    if c[1] == k then c[2] = c[2] > gone and math.min(math.max(c[2], earliest), latest) end
    if c[2] then all[#all + 1] = c end
  end
  all[#all + 1] = {k, mark, units}
  return loss_text(all)
end

-- loss_take removes the pairs up to the mark from the list, and returns their units.
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
