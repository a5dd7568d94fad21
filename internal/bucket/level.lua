-- level.lua: what token bucket and leaky bucket share: a level for each limit, out of which r units leak per µs. A
-- fragment, between algorithm.lua and the algorithm.

local LEVEL_EXACT = 4503599627370496 -- 2^52

-- level_rescaled turns u units of a token of `from` units into those of a token of c units, rounded up.
local function level_rescaled(u, from, c, cap)
  local tokens = math.floor(u / from)
  if tokens * c >= cap then return cap end
  local rest = (u - tokens * from) * c
  if rest < LEVEL_EXACT then rest = math.ceil(rest / from) else rest = c end
  return math.min(tokens * c + rest, cap)
end

-- level_before returns what limit i had in use at the last change. levels are those stored, {u, c} for each limit. When
-- the limits change, each of the new ones goes on from the highest of the old: the tokens taken count for all of them,
-- and a limit that leaks slowly is never given away to one that leaks fast.
local function level_before(b, i, levels)
  if b.alien then return b.cap[i] end
  if not b.fresh then return math.min(levels[i].u, b.cap[i]) end
  local most = 0
  for _, l in ipairs(levels) do most = math.max(most, level_rescaled(l.u, l.c, b.c[i], b.cap[i])) end
  return most
end

local function level_set(b, i, levels)
  local u, out = level_before(b, i, levels), (b.now - b.last) * b.r[i] -- out may be beyond 2^52, and is then above every u
  b.u[i] = out >= u and 0 or u - out
end

local bucket_take = bucket_add

local function bucket_give(b, cost)
  b.changed = true
  for i = 1, b.count do b.u[i] = math.max(b.u[i] - cost * b.c[i], 0) end
end

local function bucket_retry(b, cost)
  return bucket_until(b, cost, function(i, over) return math.ceil(over / b.r[i]) end)
end

local function bucket_reset(b)
  return bucket_longest(b, function(i) return math.ceil(b.u[i] / b.r[i]) end)
end
