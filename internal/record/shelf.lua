-- shelf.lua: what follows when a job is parked, besides its entry in the set of its reason. A fragment: local functions only.
-- parked:<reason>:b:<batch> has the jobs of parked:<reason> that are of one batch, with the same scores.
-- If a gateway has lanes, routes with limits, or classes, counters has the field flowed, and the jobs parked as rejected are in the parts of their flows too (share.lua):
--      parked:rejected:f:CLASS:ROUTE:LANE  those of one flow, with the same scores
--      parked:rejected:unfit  those that cost more than admission can ever grant; they are in no flow's part
--      parked:flows  the flows that have such a part, or had: the next one to go in first (shelf_turn)
--      flowed        how many jobs are in all of these parts: as many as are parked as rejected, unless jobs are missing there
-- again has the jobs parked as exhausted that may go in by themselves, with the time (µs) before which they don't. That time grows with
-- self_replays, which counts how often that happened. After AGAIN_MOST times, only a person can readmit the job.
local AGAIN_FIRST, AGAIN_MOST = 60000000, 5

-- shelf_key names a key of a record's gateway, which is the same for everything that a script touches until shelf_begin.
local shelf_prefix
local function shelf_key(record, rest)
  shelf_prefix = shelf_prefix or string.match(record, '^spillway:{[^}]*}:')
  return shelf_prefix .. rest
end

-- shelf_id returns the id in a record's key.
local shelf_job
local function shelf_id(record)
  shelf_job = shelf_job or #shelf_key(record, 'job:') + 1
  return string.sub(record, shelf_job)
end

-- shelf_remove removes an id from a set. Between shelf_gather and shelf_gathered it only notes it, so that a script that removes many jobs changes
-- each set once.
local removed -- between shelf_gather and shelf_gathered: the ids to remove from each set
local function shelf_remove(set, id)
  if not removed then return redis.call('ZREM', set, id) end
  local ids = removed[set] or {}
  removed[set] = ids
  ids[#ids + 1] = id
end

local function shelf_gather() removed = {} end

-- shelf_flow_set returns the part of parked:rejected that is of one flow.
local function shelf_flow_set(record, flow) return shelf_key(record, 'parked:rejected:f:' .. flow) end

-- shelf_count counts jobs that came into the parts of flows.
local function shelf_count(record, n)
  if n ~= 0 then redis.call('HINCRBY', shelf_key(record, 'counters'), 'flowed', n) end
end

-- shelf_flowed reports whether the gateway has such parts. It looks once in a script.
local flowed
local function shelf_flowed(record)
  if flowed == nil then flowed = redis.call('HGET', shelf_key(record, 'counters'), 'flowed') and true or false end
  return flowed
end

-- shelf_flow returns the flow of a job.
local function shelf_flow(record)
  local v = redis.call('HMGET', record, '@priority', '@route', '@lane')
  return (v[1] or '') .. ':' .. (v[2] or '') .. ':' .. (v[3] or '')
end

-- shelf_turn returns the score of a flow in parked:flows. The flow with the fewest jobs in the queue goes first; among equal ones, the one that was fed longest ago (µs). Flows
-- that pass go before all others.
local SHELF_TURN, SHELF_TURNS, SHELF_EPOCH = 68719476736, 65535, 157783680000 -- 2^36 times 10 ms, the most jobs that count, and 2020 in 10 ms
local function shelf_turn(queued, passes, fed)
  local since = math.min(math.max(math.floor(fed / 10000) - SHELF_EPOCH, 0), SHELF_TURN - 1)
  return string.format('%.0f', (math.min(queued, SHELF_TURNS) - (passes and SHELF_TURNS + 1 or 0)) * SHELF_TURN + since)
end

-- shelf_drop removes ids from a flow's part, or from those that never fit.
local function shelf_drop(record, flow, ids)
  local n = 0
  for i = 1, #ids, 1000 do
    local some = {unpack(ids, i, math.min(i + 999, #ids))}
    local gone = redis.call('ZREM', shelf_flow_set(record, flow), unpack(some))
    if gone < #some then gone = gone + redis.call('ZREM', shelf_key(record, 'parked:rejected:unfit'), unpack(some)) end
    n = n + gone
  end
  shelf_count(record, -n)
end

-- shelf_unflow removes a job from its flow's part; between shelf_gather and shelf_gathered, it does so at the end.
local unflowed
local function shelf_unflow(record, id)
  local flow = shelf_flow(record)
  if not removed then return shelf_drop(record, flow, {id}) end
  unflowed = unflowed or {record = record, flows = {}}
  local ids = unflowed.flows[flow] or {}
  unflowed.flows[flow] = ids
  ids[#ids + 1] = id
end

local function shelf_gathered()
  for set, ids in pairs(removed) do
    for i = 1, #ids, 1000 do redis.call('ZREM', set, unpack(ids, i, math.min(i + 999, #ids))) end
  end
  for flow, ids in pairs(unflowed and unflowed.flows or {}) do shelf_drop(unflowed.record, flow, ids) end
  removed, unflowed = nil, nil
end

-- shelf_batch returns the part of parked:<reason> that is of one batch. A name is made once in a script.
local shelf_batches = {}
local function shelf_batch(record, reason, batch)
  local of = shelf_batches[reason] or {}
  shelf_batches[reason] = of
  of[batch] = of[batch] or shelf_key(record, 'parked:' .. reason .. ':b:' .. batch)
  return of[batch]
end

-- shelf_free returns how many more jobs may be parked, and how many more bytes of payload. most says how many of each may be, of these reasons: "JOBS BYTES REASON …" (0 = any
-- number, '' = any of both).
local function shelf_free(record, most)
  local jobs, bytes = string.match(most, '^(%d+) (%d+)')
  if not jobs then return math.huge, math.huge end
  local fields, parked, stored = {}, 0, 0
  for reason in string.gmatch(most, ' (%l%S*)') do
    fields[#fields + 1] = 'b:parked:' .. reason
    parked = parked + redis.call('ZCARD', shelf_key(record, 'parked:' .. reason))
  end
  for _, n in ipairs(redis.call('HMGET', shelf_key(record, 'counters'), unpack(fields))) do stored = stored + (tonumber(n or '') or 0) end
  return jobs == '0' and math.huge or tonumber(jobs) - parked, bytes == '0' and math.huge or tonumber(bytes) - stored
end

-- shelf_begin forgets the gateway: what follows belongs to another one.
local function shelf_begin() shelf_prefix, shelf_job, shelf_batches, removed, flowed, unflowed = nil, nil, {}, nil, nil, nil end

-- shelf_put records that a job is parked for a reason, since when (µs).
local function shelf_put(record, reason, batch, when)
  local id = shelf_id(record)
  if batch and batch ~= '' then redis.call('ZADD', shelf_batch(record, reason, batch), when, id) end
  if reason == 'rejected' and shelf_flowed(record) then
    local flow = shelf_flow(record)
    shelf_count(record, redis.call('ZADD', shelf_flow_set(record, flow), when, id))
    redis.call('ZADD', shelf_key(record, 'parked:flows'), 'NX', shelf_turn(0, false, tonumber(when)), flow)
  end
  if reason ~= 'exhausted' then return end
  local times = tonumber(redis.call('HGET', record, '@self_replays')) or 0
  if times >= AGAIN_MOST then return end
  redis.call('ZADD', shelf_key(record, 'again'), string.format('%.0f', tonumber(when) + AGAIN_FIRST * 2 ^ times), id)
end

-- shelf_take records that it is no longer parked.
local function shelf_take(record, reason, batch)
  local id = shelf_id(record)
  if batch and batch ~= '' then shelf_remove(shelf_batch(record, reason, batch), id) end
  if reason == 'exhausted' then shelf_remove(shelf_key(record, 'again'), id) end
  if reason == 'rejected' and shelf_flowed(record) then shelf_unflow(record, id) end
end

-- shelf_move follows a job from one state to another; fields are what its record gets with the new one.
local function shelf_move(record, batch, from, from_reason, to, fields)
  if from == 'parked' then shelf_take(record, from_reason or '', batch) end
  if to ~= 'parked' then return end
  local reason, when = from_reason, nil
  for i = 1, #fields, 2 do
    if fields[i] == '@reason' then reason = fields[i + 1] elseif fields[i] == '@parked_at' then when = fields[i + 1] end
  end
  if when then shelf_put(record, reason, batch, when) end
end
