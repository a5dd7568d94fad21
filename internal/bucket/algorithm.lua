-- algorithm.lua: what the algorithms of admission share, and at its end the default one (level_…). A fragment: it needs NowLua before it, and behind it another algorithm, or the
-- default one's names (algorithm.go).
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
  if b.now < b.last then b.now, b.lag = b.last, b.last - b.now end -- lag: how long it will stand still
end

-- bucket_other reads what was stored with other numbers, or by another algorithm. b.rows has one row for each limit of that version. It is empty if nothing
-- was stored, or another algorithm's fields.
local function bucket_other(b, p)
  local head = redis.call('HMGET', b.key, 'a', 'k')
  b.alien = head[1] and head[1] ~= p.name
  b.wipe, b.rows, b.old_count = b.alien, {}, tonumber(head[2]) or 0
  if b.alien then return end
  for i = 1, b.old_count do
    local row, names = {}, {}
    for j, name in ipairs(p.names) do names[j] = name .. i end
    local values = redis.call('HMGET', b.key, unpack(names))
    for j, name in ipairs(p.names) do row[name] = values[j] end
    b.rows[i] = row
  end
end

-- bucket_open begins a bucket. p.names are the fields of a limit, and p.extra those that are there once; p.each is how many numbers a limit has. b.numbers has the
-- numbers of all limits in order. Unless b.fresh is true, the numbers are those that were stored, and b.stored[b.head + i] is the first field of limit i.
-- Else b.rows has what was stored (bucket_other). The extra fields begin at b.stored[4].
local function bucket_open(p, key, now, version)
  local numbers, n = {0, 0, 0}, 0 -- a table made as large as it gets is not made again as it grows
  for number in string.gmatch(version, '%d+') do
    n = n + 1
    numbers[n] = number + 0
  end
  local first, count, extra = p.names[1], n / p.each, p.extra
  local s
  if count == 1 and not extra then
    s = redis.call('HMGET', key, 'v', 't', 'o', first .. '1')
  else
    local fields = {'v', 't', 'o', unpack(extra or {})}
    local head = #fields
    for i = 1, count do fields[head + i] = first .. i end
    s = redis.call('HMGET', key, unpack(fields))
  end
  local b = {key = key, version = version, count = count, numbers = numbers, plan = p, u = {0}, c = {0}, cap = {0}, changed = false, stored = s, head = 3 + (extra and #extra or 0),
    last = tonumber(s[2]) or 0, offset = tonumber(s[3]) or 0, fresh = s[1] ~= version, now = now, lag = 0}
  if b.fresh then bucket_other(b, p) end
  bucket_tick(b, now)
  return b
end

-- bucket_add adds a job if every limit has room for it, and reports whether it did.
local function bucket_add(b, cost)
  local u, c, cap, count = b.u, b.c, b.cap, b.count
  for i = 1, count do
    if u[i] + cost * c[i] > cap[i] then return false end
  end
  for i = 1, count do u[i] = u[i] + cost * c[i] end
  b.changed = true
  return true
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

-- bucket_write writes the head and set, which has t, the algorithm's own fields, and their values. The key expires some time after reset (µs), or never without one.
local function bucket_write(b, set, reset)
  if b.wipe then redis.call('DEL', b.key) end
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

-- Token bucket and leaky bucket, which are one meter seen from two sides (GCRA): admission's default. Each of K limits has a level, out of which r units leak per µs,
-- all in one hash. A limit is three whole numbers, r/c/cap: r units leak out per µs, c units are one token, cap units are the burst.
-- Own fields of the hash: u<i> units in use of limit i at t   c<i> units of one token then
--
-- When the limits change, each new one goes on from the highest of the old levels. So the tokens taken count for all limits, and a
-- change to a limit that leaks fast gives nothing away of one that leaks slowly. The key never expires; it takes some hundred bytes for a gateway.

local LEVEL = {name = 'level', names = {'u', 'c'}, each = 3}

-- level_rescaled converts u units of a token of `from` units into those of a token of c units, rounded up.
local function level_rescaled(u, from, c, cap)
  local EXACT = 4503599627370496 -- 2^52
  local tokens = math.floor(u / from)
  if tokens * c >= cap then return cap end
  local rest = (u - tokens * from) * c
  if rest < EXACT then rest = math.ceil(rest / from) else rest = c end
  return math.min(tokens * c + rest, cap)
end

-- level_before returns what limit i had in use at the last change, by other numbers.
local function level_before(b, i)
  if b.alien then return b.cap[i] end
  local most = 0
  for _, row in ipairs(b.rows) do most = math.max(most, level_rescaled(row.u + 0, row.c + 0, b.c[i], b.cap[i])) end
  return most
end

local function level_load(key, now, argv, at)
  local b = bucket_open(LEVEL, key, now, argv[at])
  local numbers, passed = b.numbers, b.now - b.last
  for i = 1, b.count do
    b.c[i], b.cap[i] = numbers[3 * i - 1], numbers[3 * i]
    local u = (b.fresh and level_before(b, i) or b.stored[3 + i] + 0) - passed * numbers[3 * i - 2] -- what leaked may be beyond 2^52; then it is above every u
    b.u[i] = u > 0 and u or 0
  end
  return b, at + 1
end

local function level_retry(b, cost)
  return bucket_until(b, cost, function(i, over) return math.ceil(over / b.numbers[3 * i - 2]) end)
end

local function level_reset(b)
  return bucket_longest(b, function(i) return math.ceil(b.u[i] / b.numbers[3 * i - 2]) end)
end

local function level_save(b)
  if not b.changed then return end
  local set = {'t', int(b.now), 'u1', int(b.u[1])}
  for i = 2, b.count do bucket_append(set, 'u' .. i, int(b.u[i])) end
  if b.fresh then
    for i = 1, b.count do bucket_append(set, 'c' .. i, int(b.c[i])) end
  end
  bucket_write(b, set)
end
