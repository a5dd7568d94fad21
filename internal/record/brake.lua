-- brake.lua: batches that stop themselves. A fragment: local functions only, behind shelf.lua. What becomes of a batch's jobs is watched where its books
-- change (books_move), so that no process must be alive to see it. Fields of the batch's books:
--   answered, refused  how many of its calls were answered with yes or no, and how many with no, until the brake has seen enough of them
--   canary             how many of its first jobs go ahead (canary.lua)
--   ahead              1: the rest waits until they are done; 2: they are done, and shelve.lua readmits the rest; absent: no job waits
--   canary_done        how many of them are done or accepted
--   braked             since when it has been stopped by itself (µs)
-- spillway:{gateway}:braked has the batches that stopped themselves and were not resumed, paused or cancelled since, by the moment.
-- spillway:{gateway}:shelving says what a dispatcher must do with a batch's jobs: pause or release; await or approve (approval.lua).
local brake_setting, brake_calls, brake_least, brake_said, brake_accepted, brake_counted = '', 0, math.huge, '', false, false

-- brake_with sets how the brake works ("CALLS REFUSED": it stops a batch if this many of its first calls were refused; '' = never), the status of
-- the present answer (0 = none), and whether the gateway has accepted the payment by it: that is a yes, though the job is parked or pending. counted: the gateway had accepted a pending job before, and that was counted.
local function brake_with(setting, status, accepted, counted)
  if setting ~= brake_setting then
    local calls, least = string.match(setting, '^(%d+) (%d+)$')
    brake_setting, brake_calls, brake_least = setting, tonumber(calls) or 0, tonumber(least) or math.huge
  end
  brake_said = status > 0 and ': HTTP ' .. int(status) or ''
  brake_accepted, brake_counted = accepted, counted
end

-- brake_trail writes into the trail that the batch paused itself, and how many jobs this parks.
local function brake_trail(record, batch, key, now, why)
  local jobs = 0
  for _, n in ipairs(redis.call('HMGET', key, 'n:scheduled', 'n:queued', 'n:retrying', 'n:parked:rejected')) do jobs = jobs + (tonumber(n or '') or 0) end
  local floor = math.floor
  local s = floor(now / 1000000)
  local z = floor(s / 86400) + 719468 -- days since 1 March of the year 0
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local m = floor((5 * doy + 2) / 153) -- from March on
  local month = m < 10 and m + 3 or m - 9
  local at = string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', yoe + era * 400 + (month <= 2 and 1 or 0), month, doy - floor((153 * m + 2) / 5) + 1,
    floor(s / 3600) % 24, floor(s / 60) % 60, s % 60, now % 1000000)
  local named = string.find(batch, '["\\$`!]') and "'" .. string.gsub(batch, "'", "'\\''") .. "'" or '"' .. batch .. '"' -- quoted for a shell
  redis.call('RPUSH', shelf_key(record, 'trail'), '{"at":"' .. at .. '","who":"spillway","what":"batch pause","why":' .. cjson.encode(why) ..
    ',"filter":' .. cjson.encode('--batch ' .. named) .. ',"jobs":' .. int(jobs) .. ',"amount":{},"without_amount":0,"ended":"' .. at .. '"}')
end

-- brake_stop pauses a batch. A dispatcher parks the jobs that wait; until then open.lua keeps them from being called.
local function brake_stop(record, batch, key, why)
  local now = now_us('0')
  brake_trail(record, batch, key, now, why)
  redis.call('HDEL', key, 'ahead', 'answered', 'refused')
  redis.call('HSET', key, 'paused', int(now), 'why', why, 'who', 'spillway', 'braked', int(now))
  redis.call('ZADD', shelf_key(record, 'braked'), int(now), batch)
  redis.call('HSET', shelf_key(record, 'shelving'), batch, 'pause')
end

-- brake_ahead follows the jobs that go ahead. When all of them are done or accepted, the rest goes in; if one of them is discarded, or parked without being accepted, the rest does not.
local function brake_ahead(record, batch, key, jobs, from, to, canary)
  if to == 'done' and (brake_counted or string.sub(from, 1, 7) == 'parked:') then return end -- it was accepted, and was counted then
  if to == 'done' or brake_accepted then
    if redis.call('HINCRBY', key, 'canary_done', int(jobs)) < tonumber(canary) then return end
    redis.call('HSET', key, 'ahead', '2')
    redis.call('HSET', shelf_key(record, 'shelving'), batch, 'release')
    return
  end
  local reason = string.match(to, '^parked:(.*)$')
  local of = canary == '1' and 'its first job' or int(jobs) .. ' of its first ' .. canary .. ' jobs'
  brake_stop(record, batch, key, of .. (reason and ' is parked as ' .. reason or ' was discarded') .. brake_said)
end

-- brake_watch is called when jobs of a batch go from one place of its books to another.
local function brake_watch(record, batch, jobs, from, to)
  local decided = to == 'done' or to == 'discarded' or to == 'pending' and brake_accepted or
    string.sub(to, 1, 7) == 'parked:' and to ~= 'parked:paused' and to ~= 'parked:awaiting_approval' and to ~= 'parked:rejected'
  if not decided or from == 'parked:paused' or from == 'parked:awaiting_approval' then return end
  local key = shelf_key(record, 'batch:' .. batch)
  local v = redis.call('HMGET', key, 'paused', 'cancelled', 'ahead', 'canary', 'answered')
  if v[1] or v[2] then return end
  if v[3] == '1' then return brake_ahead(record, batch, key, jobs, from, to, v[4]) end
  local answered, yes = tonumber(v[5]) or 0, to == 'done' or brake_accepted
  if from ~= 'in_flight' and from ~= 'pending' or not yes and to ~= 'parked:refused' or answered >= brake_calls then return end
  if brake_counted and yes then return end
  if not brake_counted then answered = redis.call('HINCRBY', key, 'answered', int(jobs)) end
  if yes then return end
  local refused = redis.call('HINCRBY', key, 'refused', int(jobs))
  if refused < brake_least then return end
  brake_stop(record, batch, key, int(refused) .. ' of its first ' .. int(answered) .. ' calls were refused' .. brake_said)
end
