-- shelf.lua: what else follows from a job's being parked than the set of its reason. A fragment: local functions only.
-- parked:<reason>:b:<batch> has the jobs of parked:<reason> that are of one batch, with the same scores.
-- again has the jobs parked as exhausted that may go in by themselves, with the time (µs) before which they don't: it grows with ya,
-- the field of a record that counts how often that happened, and after AGAIN_MOST times nothing but a person takes the job in.
local AGAIN_FIRST, AGAIN_MOST = 60000000, 5

local function shelf_key(record, rest) return string.match(record, '^spillway:{[^}]*}:') .. rest end

-- shelf_batch is the part of parked:<reason> that is of one batch.
local function shelf_batch(record, reason, batch) return shelf_key(record, 'parked:' .. reason .. ':b:' .. batch) end

-- shelf_put notes that a job is parked for a reason, since when (µs).
local function shelf_put(record, reason, batch, when)
  local id = string.match(record, '^spillway:{[^}]*}:job:(.*)$')
  if batch and batch ~= '' then redis.call('ZADD', shelf_batch(record, reason, batch), when, id) end
  if reason ~= 'exhausted' then return end
  local times = tonumber(redis.call('HGET', record, 'ya')) or 0
  if times >= AGAIN_MOST then return end
  redis.call('ZADD', shelf_key(record, 'again'), string.format('%.0f', tonumber(when) + AGAIN_FIRST * 2 ^ times), id)
end

-- shelf_take notes that it is not any more.
local function shelf_take(record, reason, batch)
  local id = string.match(record, '^spillway:{[^}]*}:job:(.*)$')
  if batch and batch ~= '' then redis.call('ZREM', shelf_batch(record, reason, batch), id) end
  if reason == 'exhausted' then redis.call('ZREM', shelf_key(record, 'again'), id) end
end

-- shelf_move follows a job from one state to another; fields are what its record gets with the new one.
local function shelf_move(record, batch, from, from_reason, to, fields)
  if from == 'parked' then shelf_take(record, from_reason or '', batch) end
  if to ~= 'parked' then return end
  local reason, when = from_reason, nil
  for i = 1, #fields, 2 do
    if fields[i] == 'r' then reason = fields[i + 1] elseif fields[i] == 'pa' then when = fields[i + 1] end
  end
  if when then shelf_put(record, reason, batch, when) end
end
