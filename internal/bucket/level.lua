-- level.lua: token bucket and leaky bucket, which are one meter seen from two sides (GCRA). Each of K limits has a level,
-- out of which r units leak per µs, all in one hash. It is admission's default. A fragment behind algorithm.lua.
-- A limit is three whole numbers, r/c/cap: r units leak out per µs, c units are one token, cap units are the burst.
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

local function bucket_load(key, now, argv, at)
  local b = bucket_open(LEVEL, key, now, argv[at])
  local numbers, passed = b.numbers, b.now - b.last
  for i = 1, b.count do
    b.c[i], b.cap[i] = numbers[3 * i - 1], numbers[3 * i]
    local u = (b.fresh and level_before(b, i) or b.stored[3 + i] + 0) - passed * numbers[3 * i - 2] -- what leaked may be beyond 2^52; then it is above every u
    b.u[i] = u > 0 and u or 0
  end
  return b, at + 1
end

local bucket_take = bucket_add

local function bucket_retry(b, cost)
  return bucket_until(b, cost, function(i, over) return math.ceil(over / b.numbers[3 * i - 2]) end)
end

local function bucket_reset(b)
  return bucket_longest(b, function(i) return math.ceil(b.u[i] / b.numbers[3 * i - 2]) end)
end

local function bucket_save(b)
  if not b.changed then return end
  local set = {'t', int(b.now), 'u1', int(b.u[1])}
  for i = 2, b.count do bucket_append(set, 'u' .. i, int(b.u[i])) end
  if b.fresh then
    for i = 1, b.count do bucket_append(set, 'c' .. i, int(b.c[i])) end
  end
  bucket_write(b, set)
end
