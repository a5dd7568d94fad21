-- lanes.lua: a fragment behind permits.lua, for the lanes of a gateway. A flow is the jobs of one lane, of one class and on one route. It has four lines, like the queue of a gateway
-- without lanes. Flows are named CLASS:ROUTE; either part is empty for the usual one.
--
-- Keys, whose names have the same prefix as the pace; all times in µs:
--      lanes            hash  what is known of all lanes: G (units bound so far)  V<class> (its virtual time)  D<class> (the G by which it must be served)
--                             O<flow> (how far the tags of a set lie behind those of the class)  B<route> (it has no permit before)  on (flows whose sets may have members)
--                             shut ("moment flow flow …": the routes of these flows have no permit before that moment, so no pick looks at them. It holds if on ends with the same flows)
--                             tasks (in the lanes' lines)  n<flow> (those of a flow)  busy (lanes with tasks)  H<route> (until when its hold may say something, see scopes.lua)
--                             lm lu ls (writes that Redis has lost: their mark, units, since when)  bound (when a job was last bound)
--                             moved (by how much Redis's clock was set back in all)  oe ov (since when, and how often, something was set live for lanes or routes)
--      ready:FLOW       zset  lanes that may be called: their tags, less O
--      throttled        zset  lanes with tasks that may not be called before a moment
--      flow:FLOW:LINE:LANE  list  tasks, the next one at the right end; the lines are those of redisdb.Keys.Lines
--      lane:LANE        text  packed: {throttled until, "=CLASS" if only for dearer jobs of that class ('' = for all), logs, flow, tag, lines with tasks, flow, …}, and after
--                             the flows, if the lane was held lately, until when the hold may say something (scopes.lua)
--      route:ROUTE      text  packed: logs
--      overrides        hash  lane:LANE, route:ROUTE → what was set for it live: limits|weight|paused|calls in flight, each empty if it was not set (limits as permits.own reads them)
-- A lane with tasks is either in throttled, or in the sets of all its flows with tasks. Edges and moments in these keys go on when Redis's clock is set back.

local LANES_KEPT = 60000000 -- a lane's record outlives its use by this: without its tags the lane would count as new
local LANES_NEW = 1 / 1024 -- a new lane goes before others of equal tags
local LANES_BACK = 2000000 -- a clock that went back by no more than this stands still instead, as in reserve.lua
local LANES_SAVE = 1000 -- names and records in one command: Lua passes at most 8,000, and a pick may wake more lanes
local LANES_LINES = {[1] = 'due', [2] = 'pending', [4] = 'retries', [8] = 'replays'}
local LANES_FRESH, LANES_CALLED, LANES_ALL, LANES_TURN = 3, 12, 15, 16 -- LANES_TURN: the flow's last call was that of a job called before

local lanes = {}
local L -- set by lanes.open

-- lanes.unknown reads a field that was not asked for with the others.
function lanes.unknown(state, name)
  local v = redis.call('HGET', L.prefix .. 'lanes', name)
  state[name] = v
  return v
end

-- lanes.read reads fields, by one command.
function lanes.read(names)
  for i, v in ipairs(redis.call('HMGET', L.prefix .. 'lanes', unpack(names))) do L.state[names[i]] = v end
end

-- lanes.state returns a field as a number. It converts when asked: with many routes there are many fields, and most are not used.
function lanes.state(name)
  local v = L.state[name]
  if type(v) == 'string' then
    v = tonumber(v) or v
    L.state[name] = v
  end
  return v or 0
end

function lanes.set(name, value)
  if lanes.state(name) ~= value then L.state[name], L.changed[name] = value, true end
end

-- lanes.open reads what is known of all lanes. pace is the key whose prefix they share, weight is that of a lane, limits are those of a lane, if known, and
-- own says, as JSON, how a process computes the limits that a lane has of its own (see permits.own). none means that nothing was set live.
function lanes.open(pace, weight, limits, own, none)
  local prefix = string.match(pace, '^spillway:{[^}]*}:')
  L = {prefix = prefix, weight = weight, limits = limits, own = own, overridden = not none and redis.call('EXISTS', prefix .. 'overrides') == 1, paused = {}, moved = 0, lost = nil,
    state = {}, changed = {}, on = {}, rest = '', again = math.huge, turned = false, records = {}, dirty = {}, touched = {}, routes = {}, used = {}, classes = {}, names = {}} -- all fields at once: a table that grows costs time
  lanes.read({'on', 'shut', 'moved', 'lu', 'tasks', 'bound', 'busy', 'G', 'V', 'O:', 'n:', 'B', 'H'})
  setmetatable(L.state, {__index = lanes.unknown})
  local on, again, rest = L.state.on or '', string.match(L.state.shut or '', '^(%d+) (.+)$')
  if rest and string.sub(' ' .. on, -#rest - 1) == ' ' .. rest then L.rest, L.again, on = rest, tonumber(again), string.sub(on, 1, -#rest - 1) end
  lanes.look_at(on)
  L.moved = lanes.state('moved')
  L.lost = lanes.state('lu') > 0 and {mark = lanes.state('lm'), units = lanes.state('lu'), since = lanes.state('ls')} or nil
end

-- lanes.look_at makes flows be looked at.
function lanes.look_at(flows)
  for flow, class, route in string.gmatch(flows, '(([^:%s]*):(%S*))') do L.on[flow], L.classes[flow], L.names[flow] = true, class, route end
end

-- lanes.read_ahead reads what is known of the flows that are looked at, by one command.
function lanes.read_ahead()
  local fields = {}
  for flow in pairs(L.on) do
    local class, route = lanes.class(flow), lanes.route(flow)
    for _, name in ipairs(flow ~= ':' and {'O' .. flow, 'B' .. route, 'H' .. route, 'V' .. class} or {}) do
      if rawget(L.state, name) == nil then fields[#fields + 1] = name end
    end
  end
  if #fields > 0 then lanes.read(fields) end
end

-- lanes.rest has flows not looked at before a moment, because their routes have no permit, and lanes.unrest ends that for all of them.
function lanes.rest(flows, till)
  for _, flow in ipairs(flows) do
    if L.on[flow] then L.on[flow], L.rest = nil, L.rest .. flow .. ' ' end
  end
  L.again, L.turned = math.min(L.again, till), true
  lanes.set('shut', int(L.again) .. ' ' .. L.rest)
end
function lanes.unrest()
  lanes.look_at(L.rest)
  L.rest, L.again = '', math.huge
  lanes.set('shut', '')
end

-- lanes.reopen has a route looked at again, because it may have a permit sooner.
function lanes.reopen(route)
  lanes.set('B' .. route, 0)
  if L.rest ~= '' then lanes.set('shut', '') end
end

-- lanes.count adds to the number of tasks in the lines of a flow; by may be negative.
function lanes.count(flow, by)
  lanes.set('tasks', lanes.state('tasks') + by)
  lanes.set('n' .. flow, math.max(lanes.state('n' .. flow) + by, 0))
end

function lanes.class(flow)
  local class = L.classes[flow]
  if not class then
    class = string.match(flow, '^[^:]*')
    L.classes[flow] = class
  end
  return class
end
function lanes.route(flow)
  local route = L.names[flow]
  if not route then
    route = string.match(flow, '[^:]*$')
    L.names[flow] = route
  end
  return route
end
function lanes.line(flow, line, lane) return L.prefix .. 'flow:' .. flow .. ':' .. LANES_LINES[line] .. ':' .. lane end

-- lanes.override returns what was set live for a lane or a route: its limits, its weight, whether it is paused, and how many calls of it may be in flight. A value that
-- can't be read counts as paused, since it may have been a pause.
function lanes.override(of)
  local text = L.overridden and redis.call('HGET', L.prefix .. 'overrides', of)
  if not text then return '', nil, false end
  local limits, weight, paused, most = string.match(text, '^([^|]*)|([^|]*)|([^|]*)|?(%d*)$')
  return limits or '', tonumber(weight), paused == '1' or not limits, tonumber(most)
end

-- lanes.paused reports whether a route is paused.
function lanes.paused(route)
  if L.paused[route] == nil then
    local _, _, paused = lanes.override('route:' .. route)
    L.paused[route] = paused
  end
  return L.paused[route]
end

-- lanes.may fills in what a lane may have: its limits; kept, the limits that its logs are kept for (those of all lanes hold again when its own are reset); its weight; whether it is paused; and most (calls in flight, nil = as for all lanes).
-- If the file has no lanes any more, what was set for a lane is ignored, because it could not be taken back.
function lanes.may(lane, r)
  local limits, weight, paused, most = '', nil, false, nil
  if L.own or not L.limits then limits, weight, paused, most = lanes.override('lane:' .. lane) end
  r.limits, r.kept, r.weight, r.paused, r.most = L.limits, L.limits, weight or L.weight, paused, most
  if L.limits and limits ~= '' then
    if type(L.own) == 'string' then L.own = cjson.decode(L.own) end
    r.limits = permits.own(limits, L.own)
    r.kept = permits.both(r.limits, L.limits)
  end
end

-- lanes.found looks for a lane's tasks when its record does not say what it has. Which flows have tasks, in any lane, is known.
function lanes.found(lane, r)
  local names = {}
  for name in pairs(L.changed) do names[name] = true end
  for _, name in ipairs(redis.call('HKEYS', L.prefix .. 'lanes')) do names[name] = true end
  for name in pairs(names) do
    local flow, lines = string.match(name, '^n([^:]*:.*)$'), 0
    for line in pairs(flow and LANES_LINES or {}) do lines = lines + redis.call('EXISTS', lanes.line(flow, line, lane)) * line end
    if lines > 0 then r.work[flow], r.tag[flow] = bit.bor(r.work[flow] or 0, lines), r.tag[flow] or lanes.time(flow) end
  end
  r.busy, L.dirty[lane] = next(r.work) ~= nil, true
end

-- lanes.anew fills in a record that something else has overwritten. Nobody knows what the lane has used, so it counts as having just used up its limits.
function lanes.anew(lane, r)
  local bound = lanes.state('bound')
  r.x, r.logs = tonumber(redis.call('ZSCORE', L.prefix .. 'throttled', lane)) or 0, {{0, bound + 2000000, 2 ^ 50}} -- no call is later than this (µs), and no limit allows more units
  r.held = bound + math.max(redis.call('PTTL', L.prefix .. 'hold:l:' .. lane), 0) * 1000
  lanes.found(lane, r)
  if r.x == 0 then lanes.wake(lane, r) end
end

-- lanes.record returns what is known of a lane.
function lanes.record(lane)
  local r = L.records[lane]
  if r then return r end
  r = {lane = lane, x = 0, dear = '', logs = {}, tag = {}, work = {}, held = 0, busy = false, limits = nil, kept = nil, weight = nil, paused = false, most = nil}
  local packed = redis.pcall('GET', L.prefix .. 'lane:' .. lane)
  local read, v = pcall(cmsgpack.unpack, packed or '\192')
  if packed and not (read and type(v) == 'table' and type(v[1]) == 'number' and type(v[3]) == 'table') then
    lanes.anew(lane, r)
  elseif packed then
    r.x, r.dear, r.logs = v[1], v[2], v[3]
    if #v % 3 == 1 then r.held = v[#v] end
    for i = 4, #v - 2, 3 do
      r.tag[v[i]] = v[i + 1]
      if v[i + 2] > 0 then r.work[v[i]], r.busy = v[i + 2], true end
    end
  end
  lanes.may(lane, r)
  L.records[lane] = r
  return r
end

function lanes.logs_of(route)
  if not L.routes[route] then
    local packed = redis.call('GET', L.prefix .. 'route:' .. route)
    L.routes[route] = packed and cmsgpack.unpack(packed) or {}
  end
  return L.routes[route]
end

-- lanes.packed returns the value of a lane's record.
function lanes.packed(r)
  local v = {r.x, r.dear, r.logs}
  for flow, tag in pairs(r.tag) do v[#v + 1], v[#v + 2], v[#v + 3] = flow, tag, r.work[flow] or 0 end
  if r.held > 0 then v[#v + 1] = r.held end
  return cmsgpack.pack(v)
end

-- lanes.stay returns how long logs, or a hold until held, matter (ms).
function lanes.stay(logs, longest, now, held)
  local till = math.max(now + LANES_KEPT, held)
  for _, log in ipairs(logs) do
    if #log > 1 then till = math.max(till, log[#log - 1] + longest + LANES_KEPT) end
  end
  return int(math.ceil((till - now) / 1000))
end

-- lanes.save writes what has changed. now is on the clock that is never set back. It is nil if the caller does not know how long records must stay: then their time to live does not change.
function lanes.save(now, route_limits)
  local all = {}
  for lane in pairs(L.dirty) do
    local r = L.records[lane]
    local busy = next(r.work) ~= nil
    if busy ~= r.busy then lanes.set('busy', math.max(lanes.state('busy') + (busy and 1 or -1), 0)) end
    if now and r.held <= now then r.held = 0 end
    local key, packed = L.prefix .. 'lane:' .. lane, lanes.packed(r)
    if busy then
      all[#all + 1], all[#all + 2] = key, packed
    elseif now then
      redis.call('SET', key, packed, 'PX', lanes.stay(r.logs, r.kept.longest, now, r.held))
    else
      redis.call('SET', key, packed, 'KEEPTTL', 'XX') -- a record that is gone has no meaning any more
    end
  end
  for i = 1, #all, LANES_SAVE do redis.call('MSET', unpack(all, i, math.min(i + LANES_SAVE - 1, #all))) end
  for route in pairs(L.used) do
    local key, packed = L.prefix .. 'route:' .. route, cmsgpack.pack(L.routes[route])
    if now then
      redis.call('SET', key, packed, 'PX', lanes.stay(L.routes[route], route_limits[route].longest, now, 0))
    else
      redis.call('SET', key, packed, 'KEEPTTL', 'XX') -- a record that is gone has no meaning any more
    end
  end
  if L.turned then
    local on = ''
    for flow in pairs(L.on) do on = on .. flow .. ' ' end
    lanes.set('on', on .. L.rest)
  end
  local set = {}
  for name in pairs(L.changed) do
    set[#set + 1], set[#set + 2] = name, L.state[name] -- Redis formats numbers without loss
  end
  if #set > 0 then redis.call('HSET', L.prefix .. 'lanes', unpack(set)) end
end

-- lanes.put adds a flow of a lane to its set, and lanes.drop removes it.
function lanes.put(lane, r, flow)
  if not L.on[flow] and not string.find(' ' .. L.rest, ' ' .. flow .. ' ', 1, true) then L.on[flow], L.turned = true, true end
  redis.call('ZADD', L.prefix .. 'ready:' .. flow, r.tag[flow], lane)
  L.touched[flow] = true
end
function lanes.drop(lane, flow)
  redis.call('ZREM', L.prefix .. 'ready:' .. flow, lane)
  L.touched[flow] = true
end

-- lanes.time returns the virtual time of a set in its own tags: that of its class, or the least tag in the set, if that is less because the route was shut. A lane that comes in
-- has saved nothing up, and does not wait behind lanes whose set stood still.
function lanes.time(flow)
  local least, v = lanes.state('V' .. lanes.class(flow)) - lanes.state('O' .. flow), redis.call('ZRANGE', L.prefix .. 'ready:' .. flow, 0, 0, 'WITHSCORES')
  return v[2] and tonumber(v[2]) < least - 2 * LANES_NEW and tonumber(v[2]) or least -- newcomers come a little before the time
end

-- lanes.tag returns the tag of a lane's flow in its class.
function lanes.tag(r, flow) return (r.tag[flow] or -math.huge) + lanes.state('O' .. flow) end

-- lanes.in_turn sorts flows of a lane: the one that has waited longest comes first.
function lanes.in_turn(r, flows)
  if #flows < 2 then return end
  table.sort(flows, function(a, b)
    local x, y = lanes.tag(r, a), lanes.tag(r, b)
    return x < y or x == y and a < b
  end)
end

-- lanes.apart returns the distance between the tags of two flows of a lane that are called in turn: more than the rounding of a tag.
function lanes.apart(r, tag) return math.max(2 ^ -17 / r.weight, math.abs(tag) / 2 ^ 50) end

-- lanes.slack returns how much the tags of flows may differ whose turn is at the same time.
function lanes.slack(r) return 4 * LANES_NEW * math.max(1, 1 / r.weight) end

-- lanes.wake lets a lane be called, as far as is known. lanes.throttle makes it wait until x, on the clock that is never set back. Flows of a lane that come back at the same
-- time keep their turns.
function lanes.wake(lane, r)
  r.x, r.dear = 0, ''
  L.dirty[lane] = true
  local flows, last = {}, {}
  for flow in pairs(r.work) do flows[#flows + 1] = flow end
  lanes.in_turn(r, flows)
  for _, flow in ipairs(flows) do
    local class, O, time = lanes.class(flow), lanes.state('O' .. flow), lanes.time(flow)
    local tag = math.max(r.tag[flow] or -math.huge, time) + O
    if last[class] and tag <= last[class] and time + O >= lanes.state('V' .. class) - 2 * LANES_NEW then tag = last[class] + lanes.apart(r, tag) end
    last[class], r.tag[flow] = math.max(last[class] or tag, tag), tag - O
    lanes.put(lane, r, flow)
  end
end
function lanes.throttle(lane, r, x, dear)
  r.x, r.dear = x, dear
  L.dirty[lane] = true
  for flow in pairs(r.work) do lanes.drop(lane, flow) end
  if next(r.work) then redis.call('ZADD', L.prefix .. 'throttled', int(x), lane) end
end

-- lanes.look makes a lane be looked at again after something about it has changed.
function lanes.look(lane, r)
  if r.x > 0 then redis.call('ZREM', L.prefix .. 'throttled', lane) end
  lanes.wake(lane, r)
end

-- lanes.behind returns the tag of a flow that has tasks again: behind the other flows of its lane and class whose turn is at the same time. It returns nil if there is none, or if its
-- set stood still.
function lanes.behind(r, flow, least)
  local class, O, tags = lanes.class(flow), lanes.state('O' .. flow), {}
  for other in pairs(r.work) do
    if other ~= flow and lanes.class(other) == class then tags[#tags + 1] = lanes.tag(r, other) end
  end
  if #tags == 0 or least + O < lanes.state('V' .. class) - 2 * LANES_NEW then return nil end
  table.sort(tags)
  local tag = math.max(least + O, tags[1])
  for _, other in ipairs(tags) do
    if other <= tag + lanes.slack(r) then tag = math.max(tag, other + lanes.apart(r, tag)) end
  end
  return tag - O
end

-- lanes.work records that a flow of a lane now has tasks in a line. rank returns a lower number for a higher class.
function lanes.work(lane, r, flow, line, now, rank)
  local had, idle = r.work[flow], next(r.work) == nil
  r.work[flow] = bit.bor(had or 0, line)
  if had then
    if r.work[flow] ~= had then L.dirty[lane] = true end
    return
  end
  L.dirty[lane] = true
  local least, tag = lanes.time(flow), r.tag[flow]
  if not tag or tag < least then tag = least - LANES_NEW / math.max(1, r.weight) end
  r.tag[flow] = idle and tag or math.max(tag, lanes.behind(r, flow, least) or tag)
  local waits = r.x > now and (r.dear == '' or rank(lanes.class(flow)) >= rank(string.sub(r.dear, 2)))
  if not waits then
    if r.x > 0 then return lanes.look(lane, r) end -- it waits for a dearer job of a lower class, or its time has come
    return lanes.put(lane, r, flow)
  end
  if idle then redis.call('ZADD', L.prefix .. 'throttled', int(r.x), lane) end
end
