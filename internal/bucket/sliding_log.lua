-- sliding_log.lua: the exact log of what was taken, one for all of K limits, in one hash. A fragment behind
-- algorithm.lua. An entry is the time of one script run and the running total before it. So what a window holds is the
-- total now, less that of its first entry, which is found by halving: a run reads only a few entries, however long
-- the log is. Entries are stored in chunks, 14 bytes each.
-- A limit is two whole numbers, cap/w: cap tokens, and w, the window's length in µs.
-- Own fields of the hash: h index of the first entry kept   z of the next one   g running total, modulo LOG_WRAP
--       s<i> the first entry in the window of limit i at the last change   e<n> entries from LOG_CHUNK × n on

local SLIDING_LOG = {name = 'sliding-log', extra = {'h', 'z', 'g'}, names = {'s'}, each = 2}
local LOG_CHUNK, LOG_ENTRY, LOG_NUMBER = 64, 14, 7
local LOG_WRAP = 1125899906842624 -- 2^50, more than a window can hold
local LOG_TRIM = 8 -- chunks dropped at a time; a run adds less than one

local function log_pack(x)
  local bytes = {}
  for i = LOG_NUMBER, 1, -1 do
    bytes[i] = x % 256
    x = math.floor(x / 256)
  end
  return string.char(unpack(bytes))
end

local function log_number(text, from)
  local x = 0
  for _, byte in ipairs({string.byte(text, from, from + LOG_NUMBER - 1)}) do x = x * 256 + byte end
  return x
end

local function log_chunk(b, n)
  if not b.chunks[n] then b.chunks[n] = redis.call('HGET', b.key, 'e' .. n) end
  return b.chunks[n]
end

local function log_time(b, index)
  return log_number(log_chunk(b, math.floor(index / LOG_CHUNK)), index % LOG_CHUNK * LOG_ENTRY + 1)
end

-- log_since returns what was taken since an entry.
local function log_since(b, index)
  if index >= b.z then return 0 end
  local at = index % LOG_CHUNK * LOG_ENTRY + 1 + LOG_NUMBER
  return (b.g - log_number(log_chunk(b, math.floor(index / LOG_CHUNK)), at)) % LOG_WRAP
end

-- log_first returns the first entry from lo on for which holds(index) is true, or z. From there on holds must stay true.
-- It looks near lo first.
local function log_first(b, lo, holds)
  local hi, step = lo, 1
  while hi < b.z and not holds(hi) do
    lo, hi, step = hi + 1, hi + step, step * 2
  end
  hi = math.min(hi, b.z)
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if holds(mid) then hi = mid else lo = mid + 1 end
  end
  return lo
end

local function log_add(b, time)
  local n, before = math.floor(b.z / LOG_CHUNK), b.z % LOG_CHUNK * LOG_ENTRY
  local text = before > 0 and string.sub(log_chunk(b, n), 1, before) or ''
  b.chunks[n], b.written[n] = text .. log_pack(time) .. log_pack(b.g), true
  b.z = b.z + 1
end

local function log_count(b)
  for i = 1, b.count do b.u[i] = log_since(b, b.s[i]) end
end

-- log_empty starts an empty log. What another algorithm has stored counts as one entry that fills every limit.
local function log_empty(b)
  b.h, b.z, b.g, b.chunks, b.written, b.wipe = 0, 0, 0, {}, {}, true
  for i = 1, b.count do b.s[i] = 0 end
end

local function bucket_load(key, now, argv, at)
  local b = bucket_open(SLIDING_LOG, key, now, argv[at])
  local s = b.alien and {} or b.stored
  b.h, b.z, b.g = tonumber(s[4]) or 0, tonumber(s[5]) or 0, tonumber(s[6]) or 0
  b.w, b.s, b.chunks, b.written = {}, {}, {}, {}
  for i = 1, b.count do
    b.c[i], b.cap[i], b.w[i] = 1, b.numbers[2 * i - 1], b.numbers[2 * i]
  end
  if b.alien then
    log_empty(b)
    log_add(b, b.last)
    b.g = math.max(unpack(b.cap))
  end
  local first, known = b.z, b.z -- known: where the longest window began under the previous limits
  for _, row in ipairs(b.rows or {}) do known = math.min(known, tonumber(row.s)) end
  if b.alien then known = 0 end
  for i = 1, b.count do
    local from = b.fresh and known or tonumber(s[b.head + i])
    b.s[i] = log_first(b, from, function(index) return log_time(b, index) + b.w[i] > b.now end)
    first = math.min(first, b.s[i])
  end
  if first == b.z and b.z > 0 then log_empty(b) end
  log_count(b)
  return b, at + 1
end

local function bucket_take(b, cost)
  if not bucket_add(b, cost) then return false end
  if b.z == b.h or log_time(b, b.z - 1) < b.now then log_add(b, b.now) end
  b.g = (b.g + cost) % LOG_WRAP
  return true
end

local function bucket_retry(b, cost)
  return bucket_until(b, cost, function(i)
    local next = log_first(b, b.s[i], function(index) return log_since(b, index) + cost <= b.cap[i] end)
    return log_time(b, next - 1) + b.w[i] - b.now
  end)
end

local function bucket_reset(b)
  return bucket_longest(b, function(i)
    return b.u[i] > 0 and log_time(b, b.z - 1) + b.w[i] - b.now or 0
  end)
end

-- log_trim returns the fields of some chunks that no window reaches into any more.
local function log_trim(b)
  local old, from = {}, math.floor(b.h / LOG_CHUNK)
  for n = from, math.min(math.floor(math.min(unpack(b.s)) / LOG_CHUNK), from + LOG_TRIM) - 1 do
    old[#old + 1] = 'e' .. n
    b.h = (n + 1) * LOG_CHUNK
  end
  return old
end

local function bucket_save(b)
  if not b.changed then return end
  local old, set = log_trim(b), {'t', int(b.now)}
  for n in pairs(b.written) do bucket_append(set, 'e' .. n, b.chunks[n]) end
  for i = 1, b.count do bucket_append(set, 's' .. i, int(b.s[i])) end
  for name, value in pairs({h = b.h, z = b.z, g = b.g}) do bucket_append(set, name, int(value)) end
  bucket_write(b, set, bucket_reset(b))
  if #old > 0 then redis.call('HDEL', b.key, unpack(old)) end
  b.written = {}
end
