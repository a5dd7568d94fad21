-- token_bucket.lua: a fragment; a token bucket for each of K limits, all in one hash. It needs NowLua before it.
--
-- Hash: t    µs of the last change      v  version of the limits that the numbers belong to      k  how many limits
--       u<i> units in use of limit i    c<i> units of one token when u<i> was written
-- A limit is three whole numbers: r units leak out per µs, c units are one token, cap units are the burst.
-- Every number is a whole one below 2^52, where Lua is exact. A key that isn't there means an empty bucket.
--
-- b, next = bucket_load(key, now, argv, at)   reads argv[at..]: version, K, then r, c, cap of each limit
-- bucket_room(b, cost)  bucket_take(b, cost)  bucket_give(b, cost)   in memory; nothing is written before bucket_save
-- bucket_retry(b, cost) µs until there is room, 0 now, -1 never       bucket_reset(b) µs until nothing is in use
-- bucket_remaining(b)   whole tokens left, one number for each limit  bucket_save(b)  one write, only if changed

local BUCKET_STEP_BACK = 2000000 -- a clock that went back by less than this stands still instead
local BUCKET_EXACT = 4503599627370496 -- 2^52
local BUCKET_SLACK_MS = 2001 -- kept beyond the moment at which the bucket is empty

-- bucket_rescaled turns u units of a token of `from` units into a token of c units, rounded up.
local function bucket_rescaled(u, from, c, cap)
  local tokens = math.floor(u / from)
  if tokens * c >= cap then return cap end
  local rest = (u - tokens * from) * c
  if rest < BUCKET_EXACT then rest = math.ceil(rest / from) else rest = c end
  return math.min(tokens * c + rest, cap)
end

local function bucket_leaked(u, r, elapsed)
  local out = elapsed * r -- may be beyond 2^52, and is then above every u
  if out >= u then return 0 end
  return u - out
end

local function bucket_fields(count)
  local fields = {'t', 'v', 'k'}
  for i = 1, count do
    fields[#fields + 1] = 'u' .. i
    fields[#fields + 1] = 'c' .. i
  end
  return fields
end

local function bucket_load(key, now, argv, at)
  local count = tonumber(argv[at + 1])
  local b = {key = key, version = argv[at], count = count, r = {}, c = {}, cap = {}, u = {}, changed = false}
  local stored = redis.call('HMGET', key, unpack(bucket_fields(count)))
  local last = tonumber(stored[1]) or now
  if now < last and last - now <= BUCKET_STEP_BACK then now = last end
  local elapsed = math.max(now - last, 0) -- a large step back: keep the level and go on from here
  b.now, b.old_count, b.fresh = now, tonumber(stored[3]) or 0, stored[2] ~= argv[at]
  for i = 1, count do
    local p = at + 3 * i
    local r, c, cap = tonumber(argv[p - 1]), tonumber(argv[p]), tonumber(argv[p + 1])
    local u, from = tonumber(stored[2 * i + 2]) or 0, tonumber(stored[2 * i + 3]) or c
    if from ~= c then u = bucket_rescaled(u, from, c, cap) end
    b.r[i], b.c[i], b.cap[i], b.u[i] = r, c, cap, bucket_leaked(math.min(u, cap), r, elapsed)
  end
  return b, at + 2 + 3 * count
end

local function bucket_room(b, cost)
  for i = 1, b.count do
    if b.u[i] + cost * b.c[i] > b.cap[i] then return false end
  end
  return true
end

local function bucket_take(b, cost)
  b.changed = true
  for i = 1, b.count do b.u[i] = b.u[i] + cost * b.c[i] end
end

local function bucket_give(b, cost)
  b.changed = true
  for i = 1, b.count do b.u[i] = math.max(b.u[i] - cost * b.c[i], 0) end
end

local function bucket_retry(b, cost)
  local wait = 0
  for i = 1, b.count do
    local need = cost * b.c[i]
    if need > b.cap[i] then return -1 end
    wait = math.max(wait, math.ceil((b.u[i] + need - b.cap[i]) / b.r[i]))
  end
  return wait
end

local function bucket_reset(b)
  local wait = 0
  for i = 1, b.count do wait = math.max(wait, math.ceil(b.u[i] / b.r[i])) end
  return wait
end

local function bucket_remaining(b)
  local left = {}
  for i = 1, b.count do left[i] = math.floor((b.cap[i] - b.u[i]) / b.c[i]) end
  return left
end

-- The units of one token are written only with a new version: they change with nothing else.
local function bucket_save(b)
  if not b.changed then return end
  local set = {'t', int(b.now)}
  for i = 1, b.count do
    set[#set + 1] = 'u' .. i
    set[#set + 1] = int(b.u[i])
  end
  if b.fresh then
    for _, x in ipairs({'v', b.version, 'k', b.count}) do set[#set + 1] = x end
    for i = 1, b.count do
      set[#set + 1] = 'c' .. i
      set[#set + 1] = int(b.c[i])
    end
  end
  redis.call('HSET', b.key, unpack(set))
  redis.call('PEXPIRE', b.key, int(math.ceil(bucket_reset(b) / 1000) + BUCKET_SLACK_MS))
  if b.fresh then
    for i = b.count + 1, b.old_count do redis.call('HDEL', b.key, 'u' .. i, 'c' .. i) end
  end
  b.changed, b.fresh = false, false
end
