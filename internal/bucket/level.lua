-- level.lua: token bucket and leaky bucket, which are one meter seen from two sides (GCRA): a level for each of K limits,
-- out of which r units leak per µs, all in one hash. A fragment that stands alone; admission's default, and so written to be
-- quick: in the usual case two calls of Redis, nothing read or written that could be known.
-- A limit is three whole numbers: r units leak out per µs, c units are one token, cap units are the burst.
--
-- Hash: a 'level'  v algorithm and numbers that it belongs to  k how many limits  t when it was last changed (µs)
--       u<i> units in use of limit i at t  c<i> units of one token then
-- A key that isn't there means that nothing is in use. It stays, at some hundred bytes for a gateway.
--
-- For bucket_load and what follows it see algorithm.lua. When the limits change, each of the new ones goes on from the
-- highest of the old: the tokens taken count for all of them, and a limit that leaks slowly is never given away to one that
-- leaks fast. What another algorithm left counts as used up at the moment of its last change. A clock that went back by
-- no more than LEVEL_STEP_BACK stands still until it has caught up; one that was set back for good goes on from there.

local LEVEL_STEP_BACK = 2000000

-- level_before fills b with what the limits before these had in use, and returns when. b.old is how many they were.
local function level_before(b)
  local EXACT = 4503599627370496 -- 2^52

  -- rescaled turns u units of a token of `from` units into those of a token of c units, rounded up.
  local function rescaled(u, from, c, cap)
    local tokens = math.floor(u / from)
    if tokens * c >= cap then return cap end
    local rest = (u - tokens * from) * c
    if rest < EXACT then rest = math.ceil(rest / from) else rest = c end
    return math.min(tokens * c + rest, cap)
  end

  local s = redis.call('HMGET', b.key, 'a', 't', 'o', 'k')
  b.fresh = true
  for i = 1, b.count do b.u[i] = 0 end
  if not s[2] then return b.now end
  if s[1] ~= 'level' then
    b.wipe = true
    for i = 1, b.count do b.u[i] = b.cap[i] end
    return tonumber(s[2]) - (tonumber(s[3]) or 0)
  end
  b.old = tonumber(s[4])
  for j = 1, b.old do
    local l = redis.call('HMGET', b.key, 'u' .. j, 'c' .. j)
    for i = 1, b.count do
      b.u[i] = math.max(b.u[i], rescaled(tonumber(l[1]), tonumber(l[2]), b.c[i], b.cap[i]))
    end
  end
  return tonumber(s[2])
end

local function bucket_load(key, now, argv, at)
  local count, s = tonumber(argv[at + 1]), nil
  if count == 1 then
    s = redis.call('HMGET', key, 'v', 't', 'u1')
  else
    local fields = {'v', 't'}
    for i = 1, count do fields[2 + i] = 'u' .. i end
    s = redis.call('HMGET', key, unpack(fields))
  end
  local p = at + 2
  local b = {key = key, version = argv[at], count = count, now = now, lag = 0, changed = false, fresh = false,
    r = {tonumber(argv[p])}, c = {tonumber(argv[p + 1])}, cap = {tonumber(argv[p + 2])}, u = {tonumber(s[3])}}
  for i = 2, count do
    p = p + 3
    b.r[i], b.c[i], b.cap[i], b.u[i] = tonumber(argv[p]), tonumber(argv[p + 1]), tonumber(argv[p + 2]), tonumber(s[2 + i])
  end
  local out = now - (s[1] == b.version and tonumber(s[2]) or level_before(b))
  if out < -LEVEL_STEP_BACK then
    b.changed = true -- written even if nothing is taken
  elseif out < 0 then
    b.now, b.lag = now - out, -out
  else
    for i = 1, count do
      local u = b.u[i] - out * b.r[i] -- what leaked may be beyond 2^52, and is then above every u
      b.u[i] = u > 0 and u or 0
    end
  end
  return b, p + 3
end

local function bucket_take(b, cost)
  local u, c = b.u, b.c
  for i = 1, b.count do
    if u[i] + cost * c[i] > b.cap[i] then return false end
  end
  for i = 1, b.count do u[i] = u[i] + cost * c[i] end
  b.changed = true
  return true
end

local function bucket_give(b, cost)
  for i = 1, b.count do b.u[i] = math.max(b.u[i] - cost * b.c[i], 0) end
  b.changed = true
end

-- level_wait returns how long it takes until every limit is down to its room(i), 0 if it is, -1 if it never will be.
local function level_wait(b, room)
  local most = 0
  for i = 1, b.count do
    local least = room(i)
    if least < 0 then return -1 end
    most = math.max(most, math.ceil((b.u[i] - least) / b.r[i]))
  end
  return most > 0 and most + b.lag or 0
end

local function bucket_retry(b, cost)
  return level_wait(b, function(i) return b.cap[i] - cost * b.c[i] end)
end

local function bucket_reset(b)
  return level_wait(b, function() return 0 end)
end

local function bucket_remaining(b)
  local left = {}
  for i = 1, b.count do left[i] = math.max(math.floor((b.cap[i] - b.u[i]) / b.c[i]), 0) end
  return left
end

-- The units of one token are written only with a new version: they change with nothing else.
local function bucket_save(b)
  if not b.changed then return end
  if b.count == 1 and not b.fresh then
    redis.call('HSET', b.key, 't', b.now, 'u1', b.u[1])
    return
  end
  if b.wipe then redis.call('DEL', b.key) end
  local set = {'t', b.now}
  local function add(name, value) set[#set + 1] = name; set[#set + 1] = value end
  for i = 1, b.count do add('u' .. i, b.u[i]) end
  if b.fresh then
    add('a', 'level'); add('v', b.version); add('k', b.count)
    for i = 1, b.count do add('c' .. i, b.c[i]) end
    for i = b.count + 1, b.old or 0 do redis.call('HDEL', b.key, 'u' .. i, 'c' .. i) end
  end
  redis.call('HSET', b.key, unpack(set))
  b.changed, b.fresh, b.wipe = false, false, false
end
