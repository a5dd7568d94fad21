-- outage.lua: when a gateway was down or told calls to wait, and what that means for the attempts of a job. A fragment: local functions only.
-- Fields of the gateway's hold that it reads and writes; circuit.lua has the rest:
--   outages  "from:to from:to …" in µs, oldest first, the latest OUTAGES of them; the last one has no end while it is under way
--   run, unrun, runjob, runat, runs, runlast  the failures in a row since the last success (did_work of record.lua deletes them)
-- Fields of a job's record: failures, except those with which an outage began; outages_met; and last_outage.
-- A job is forgiven what it met in its first FORGIVEN outages. Trouble that comes again after other jobs succeeded is its own.
local OUTAGES, FAILURES_BYTES, FORGIVEN = 16, 600, 2

local function outage_begin(text, from)
  local all = {}
  for one in string.gmatch(text or '', '%S+') do all[#all + 1] = one end
  if #all > 0 and string.sub(all[#all], -1) == ':' then return text end -- one has not ended
  all[#all + 1] = int(from) .. ':'
  return table.concat(all, ' ', math.max(1, #all - OUTAGES + 1))
end

local function outage_end(text, now) return string.sub(text, -1) == ':' and text .. int(now) or text end

-- outage_of returns the beginning of the latest outage that the time from begun to ended touches, or nil.
local function outage_of(text, begun, ended)
  local found
  for from, to in string.gmatch(text or '', '(%d+):(%d*)') do
    if tonumber(from) <= ended and (tonumber(to) or math.huge) >= begun then found = tonumber(from) end
  end
  return found
end

-- outage_met counts an outage that the job met: once, however often it met it, and only if it began after all that are counted.
local function outage_met(record, from)
  if (tonumber(redis.call('HGET', record, '@last_outage')) or 0) >= from then return end
  redis.call('HSET', record, '@last_outage', int(from))
  redis.call('HINCRBY', record, '@outages_met', 1)
end

-- outage_spent records when a failure was that counts as an attempt.
local function outage_spent(record, at)
  local all = (redis.call('HGET', record, '@failures') or '') .. int(at) .. ' '
  while #all > FAILURES_BYTES do all = string.sub(all, string.find(all, ' ', 1, true) + 1) end
  redis.call('HSET', record, '@failures', all)
end

-- outage_forgive gives back the attempts that turned out to be the beginning of an outage. It returns how many are spent.
local function outage_forgive(record, hold, failures, spent)
  local texts, left, before = {}, '', spent
  for _, of in ipairs(holds_of(hold, read(record, '@route', '@lane'))) do texts[#texts + 1] = redis.call('HGET', of, 'outages') or '' end
  for at in string.gmatch(failures, '%d+') do
    local from
    for _, text in ipairs(texts) do from = math.max(from or 0, outage_of(text, tonumber(at), tonumber(at)) or 0) end
    if from == 0 then from = nil end
    if from and (tonumber(redis.call('HGET', record, '@outages_met')) or 0) < FORGIVEN then
      spent = math.max(spent - 1, 0)
      outage_met(record, from)
    else
      left = left .. at .. ' '
    end
  end
  if spent < before then redis.call('HSET', record, '@spent', int(spent), '@failures', left) end
  return spent
end

-- How much it takes until trouble counts as the gateway's. Field of the hold, for each kind of trouble: level:KIND "level until". It rises when a hold turned out to be
-- for trouble of single jobs, up to LEVEL_MOST, and is forgotten after LEVEL_MEMORY (µs). Each level takes LEVEL_STEP times as many jobs in a row as the one below.
local LEVEL_STEP, LEVEL_MOST, LEVEL_MEMORY = 4, 3, 600000000

local function level_of(text, now)
  local level, till = string.match(text or '', '^(%d+) (%d+)$')
  return till and tonumber(till) > now and tonumber(level) or 0
end

local function level_raised(text, now) return int(math.min(level_of(text, now) + 1, LEVEL_MOST)) .. ' ' .. int(now + LEVEL_MEMORY) end
