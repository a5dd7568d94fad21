-- algorithm.lua: what the algorithms of admission share. A fragment: it needs NowLua before it and one algorithm behind it.
--
-- Hash: a algorithm  t its clock at the last change (µs)  o how far that clock is ahead of Redis's (absent: 0)
--       v version of the limits that the numbers belong to  k how many limits, and the algorithm's own fields
-- A missing key means that nothing is in use. Every number is a whole one below 2^52, where Lua is exact.
--
-- b, next = bucket_load(key, now, argv, at)   reads argv[at]: the version, which ends in the numbers of each limit: "name 1/2/ 3/4/ "
-- bucket_take(b, cost)  true if every limit had room; in memory only, until bucket_save
-- bucket_retry(b, cost) µs until there is room, 0 now, -1 never       bucket_reset(b) µs until nothing is in use
-- bucket_remaining(b)   whole tokens left, one number for each limit  bucket_save(b)  one write, only if changed
--
-- b holds for each limit: u units in use, c units of one token, cap units at most. What another algorithm has stored
-- is dropped, and every limit counts as used up at the moment of its last change. So no stretch of time has more than
-- the old algorithm or the new one allows.

local BUCKET_STEP_BACK = 2000000 -- a clock that went back by no more than this stands still until it has caught up
local BUCKET_SLACK_MS = 2001 -- a key is kept this much longer than it matters

-- bucket_tick moves b's clock, which never goes back. When Redis's clock was set back for good, b's clock goes on from where
-- it was, and that is written even if nothing is taken.
local function bucket_tick(b, now)
  b.now = now + b.offset
  if b.now < b.last - BUCKET_STEP_BACK then
    b.offset, b.changed, b.moved = b.last - now, true, true
    b.now = b.last
  end
  b.lag = math.max(b.last - b.now, 0) -- how long it will stand still
  b.now = math.max(b.now, b.last)
end

-- bucket_read returns the head of the hash, then the fields extra, then names .. i for this many limits.
local function bucket_read(key, extra, names, count)
  local fields = {'a', 't', 'o', 'v', 'k'}
  for _, name in ipairs(extra) do fields[#fields + 1] = name end
  for i = 1, count do
    for _, name in ipairs(names) do fields[#fields + 1] = name .. i end
  end
  return redis.call('HMGET', key, unpack(fields))
end

-- bucket_open begins a bucket. b.extra and b.rows hold what was stored: rows has one row for each limit of the stored
-- version. It is empty if nothing was stored, or another algorithm's fields.
-- b.numbers has the numbers of all limits in order.
local function bucket_open(p, key, now, version)
  local numbers = {}
  for number in string.gmatch(version, '%d+') do numbers[#numbers + 1] = number + 0 end
  local count = #numbers / p.each
  local s = bucket_read(key, p.extra, p.names, count)
  local rows = tonumber(s[5]) or 0
  if rows > count then s = bucket_read(key, p.extra, p.names, rows) end
  local b = {key = key, version = version, count = count, numbers = numbers, plan = p, u = {}, c = {}, cap = {}, changed = false}
  b.last, b.offset, b.old_count = tonumber(s[2]) or 0, tonumber(s[3]) or 0, rows
  b.alien = s[1] and s[1] ~= p.name
  b.fresh, b.wipe = b.alien or s[4] ~= version, b.alien
  bucket_tick(b, now)
  b.extra, b.rows = {}, {}
  if b.alien then return b end
  for i = 1, #p.extra do b.extra[i] = s[5 + i] end
  for i = 1, rows do
    local from = 5 + #p.extra + (i - 1) * #p.names
    b.rows[i] = {}
    for j, name in ipairs(p.names) do b.rows[i][name] = s[from + j] end
  end
  return b
end

local function bucket_room(b, cost)
  for i = 1, b.count do
    if b.u[i] + cost * b.c[i] > b.cap[i] then return false end
  end
  return true
end

local function bucket_add(b, cost)
  b.changed = true
  for i = 1, b.count do b.u[i] = b.u[i] + cost * b.c[i] end
end

-- bucket_longest returns the longest of the waits that wait(i) returns for each limit, or -1 if one of them is endless.
local function bucket_longest(b, wait)
  local most = 0
  for i = 1, b.count do
    local w = wait(i)
    if w < 0 then return -1 end
    most = math.max(most, w)
  end
  if most > 0 then most = most + b.lag end
  return most
end

-- bucket_until returns the longest wait of the limits without room; short(i, over) returns how long limit i takes to lose over units.
local function bucket_until(b, cost, short)
  return bucket_longest(b, function(i)
    local need = cost * b.c[i]
    if need > b.cap[i] then return -1 end
    local over = b.u[i] + need - b.cap[i]
    if over <= 0 then return 0 end
    return short(i, over)
  end)
end

local function bucket_remaining(b)
  local left = {}
  for i = 1, b.count do left[i] = math.max(math.floor((b.cap[i] - b.u[i]) / b.c[i]), 0) end
  return left
end

local function bucket_append(set, name, value)
  set[#set + 1] = name
  set[#set + 1] = value
end

-- bucket_write writes the head and set, which has the algorithm's own fields and values. The key expires some time after reset (µs), or never without one.
local function bucket_write(b, set, reset)
  if b.wipe then redis.call('DEL', b.key) end
  bucket_append(set, 't', int(b.now))
  if b.moved or b.wipe and b.offset ~= 0 then bucket_append(set, 'o', int(b.offset)) end
  if b.fresh or b.wipe then
    bucket_append(set, 'a', b.plan.name)
    bucket_append(set, 'v', b.version)
    bucket_append(set, 'k', b.count)
  end
  redis.call('HSET', b.key, unpack(set))
  if reset then redis.call('PEXPIRE', b.key, int(math.ceil(reset / 1000) + BUCKET_SLACK_MS)) end
  if b.fresh and not b.wipe then
    for i = b.count + 1, b.old_count do
      for _, name in ipairs(b.plan.names) do redis.call('HDEL', b.key, name .. i) end
    end
  end
  b.changed, b.fresh, b.wipe, b.moved = false, false, false, false
end
