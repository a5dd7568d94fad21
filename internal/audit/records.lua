-- records.lua reads whether jobs are where their records say, and nowhere else.
-- KEYS 1 pending  2 active  3 scheduled  4 retrying  5 open  6 retries  7 replays  8 due  9 asking, then parked:<reason> of every reason, then the lines of classes
-- ARGV 1 prefix of records  2 prefix of tasks  3 "1": look for tasks in the queue's lines too, in time that grows with their length
--      4 number of reasons, then the reasons in the order of their keys, then ids
-- returns for each id four: state ('' = no record), generation, what is wrong ('' = nothing seen), where;
--      of a queued job whose task says that it is pending, where is since when (ns), unless the lines were looked through
local reasons, ids_at = tonumber(ARGV[4]), 5 + tonumber(ARGV[4])
local home = {scheduled = 'scheduled', retrying = 'retrying', in_flight = 'open', pending = 'asking'}
local known = {queued = true, parked = true, done = true, discarded = true, scheduled = true, retrying = true, in_flight = true, pending = true}

local sets = {}
local function add_set(key, name)
  if redis.call('EXISTS', key) == 1 then sets[#sets + 1] = {key = key, name = name} end
end
add_set(KEYS[3], 'scheduled')
add_set(KEYS[4], 'retrying')
add_set(KEYS[5], 'open')
add_set(KEYS[9], 'asking')
for i = 1, reasons do add_set(KEYS[9 + i], 'parked:' .. ARGV[4 + i]) end

-- flowed means that parked jobs are in the parts of their flows (books.lua), and whole that all of them are.
local prefix = string.match(ARGV[1], '^.*}:')
local flowed = redis.call('HGET', prefix .. 'counters', 'flowed')
local whole = flowed and tonumber(flowed) == redis.call('ZCARD', prefix .. 'parked:rejected')

-- turn_of returns what is wrong with the turn of a job among those that wait for room, or nil.
local function turn_of(id, rejected)
  local class, route, lane = flow_of(ARGV[1] .. id)
  local stands = redis.call('ZSCORE', prefix .. 'parked:rejected:f:' .. class .. ':' .. route .. ':' .. lane, id)
  if rejected and whole and not stands and not redis.call('ZSCORE', prefix .. 'parked:rejected:unfit', id) then return 'not_there' end
  if stands and not rejected then return 'there_too' end
end

-- called reports whether a lane is where it is called from, for a task in one of its lists.
local looked_at = ' ' .. (redis.call('HGET', prefix .. 'lanes', 'on') or '') .. ' '
local function called(line)
  local class, route, name, lane = string.match(line, '}:flow:([^:]*):([^:]*):(%l+):(.*)$')
  local flow, has = class .. ':' .. route, false
  local read, v = pcall(cmsgpack.unpack, redis.pcall('GET', prefix .. 'lane:' .. lane) or '\192')
  if not read or type(v) ~= 'table' then v = {} end
  for i = 4, #v - 2, 3 do has = has or v[i] == flow and bit.band(v[i + 2], ({due = 1, pending = 2, retries = 4, replays = 8})[name]) > 0 end
  return has and (redis.call('ZSCORE', prefix .. 'throttled', lane) or string.find(looked_at, ' ' .. flow .. ' ', 1, true) and redis.call('ZSCORE', prefix .. 'ready:' .. flow, lane))
end

local function task_of(task_id)
  local t = redis.call('HMGET', ARGV[2] .. task_id, 'state', 'msg', 'pending_since')
  local state, listed = t[1], nil
  if state == 'active' then
    listed = redis.call('LPOS', KEYS[2], task_id)
  elseif state and state ~= 'pending' then
    return 'asynq_set', state
  elseif ARGV[3] == '1' then
    for _, line in ipairs({KEYS[8], KEYS[1], KEYS[6], KEYS[7], unpack(KEYS, 10 + reasons)}) do listed = listed or redis.call('LPOS', line, task_id) end
    for _, line in ipairs(listed and {} or flow_lines(ARGV[1], task_id)) do
      local at = not listed and redis.call('LPOS', line, task_id)
      if at and not called(line) then return 'no_lane', 'pending' end
      listed = listed or at
    end
  else
    listed = state
  end
  if not listed then return 'no_task', '' end
  if not t[2] then return 'no_message', state or 'pending' end
  if state == 'pending' and ARGV[3] ~= '1' then return '', t[3] or '0' end
  return '', ''
end

local function look(id)
  local record = ARGV[1] .. id
  local v = redis.pcall('HMGET', record, '@state', '@generation', '@reason')
  if v.err then return '?', '', 'no_state', '' end
  local state, generation = v[1], v[2] or ''
  if not state and redis.call('EXISTS', record) == 0 then return '', '', '', '' end
  if not known[state] or not string.match(generation, '^%d+$') then return state or '?', generation, 'no_state', '' end

  local should, stands, other = home[state] or (state == 'parked' and 'parked:' .. (v[3] or '')), false, nil
  for _, set in ipairs(sets) do
    if redis.call('ZSCORE', set.key, id) then
      if set.name == should then stands = true else other = set.name end
    end
  end
  if should and not stands then return state, generation, 'not_there', should end
  if other then return state, generation, 'there_too', other end
  local turn = flowed and turn_of(id, should == 'parked:rejected')
  if turn then return state, generation, turn, 'parked:flows' end
  if state == 'done' or state == 'discarded' then return state, generation, '', '' end
  if redis.call('PTTL', record) >= 0 then return state, generation, 'expires', '' end
  if state ~= 'queued' then return state, generation, '', '' end
  return state, generation, task_of(id .. '~' .. generation)
end

local found = {}
for i = ids_at, #ARGV do
  local at = #found
  found[at + 1], found[at + 2], found[at + 3], found[at + 4] = look(ARGV[i])
end
return found
