-- shelve.lua: a stretch of a batch's jobs, in the order of the file, is parked as cancelled; or what a pause has parked so goes in again,
-- behind all that waits for room. The tasks of jobs that were queued stay: papers.lua takes them out, and whoever pulls one before drops it.
-- KEYS 1 the batch's ids  2 counters  3 scheduled  4 retrying  5 parked:rejected  6 parked:cancelled  7 acts
-- ARGV 1 now (µs, 0 = Redis's)  2 batch  3 cancel | pause | resume  4 the error that the jobs get  5 how a pause's errors begin
--      6 prefix of records  7 place of the first  8 how many  9 act's place in the trail ('' = none)
-- returns {how many of these places there are (-1: somebody has done another of these to the batch since, so that this one is over), for each
--      job that was changed its money ('' = none), …}
local now, batch, what, paused_by = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[5]
local mark = redis.call('HMGET', books_key(ARGV[6], 'batch:' .. batch), 'paused', 'cancelled')
local is = mark[2] and 'cancel' or mark[1] and 'pause' or 'resume'
if is ~= what then return {'-1'} end
local ids = redis.call('LRANGE', KEYS[1], ARGV[7], int(tonumber(ARGV[7]) + tonumber(ARGV[8]) - 1))
local changed = {int(#ids)}

local function park(record, id, reason, set)
  local when = stamp(KEYS[2], now)
  become(record, 'parked', 'r', reason, 'e', ARGV[4], 'pa', int(when))
  redis.call('HDEL', record, 'due', 'rc')
  redis.call('ZADD', set, int(when), id)
end

local function shelve(record, id)
  local v = redis.call('HMGET', record, 's', 'r', 'b', 'e', 'rc')
  if v[3] ~= batch then return false end
  if v[5] and what == 'cancel' then redis.call('HDEL', record, 'rc') end
  local paused = v[1] == 'parked' and v[2] == 'cancelled' and string.sub(v[4] or '', 1, #paused_by) == paused_by
  if what == 'resume' then
    if not paused then return false end
    redis.call('ZREM', KEYS[6], id)
    park(record, id, 'rejected', KEYS[5])
    return true
  end
  if paused and what == 'cancel' then
    redis.call('HSET', record, 'e', ARGV[4])
    return true
  end
  local from = ({scheduled = KEYS[3], retrying = KEYS[4]})[v[1]] or (v[1] == 'parked' and v[2] == 'rejected' and KEYS[5])
  if not from and v[1] ~= 'queued' then return false end
  if from then redis.call('ZREM', from, id) end
  park(record, id, 'cancelled', KEYS[6])
  return true
end

for _, id in ipairs(ids) do
  local record = ARGV[6] .. id
  if shelve(record, id) then changed[#changed + 1] = redis.call('HGET', record, 'm') or '' end
end
if ARGV[9] ~= '' and #changed > 1 then redis.call('HINCRBY', KEYS[7], ARGV[9], #changed - 1) end
return changed
