-- share.lua: how the room at admission is shared if a gateway has lanes, routes with limits, or classes. A fragment behind books.lua and an admission check.
-- A flow is the jobs of one class, route and lane, each empty for the usual one: CLASS:ROUTE:LANE. It may have as many jobs in the queue as there is room left, so that no
-- flow uses up the room. Newcomers wait only behind parked jobs of their own flow. books.lua keeps the parked jobs of each flow.
--      entering:CLASS  hash  how many tasks of a flow, ROUTE:LANE, are in that class's line of the queue, where pick.lua has not sorted them into lanes yet; void while
--                            that line is empty
local SHARE_STAY = 86400000 -- ms that entering is kept
local SHARE_LINES = 'due pending retries replays'
local share -- set by share_open; nil: the gateway has no flows

-- share_open begins. spec is '' (or nil: no flows) or, separated by blanks: l (tasks are in the lines of lanes) or c (in those of classes), how many jobs of a passing flow
-- may wait, and the classes that pass.
local function share_open(spec, record, pending)
  local form, most, passing = string.match(spec or '', '^(%l) ?(%d*)(.*)$')
  if form then share = {laned = form == 'l', most = tonumber(most) or 0, passing = passing .. ' ', record = record, pending = pending, flows = {}, counts = {}, doors = {}} end
  return share
end

local function share_line(class) return class == '' and share.pending or books_key(share.record, 'first:' .. class) end

-- share_door returns how many tasks are in a class's line of the queue.
local function share_door(class)
  local n = share.doors[class]
  if not n then
    n = redis.call('LLEN', share_line(class))
    share.doors[class] = n
  end
  return n
end

-- share_queued returns how many jobs of a flow are in the queue, in a table of all flows that share this number.
local function share_queued(class, route, lane)
  if not share.laned then
    share.counts[class] = share.counts[class] or {jobs = share_door(class) + (class == '' and redis.call('LLEN', books_key(share.record, string.match(SHARE_LINES, '%l+'))) or 0)}
    return share.counts[class]
  end
  local lines, n = {}, 0
  for line in string.gmatch(SHARE_LINES, '%l+') do
    lines[#lines + 1] = books_key(share.record, 'flow:' .. class .. ':' .. route .. ':' .. line .. ':' .. lane)
  end
  if redis.call('EXISTS', unpack(lines)) > 0 then
    for _, line in ipairs(lines) do n = n + redis.call('LLEN', line) end
  end
  local door = share_door(class)
  if door > 0 then n = n + math.min(tonumber(redis.call('HGET', books_key(share.record, 'entering:' .. class), route .. ':' .. lane) or '') or 0, door) end
  return {jobs = n}
end

-- share_flow returns what is known of a flow.
local function share_flow(class, route, lane)
  local name = class .. ':' .. route .. ':' .. lane
  local f = share.flows[name]
  if f then return f end
  f = {name = name, class = class, at = route .. ':' .. lane, set = shelf_flow_set(share.record, name), queued = share_queued(class, route, lane), entered = 0}
  f.passes = class ~= '' and string.find(share.passing, ' ' .. class .. ' ', 1, true) ~= nil
  share.flows[name] = f
  return f
end

-- share_room returns how many units the limit with the least room has left.
local function share_room(b)
  local room = math.huge
  for i = 1, b.count do room = math.min(room, math.floor((b.cap[i] - b.u[i]) / b.c[i])) end
  return math.max(room, 0)
end

-- share_take takes room for a job of a flow, and reports whether there was some. Once there is none, the flow is shut, so that later jobs don't overtake. The second
-- result says that the flow has room, but not as much as the job costs.
local function share_take(f, b, cost)
  if f.shut then return false end
  local may = f.queued.jobs + 1 <= share_room(b)
  if may and bucket_take(b, cost) or f.passes and f.queued.jobs < share.most then return true end
  f.shut = true
  return false, may
end

-- share_retry returns when there is room for a job of a flow at the latest, if no other job comes in between.
local function share_retry(f, b, cost)
  local most = math.huge
  for i = 1, b.count do most = math.min(most, math.floor(b.cap[i] / b.c[i])) end
  return bucket_retry(b, math.max(cost, math.min(f.queued.jobs + 1, most)))
end

-- share_enter records that a job of a flow goes into a line of the queue; door means that it is that of its class.
local function share_enter(f, door)
  f.queued.jobs = f.queued.jobs + 1
  if door then f.entered = f.entered + 1 end
end

-- share_left returns how much the flow may have of what the limits have left.
local function share_left(f, b, left)
  local n = math.floor((share_room(b) - f.queued.jobs + 1) / 2)
  if f.passes then n = math.max(n, share.most - f.queued.jobs) end
  if f.shut or f.behind then n = 0 end
  for k = 1, #left do left[k] = math.max(math.min(left[k], n), 0) end
  return left
end

-- share_shelve notes that a job of a flow was parked as rejected, at this moment (µs). share_shelved writes all that were noted.
local function share_shelve(f, when, id)
  local members = f.parked or {}
  f.parked = members
  members[#members + 1], members[#members + 2] = when, id
end

local function share_shelved(now)
  local n = 0
  for _, f in pairs(share.flows) do
    if f.parked then
      n = n + redis.call('ZADD', f.set, unpack(f.parked))
      redis.call('ZADD', books_key(share.record, 'parked:flows'), 'NX', shelf_turn(f.queued.jobs, f.passes, now), f.name)
    end
  end
  redis.call('HINCRBY', shelf_key(share.record, 'counters'), 'flowed', n)
end

-- share_close writes what has entered.
local function share_close()
  local fields = {}
  for _, f in pairs(share.laned and share.flows or {}) do
    if f.entered > 0 then
      fields[f.class] = fields[f.class] or {}
      table.insert(fields[f.class], f.at)
      table.insert(fields[f.class], int(f.entered))
    end
  end
  for class, of in pairs(fields) do
    local key = books_key(share.record, 'entering:' .. class)
    if share_door(class) == 0 then
      redis.call('DEL', key)
      for i = 1, #of, 1000 do redis.call('HSET', key, unpack(of, i, math.min(i + 999, #of))) end
    else
      for i = 1, #of, 2 do redis.call('HINCRBY', key, of[i], of[i + 1]) end
    end
    redis.call('PEXPIRE', key, SHARE_STAY)
  end
end
