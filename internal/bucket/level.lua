-- level.lua: token bucket and leaky bucket, which are one meter seen from two sides (GCRA): a level for each of K limits,
-- out of which r units leak per µs, all in one hash. A fragment that stands alone; admission's default, and so written to be
-- quick: in the usual case two calls of Redis, one table made, nothing read or written that could be known.
-- A limit is three whole numbers, r/c/cap: r units leak out per µs, c units are one token, cap units are the burst.
--
-- Hash: a 'level'  v algorithm and numbers that it belongs to  k how many limits  t when it was last changed (µs)
--       u<i> units in use of limit i at t  c<i> units of one token then
-- A key that isn't there means that nothing is in use. It stays, at some hundred bytes for a gateway.
--
-- For bucket_load and what follows it see algorithm.lua. When the limits change, each of the new ones goes on from the
-- highest of the old: the tokens taken count for all of them, and a limit that leaks slowly is never given away to one that
-- leaks fast. What another algorithm left counts as used up at the moment of its last change. A clock that went back by
-- no more than 2 s stands still until it has caught up; one that was set back for good goes on from there.
--
-- b holds the limits one after the other: b[3i - 2] is r, b[3i - 1] is c and b[3i] is cap of limit i. b.s is what was read, v, t,
-- u1, u2 …, and b.s[2 + i] becomes what limit i has in use at b.s[2]. What few need is there only then: lag, how long the clock still
-- stands still; version, new limits to be written, after b.old others; wipe, what another algorithm left must go first.
-- Three things cost less than the call they stand for: text + 0 is tonumber(text), x - x % 1 is math.floor(x), x + -x % 1 is math.ceil(x).

-- level_before fills s with what the limits before these had in use, and returns when; now if there were none.
local function level_before(b, s, now, version)
  local EXACT = 4503599627370496 -- 2^52

  -- rescaled turns u units of a token of `from` units into those of a token of c units, rounded up.
  local function rescaled(u, from, c, cap)
    local tokens = math.floor(u / from)
    if tokens * c >= cap then return cap end
    local rest = (u - tokens * from) * c
    if rest < EXACT then rest = math.ceil(rest / from) else rest = c end
    return math.min(tokens * c + rest, cap)
  end

  local had = redis.call('HMGET', b.key, 'a', 't', 'o', 'k')
  b.version, b.old = version, 0
  for i = 1, b.count do s[2 + i] = 0 end
  if not had[2] then return now end
  if had[1] ~= 'level' then
    b.wipe = true
    for i = 1, b.count do s[2 + i] = b[3 * i] end
    return had[2] - (had[3] or 0)
  end
  b.old = had[4] + 0
  for j = 1, b.old do
    local l = redis.call('HMGET', b.key, 'u' .. j, 'c' .. j)
    for i = 1, b.count do s[2 + i] = math.max(s[2 + i], rescaled(l[1] + 0, l[2] + 0, b[3 * i - 1], b[3 * i])) end
  end
  return had[2] + 0
end

local function bucket_load(key, now, argv, at)
  local version, b = argv[at], nil
  local r, c, cap = string.match(version, '^%S+ (%d+)/(%d+)/(%d+)/ $') -- of one limit, which is the rule
  if r then
    b = {r + 0, c + 0, cap + 0, key = key, count = 1, s = redis.call('HMGET', key, 'v', 't', 'u1'), changed = false}
  else
    b = {0, 0, 0, 0, 0, 0, key = key, count = 0, s = false, changed = false}
    local i = 0
    for number in string.gmatch(version, '%d+') do
      i = i + 1
      b[i] = number + 0
    end
    b.count = i / 3
    b.s = redis.call('HMGET', key, unpack({'v', 't', 'u1', 'u2', 'u3', 'u4', 'u5', 'u6', 'u7', 'u8'}, 1, 2 + b.count))
  end
  local s = b.s
  local out = now - (s[1] == version and s[2] or level_before(b, s, now, version))
  s[2] = now
  if out < -2000000 then
    b.changed, out = true, 0 -- written even if nothing is taken
  elseif out < 0 then
    s[2], b.lag, out = now - out, -out, 0
  end
  for i = 1, b.count do
    local u = s[2 + i] - out * b[3 * i - 2] -- what leaked may be beyond 2^52, and is then above every u
    s[2 + i] = u > 0 and u or 0
  end
  return b, at + 1
end

local function bucket_take(b, cost)
  local s = b.s
  if b.count == 1 then
    local u = s[3] + cost * b[2]
    if u > b[3] then return false end
    s[3] = u
  else
    for i = 1, b.count do
      if s[2 + i] + cost * b[3 * i - 1] > b[3 * i] then return false end
    end
    for i = 1, b.count do s[2 + i] = s[2 + i] + cost * b[3 * i - 1] end
  end
  b.changed = true
  return true
end

-- bucket_retry without a cost returns how long it takes until nothing is in use.
local function bucket_retry(b, cost)
  local most, s = 0, b.s
  for i = 1, b.count do
    local least = cost and b[3 * i] - cost * b[3 * i - 1] or 0
    if least < 0 then return -1 end
    local wait = (s[2 + i] - least) / b[3 * i - 2]
    if wait > most then most = wait + -wait % 1 end
  end
  return most > 0 and most + (b.lag or 0) or 0
end

local bucket_reset = bucket_retry

local function bucket_remaining(b)
  local left, s = {}, b.s
  for i = 1, b.count do
    local tokens = (b[3 * i] - s[2 + i]) / b[3 * i - 1]
    left[i] = tokens > 0 and tokens - tokens % 1 or 0
  end
  return left
end

-- The units of one token are written only with a new version: they change with nothing else.
local function bucket_save(b)
  if not b.changed then return end
  local s = b.s
  b.changed = false
  if b.count == 1 and not b.version then
    redis.call('HSET', b.key, 't', s[2], 'u1', s[3])
    return
  end
  if b.wipe then redis.call('DEL', b.key) end
  local set = {'t', s[2]}
  local function add(name, value) set[#set + 1] = name; set[#set + 1] = value end
  for i = 1, b.count do add('u' .. i, s[2 + i]) end
  if b.version then
    add('a', 'level'); add('v', b.version); add('k', b.count)
    for i = 1, b.count do add('c' .. i, b[3 * i - 1]) end
    for i = b.count + 1, b.old do redis.call('HDEL', b.key, 'u' .. i, 'c' .. i) end
  end
  redis.call('HSET', b.key, unpack(set))
  b.version, b.wipe = nil, nil
end
