-- pick.lua: the next slots of a gateway with lanes, each with the job that is called at it. It continues where reserve.lua ends, so account, route and lane give their permits for
-- the same moment in one step. picked.lua continues where it ends. Fragments: permits.lua, lanes.lua, scopes.lua, sorted.lua and beside.lua.
-- KEYS and ARGV as in reserve.lua, and those of beside.lua
-- returns what reserve.lua returns, and for each slot also: task, its message, class, route, lane, line, marks (scopes.lua). There is one more state:
--      waiting  no waiting job may be called yet: its route or lane has no permit or no place, or is held
begin()
local slots, hint, state, bound, taken = {}, 0, 'horizon', {}, nil -- of each slot: when, cost, marks

-- pick fills slots and bound, or returns a reply without slots.
local function pick()
  local PROMOTE, MISSES, ROUNDS = 8, 64, 128 -- how many lanes come back at a time, and the bounds on the work of one script: the rest is left to the next one
  local REST_FLOWS, REST_LEAST = 4, 100000 -- so many flows, whose routes have no permit for so long (µs), are not looked at until then
  local ROUTE_AGAIN, LANE_AGAIN = 10000000, 300000000 -- what has no permit is looked at again after this time at the latest, because its limit may have been raised (µs)
  local base, reach, at, sum = math.max(now + lead, quiet), now + beside.reach, {}, {}

  -- account returns when the account has room, not before a given moment.
  local function account(cost, slot)
    for k = 1, K do slot, at[k], sum[k] = ready(k, cost, slot) end
    return slot
  end

  -- What is rarely there is asked for together: a pause, costs, what was set live, flows with parked jobs, tasks at the doors. If none of it is there, that takes one command.
  local prefix, paused, rare = string.match(KEYS[1], '^spillway:{[^}]*}:'), string.gsub(KEYS[4], 'pending$', 'paused'), true
  if asked == 0 then
    rare = call('EXISTS', paused, KEYS[5], prefix .. 'overrides', prefix .. 'parked:flows', KEYS[4], KEYS[7], KEYS[8], KEYS[9], unpack(KEYS, 10 + K + KEPT_MOST)) > 0
    if rare and call('EXISTS', paused) == 1 then return answer('paused', PAUSED_HINT) end
  end
  local doors, names
  if asked == 0 and rare then doors, names = sorted_doors(10 + K + KEPT_MOST) end
  local waiting = names and call('EXISTS', unpack(names)) > 0
  local first = account(asked > 0 and asked or 1, math.max(base, last, tat - tolerance))
  if first == math.huge then return amnesia() end
  if first > reach and not waiting then return answer('horizon', first - reach) end

  lanes.open(KEYS[1], beside.weight, permits.limits(beside.lane), beside.own, not rare)
  call('HSETNX', L.prefix .. 'lanes', 'tasks', '0') -- a full Redis must refuse the whole script, and it lets a script that has begun to write continue
  if lanes.state('bound') - now - L.moved > LANES_BACK then
    L.moved = lanes.state('bound') - now
    lanes.set('moved', L.moved)
  end
  local routes, ranks, order, every, priced = beside_routes(), {}, {}, {}, rare and call('EXISTS', KEYS[5]) == 1
  for i, class in ipairs(beside.classes) do order[i], every[class[1]] = class[1], class[2] end
  local usual_place
  for i, class in ipairs(order) do
    ranks[class] = i
    if class == '' then usual_place = i end
  end
  -- look_ahead reads what is known of the flows that are looked at. Jobs of a class that no longer exists go behind the usual ones.
  local function look_ahead()
    lanes.read_ahead()
    for flow in pairs(L.on) do
      local class = lanes.class(flow)
      if not ranks[class] then
        ranks[class], every[class] = usual_place + 0.5, 0
        table.insert(order, usual_place + 1, class)
      end
    end
  end
  look_ahead()
  local function rank(class) return ranks[class] or usual_place end

  local resting, rested = {}, math.huge -- flows whose routes have no permit for a while, and until when
  -- save writes what has changed about the lanes. finish returns a reply without slots.
  local function save()
    if #resting >= REST_FLOWS then lanes.rest(resting, rested + L.moved) end
    lanes.save(now + L.moved, routes)
  end
  local function finish(state, hint)
    save()
    if news > NEWS and pace[1] then call('HSET', KEYS[1], 'y', tell) end
    return answer(state, hint)
  end

  local more = false
  if waiting then
    sorted(doors, every, beside.usual, now + L.moved, rank)
    more = call('EXISTS', unpack(names)) > 0
  end
  if first > reach or more and first > now + lead then return finish('horizon', more and 0 or first - reach) end

  local on_clock, lane_cap, route_caps = now + L.moved, beside.cap or 0, beside.caps or {}
  local function lane_ready(r, units, t)
    if r.paused then return math.huge end
    local at = scopes.room('l:', r.lane, r.most or lane_cap, on_clock, permits.ready(r.logs, r.limits, units, t + L.moved, L.lost, false))
    return math.max(at, scopes.held('l:', r.lane, r.held, on_clock)) - L.moved
  end
  local function route_has_room(name, units, t)
    t = t + L.moved
    if routes[name] then t = permits.ready(lanes.logs_of(name), routes[name], units, t, L.lost, L.lost and L.lost.units < LOSS_FULL) end
    return scopes.room('r:', name, route_caps[name] or 0, on_clock, t) - L.moved
  end
  local function route_held(name) return scopes.held('r:', name, lanes.state('H' .. name), on_clock) - L.moved end
  local function route_ready(name, units, t)
    if lanes.paused(name) then return math.huge end
    return math.max(route_has_room(name, units, t), route_held(name))
  end

  -- take takes the permits of a slot, everywhere, and the places of its call. It returns the slot.
  local function take(slot, cost, name, lane, r)
    for k = 1, K do
      cursor[k], used[k] = at[k], sum[k] + cost
      charge(k, slot, cost)
    end
    tally(slot, cost)
    last, tat = slot, math.max(tat, slot) + T * cost
    permits.take(r.logs, r.kept, cost, slot + L.moved, slot + allowance + L.moved, now + L.moved)
    L.dirty[lane] = true
    if routes[name] then
      permits.take(lanes.logs_of(name), routes[name], cost, slot + L.moved, slot + allowance + L.moved, now + L.moved)
      L.used[name] = true
    end
    local marks = ((r.most or lane_cap) > 0 or route_caps[name]) and SCOPES_PLACE or 0
    local at, lease, ends = slot + L.moved, marks > 0 and ARGV[12] .. ':' .. #slots + 1, slot + outlives + L.moved
    if scopes.take('r:', name, lanes.state('H' .. name), route_caps[name] or 0, on_clock, at, lease, ends) then marks = marks + SCOPES_ROUTE end
    if scopes.take('l:', lane, r.held, r.most or lane_cap, on_clock, at, lease, ends) then marks = marks + SCOPES_LANE end
    if routes[name] or route_caps[name] then
      local again = route_has_room(name, 1, slot)
      if again > slot then lanes.set('B' .. name, math.min(again, slot + ROUTE_AGAIN) + L.moved) end
    end
    lanes.set('bound', now + L.moved)
    return {slot, cost, marks}
  end

  local throttled = L.prefix .. 'throttled'
  local due = math.huge -- when the first throttled lane may be called again
  local function look_due()
    local v = call('ZRANGE', throttled, 0, 0, 'WITHSCORES')
    due = v[2] and tonumber(v[2]) - L.moved or math.huge
  end
  -- promote puts lanes whose time has come back into their sets.
  local function promote(t)
    local back = call('ZRANGEBYSCORE', throttled, '-inf', int(t + L.moved), 'LIMIT', 0, PROMOTE)
    if #back > 0 then call('ZREM', throttled, unpack(back)) end
    for _, lane in ipairs(back) do
      local r = lanes.record(lane)
      if not next(r.work) then lanes.found(lane, r) end
      lanes.wake(lane, r)
    end
    look_due()
  end

  -- top returns the first lane of a flow's set, and its tag in its class.
  local tops = {}
  local function top(flow)
    if L.touched[flow] or tops[flow] == nil then
      local v = call('ZRANGE', L.prefix .. 'ready:' .. flow, 0, 0, 'WITHSCORES')
      L.touched[flow], tops[flow] = nil, v[1] and {v[1], tonumber(v[2])} or false
      if not v[1] then L.on[flow], L.turned = nil, true end
    end
    local v = tops[flow]
    if not v then return nil end
    local offset, V = lanes.state('O' .. flow), lanes.state('V' .. lanes.class(flow))
    if v[2] + offset < V - 2 * LANES_NEW then -- its time stood still while its route was shut
      offset = V - v[2]
      lanes.set('O' .. flow, offset)
    end
    return v[1], v[2] + offset
  end

  -- shut returns until when a route is not looked at for a class, or nil. A route is shut if it is paused, or has no permit at all, or keeps its permits for its next job, if that costs more than
  -- there are and is of this class or a higher one.
  local misses, kept_for_dear, closed = 0, {}, {} -- closed: until when a flow's route has no permit or is held; nothing in a script opens it sooner
  local function shut(flow, t)
    if closed[flow] and closed[flow] > t then return closed[flow] end
    local name = lanes.route(flow)
    if L.overridden and lanes.paused(name) then return t + ROUTE_AGAIN end
    local x, dear = lanes.state('B' .. name) - L.moved, kept_for_dear[name]
    if x > t and (beside_windows(name) or route_caps[name]) then
      if not closed[flow] and x > now + REST_LEAST then resting[#resting + 1], rested = flow, math.min(rested, x) end
      closed[flow] = x
      return x
    end
    x = route_held(name)
    if x > t then closed[flow] = x end
    if dear and rank(lanes.class(flow)) >= rank(dear.class) then x = math.max(x, dear.till) end
    return x > t and x or nil
  end

  -- next_line returns the line of a flow whose turn it is. Jobs that were called before take at most every second place, and none of those that are sent ahead.
  local function next_line(r, flow)
    local lines, route = r.work[flow], lanes.route(flow)
    local fresh, called = bit.band(lines, LANES_FRESH) > 0, bit.band(lines, LANES_CALLED) > 0
    local ahead = fresh and called and (need == 1 or scopes.ahead('l:', r.lane, r.held, on_clock) or scopes.ahead('r:', route, lanes.state('H' .. route), on_clock))
    if fresh and (not called or ahead or bit.band(lines, LANES_TURN) > 0) then return bit.band(lines, 1) > 0 and 1 or 2 end
    return bit.band(lines, 4) > 0 and 4 or 8
  end

  -- left records that a line of a flow has no more tasks.
  local function left(lane, r, flow, line)
    r.work[flow] = bit.band(r.work[flow], bit.bnot(line))
    L.dirty[lane] = true
    if bit.band(r.work[flow], LANES_ALL) > 0 then return end
    r.work[flow] = nil
    lanes.drop(lane, flow)
  end

  -- candidates returns for each class the flow whose lane is next at t, with fields for what is found out about its job (able: classes with a job), and how long to wait if there is none.
  local function candidates(t)
    if L.again <= t + L.moved then
      lanes.unrest()
      look_ahead()
    end
    local best, able, when = {}, {}, math.min(due, L.again - L.moved)
    for flow in pairs(L.on) do
      local till = shut(flow, t)
      if till then
        when = math.min(when, till)
      else
        local lane, tag = top(flow)
        local class = lanes.class(flow)
        local b = best[class]
        if lane then able[class] = true end
        if lane and (not b or tag < b.tag or tag == b.tag and flow < b.flow) then best[class] = {flow = flow, lane = lane, tag = tag, class = class, able = able, r = nil, name = nil, line = nil, cost = nil, task = nil} end
      end
    end
    return best, when
  end

  -- of_classes returns the candidate of the class that is owed its floor, the earliest first, or else that of the highest class.
  local function of_classes(best)
    local owed, by
    for _, class in ipairs(order) do
      local D = best[class] and every[class] > 0 and lanes.state('D' .. class) or math.huge
      if D <= lanes.state('G') and (not by or D < by) then owed, by = best[class], D end
    end
    if owed then return owed end
    for _, class in ipairs(order) do
      if best[class] then return best[class] end
    end
  end

  -- fits reports whether a job may be called at t, and if not puts it aside until it may.
  local function fits(b, t)
    local r, name = lanes.record(b.lane), lanes.route(b.flow)
    if not r.work[b.flow] then lanes.found(b.lane, r) end
    if not r.work[b.flow] then -- its lane is in a set in which it should not be
      misses = misses + 1
      lanes.drop(b.lane, b.flow)
      return false
    end
    local line, cost = next_line(r, b.flow), 1
    if priced then
      local head = call('LINDEX', lanes.line(b.flow, line, b.lane), -1)
      if not head then
        misses = misses + 1
        left(b.lane, r, b.flow, line)
        return false
      end
      cost = math.min(tonumber(call('HGET', KEYS[5], head)) or 1, least, r.limits.least, routes[name] and routes[name].least or math.huge)
    end
    local x = lane_ready(r, cost, t)
    if x > t then
      misses, x = misses + 1, math.min(x, t + LANE_AGAIN)
      lanes.throttle(b.lane, r, x + L.moved, cost > 1 and not r.paused and '=' .. b.class or '')
      due = math.min(due, x)
      return false
    end
    x = route_has_room(name, cost, t)
    if x > t then
      if cost == 1 then lanes.set('B' .. name, math.min(x, t + ROUTE_AGAIN) + L.moved) else kept_for_dear[name] = {till = x, class = b.class} end
      return false
    end
    b.r, b.name, b.line, b.cost = r, name, line, cost
    return true
  end

  -- choose returns the job that is called at t, or when to try again.
  local function choose(t)
    while misses < MISSES do
      local best, when = candidates(t)
      local b = of_classes(best)
      if not b then return nil, when end
      if fits(b, t) then return b end
    end
    return nil, t
  end

  -- pay moves the lane's tags behind its call, in each flow of this class whose route is open, because one share pays for all of them. Flows take turns: the one that was called comes last.
  -- A flow that has used more than that, while others were shut, keeps its tag. Then the lane is put into the sets where it belongs.
  local function pay(b, slot)
    local r, lane = b.r, b.lane
    lanes.set('V' .. b.class, math.max(lanes.state('V' .. b.class), b.tag))
    local paid = b.cost / r.weight
    local tag, open = b.tag + paid, {}
    if call('EXISTS', lanes.line(b.flow, b.line, lane)) == 0 then left(lane, r, b.flow, b.line) end
    local x = math.min(lane_ready(r, 1, slot), slot + LANE_AGAIN)
    for flow in pairs(r.work) do
      if flow ~= b.flow and lanes.class(flow) == b.class and not shut(flow, slot) and route_ready(lanes.route(flow), 1, slot) <= slot then open[#open + 1] = flow end
    end
    lanes.in_turn(r, open)
    local behind, apart = #open > 0 and tag + lanes.slack(r), #open > 0 and lanes.apart(r, tag)
    for _, flow in ipairs(open) do
      if lanes.tag(r, flow) <= behind then r.tag[flow], tag = tag - lanes.state('O' .. flow), tag + apart end
      if x <= slot then lanes.put(lane, r, flow) end
    end
    r.tag[b.flow] = tag - lanes.state('O' .. b.flow)
    if x > slot then
      lanes.throttle(lane, r, x + L.moved, '')
      if next(r.work) then due = math.min(due, x) end
    elseif r.work[b.flow] then
      lanes.put(lane, r, b.flow)
    end
  end

  -- serve counts a call for the floors. A class without a job that may be called saves nothing up.
  local function serve(b)
    local G = lanes.state('G')
    for _, class in ipairs(order) do
      local D = every[class] > 0 and lanes.state('D' .. class)
      if every[class] > 0 and class == b.class then
        lanes.set('D' .. class, math.min(D, G) + every[class] * b.cost)
      elseif every[class] > 0 and not b.able[class] then
        lanes.set('D' .. class, math.max(D, G + b.cost + every[class]))
      end
    end
    lanes.set('G', G + b.cost)
  end

  -- take_in_hand takes slots for jobs that were already pulled.
  local function take_in_hand()
    local _, name, lane = flow_of(beside.take)
    taken = {name = name, lane = lane}
    local r = lanes.record(lane)
    for _ = 1, want do
      local t = math.max(base, last, tat - tolerance)
      while true do
        local before = t
        t = account(asked, route_ready(name, math.min(asked, routes[name] and routes[name].least or asked), lane_ready(r, math.min(asked, r.limits.least), t)))
        if t == before or t > reach then break end
      end
      if t > reach then
        state, hint = first > reach and 'horizon' or 'waiting', t < math.huge and t - reach or 0
        return
      end
      slots[#slots + 1] = take(t, asked, name, lane, r)
    end
  end

  -- bind binds the next slot to the next job, and reports whether there was one.
  local function bind()
    local soonest, rounds = account(1, math.max(base, last, tat - tolerance)), 0
    local b, when
    local t = soonest
    repeat
      if t > reach then
        state, hint = when and 'waiting' or 'horizon', t < math.huge and t - reach or 0
        return false
      end
      if due <= t then promote(t) end
      b, when = choose(t)
      rounds = rounds + 1
      if not b and when == math.huge then
        state = 'idle'
        return false
      end
      if not b and (misses >= MISSES or rounds >= ROUNDS) then return false end
      if not b then t = math.max(t, when) end
    until b
    local slot = b.cost == 1 and t == soonest and t or account(b.cost, t)
    if slot > reach then
      hint = slot < math.huge and slot - reach or 0
      return false
    end
    local task = call('RPOPLPUSH', lanes.line(b.flow, b.line, b.lane), KEYS[6])
    if not task then -- something has removed it
      misses = misses + 1
      left(b.lane, b.r, b.flow, b.line)
      return misses < MISSES
    end
    b.task = task
    local taken_slot = take(slot, b.cost, b.name, b.lane, b.r)
    b.r.work[b.flow] = bit.bor(bit.band(b.r.work[b.flow], LANES_ALL), b.line >= 4 and LANES_TURN or 0)
    pay(b, slot)
    serve(b)
    slots[#slots + 1], bound[#bound + 1] = taken_slot, b
    return true
  end

  if asked > 0 then
    take_in_hand()
  else
    look_due()
    while #slots < want and bind() do end
    for _, b in ipairs(bound) do lanes.count(b.flow, -1) end
    local turns, of = prefix .. 'parked:flows', {}
    if rare and #bound > 0 and call('EXISTS', turns) == 1 then -- their turn comes sooner, since they have fewer jobs in the queue now (books.lua of internal/record)
      for _, b in ipairs(bound) do of[b.flow .. ':' .. b.lane] = (of[b.flow .. ':' .. b.lane] or 0) + 1 end
      for flow, n in pairs(of) do
        if call('ZSCORE', turns, flow) then call('ZINCRBY', turns, string.format('%.0f', -n * 2 ^ 36), flow) end -- 2^36 is the weight of one job in the queue
      end
    end
  end
  if more then hint = 0 end
  if #slots == 0 then return finish(more and 'horizon' or state, hint) end
  save()
end

local refused = pick()
if refused then return refused end
