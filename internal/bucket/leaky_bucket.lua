-- leaky_bucket.lua: a leaky bucket as a meter (GCRA) for each of K limits, all in one hash. A fragment behind
-- algorithm.lua and level.lua.
-- A limit is two whole numbers: c, the µs that one token takes to leak out, rounded up, and cap, the µs of the burst.
-- Own fields of the hash: x<i> when limit i's bucket would be empty (its theoretical arrival time)   c<i> as above
-- A job of cost q conforms if max(x, now) + q × c <= now + cap, that is with a tolerance of (burst - 1) × c.

local LEAKY_BUCKET = {name = 'leaky-bucket', extra = {}, names = {'x', 'c'}}

local function bucket_load(key, now, argv, at)
  local b = bucket_open(LEAKY_BUCKET, key, now, argv, at)
  local levels = {}
  for i, row in ipairs(b.rows) do
    levels[i] = {u = math.max(tonumber(row.x) - b.last, 0), c = tonumber(row.c)}
  end
  b.r = {}
  for i = 1, b.count do
    b.r[i], b.c[i], b.cap[i] = 1, tonumber(argv[at + 2 * i]), tonumber(argv[at + 2 * i + 1])
    level_set(b, i, levels)
  end
  return b, at + 2 + 2 * b.count
end

local function bucket_save(b)
  if not b.changed then return end
  local set = {}
  for i = 1, b.count do
    bucket_append(set, 'x' .. i, int(b.now + b.u[i]))
    if b.fresh then bucket_append(set, 'c' .. i, int(b.c[i])) end
  end
  bucket_write(b, set, bucket_reset(b))
end
