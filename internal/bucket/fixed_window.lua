-- fixed_window.lua: a counter for the present window of each of K limits, all in one hash. A fragment behind
-- algorithm.lua. Windows begin at whole multiples of their length since 1970. If Redis's clock was set back by more
-- than 2 s, they keep their old beginnings until the key has expired.
-- A limit is two whole numbers, cap/w: cap tokens, and w, the window's length in µs.
-- Own fields of the hash: w<i> length   n<i> tokens taken in the window that holds t

local FIXED_WINDOW = {name = 'fixed-window', names = {'n', 'w'}, each = 2}

-- fixed_before returns what was taken in the window of limit i that holds the last change. A length that was not kept
-- before takes over the highest count.
local function fixed_before(b, i)
  if b.alien then return b.cap[i] end
  if not b.fresh then return tonumber(b.stored[b.head + i]) end
  local most = 0
  for _, row in ipairs(b.rows) do
    local n = tonumber(row.n)
    if tonumber(row.w) == b.w[i] then return n end
    most = math.max(most, n)
  end
  return most
end

local function bucket_load(key, now, argv, at)
  local b = bucket_open(FIXED_WINDOW, key, now, argv[at])
  b.w, b.i = {}, {}
  for i = 1, b.count do
    b.c[i], b.cap[i], b.w[i] = 1, b.numbers[2 * i - 1], b.numbers[2 * i]
    b.i[i] = math.floor(b.now / b.w[i])
    b.u[i] = math.floor(b.last / b.w[i]) == b.i[i] and fixed_before(b, i) or 0
  end
  return b, at + 1
end

local bucket_take = bucket_add

local function fixed_rest(b, i) return (b.i[i] + 1) * b.w[i] - b.now end

local function bucket_retry(b, cost)
  return bucket_until(b, cost, function(i) return fixed_rest(b, i) end)
end

local function bucket_reset(b)
  return bucket_longest(b, function(i) return b.u[i] > 0 and fixed_rest(b, i) or 0 end)
end

local function bucket_save(b)
  if not b.changed then return end
  local set = {'t', int(b.now)}
  for i = 1, b.count do
    bucket_append(set, 'n' .. i, int(b.u[i]))
    if b.fresh then bucket_append(set, 'w' .. i, int(b.w[i])) end
  end
  bucket_write(b, set, bucket_reset(b))
end
