-- shelf.lua: what else follows from a job's being parked than the set of its reason. A fragment: local functions only.
-- parked:<reason>:b:<batch> has the jobs of parked:<reason> that are of one batch, with the same scores.
-- again has the jobs parked as exhausted that may go in by themselves, with the time (µs) before which they don't: it grows with
-- self_replays, which counts how often that happened, and after AGAIN_MOST times nothing but a person takes the job in.
local AGAIN_FIRST, AGAIN_MOST = 60000000, 5

-- shelf_key names a key of a record's gateway, which is the same for all that a script touches until shelf_begin.
local shelf_prefix
local function shelf_key(record, rest)
  shelf_prefix = shelf_prefix or string.match(record, '^spillway:{[^}]*}:')
  return shelf_prefix .. rest
end

-- shelf_id is the id in a record's key.
local shelf_job
local function shelf_id(record)
  shelf_job = shelf_job or #shelf_key(record, 'job:') + 1
  return string.sub(record, shelf_job)
end

-- shelf_remove takes an id out of a set. Between shelf_gather and shelf_gathered it only notes it: a script that takes out many jobs changes
-- each set once.
local removed -- between shelf_gather and shelf_gathered: the ids to take out of each set
local function shelf_remove(set, id)
  if not removed then return redis.call('ZREM', set, id) end
  local ids = removed[set] or {}
  removed[set] = ids
  ids[#ids + 1] = id
end

local function shelf_gather() removed = {} end

local function shelf_gathered()
  for set, ids in pairs(removed) do
    for i = 1, #ids, 1000 do redis.call('ZREM', set, unpack(ids, i, math.min(i + 999, #ids))) end
  end
  removed = nil
end

-- shelf_batch is the part of parked:<reason> that is of one batch. A name is made once for a script.
local shelf_batches = {}
local function shelf_batch(record, reason, batch)
  local of = shelf_batches[reason] or {}
  shelf_batches[reason] = of
  of[batch] = of[batch] or shelf_key(record, 'parked:' .. reason .. ':b:' .. batch)
  return of[batch]
end

-- shelf_begin forgets the gateway: what follows is of another one.
local function shelf_begin() shelf_prefix, shelf_job, shelf_batches, removed = nil, nil, {}, nil end

-- shelf_put notes that a job is parked for a reason, since when (µs).
local function shelf_put(record, reason, batch, when)
  local id = shelf_id(record)
  if batch and batch ~= '' then redis.call('ZADD', shelf_batch(record, reason, batch), when, id) end
  if reason ~= 'exhausted' then return end
  local times = tonumber(redis.call('HGET', record, '@self_replays')) or 0
  if times >= AGAIN_MOST then return end
  redis.call('ZADD', shelf_key(record, 'again'), string.format('%.0f', tonumber(when) + AGAIN_FIRST * 2 ^ times), id)
end

-- shelf_take notes that it is not any more.
local function shelf_take(record, reason, batch)
  local id = shelf_id(record)
  if batch and batch ~= '' then shelf_remove(shelf_batch(record, reason, batch), id) end
  if reason == 'exhausted' then shelf_remove(shelf_key(record, 'again'), id) end
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
