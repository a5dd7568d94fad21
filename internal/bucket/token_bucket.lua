-- token_bucket.lua: a token bucket for each of K limits, all in one hash. A fragment behind algorithm.lua and level.lua.
-- A limit is three whole numbers: r units leak out per µs, c units are one token, cap units are the burst.
-- Own fields of the hash: u<i> units in use of limit i at t   c<i> units of one token then

local TOKEN_BUCKET = {name = 'token-bucket', extra = {}, names = {'u', 'c'}}

local function bucket_load(key, now, argv, at)
  local b = bucket_open(TOKEN_BUCKET, key, now, argv, at)
  local levels = {}
  for i, row in ipairs(b.rows) do levels[i] = {u = tonumber(row.u), c = tonumber(row.c)} end
  b.r = {}
  for i = 1, b.count do
    local p = at + 3 * i
    b.r[i], b.c[i], b.cap[i] = tonumber(argv[p - 1]), tonumber(argv[p]), tonumber(argv[p + 1])
    level_set(b, i, levels)
  end
  return b, at + 2 + 3 * b.count
end

-- The units of one token are written only with a new version: they change with nothing else.
local function bucket_save(b)
  if not b.changed then return end
  local set = {}
  for i = 1, b.count do
    bucket_append(set, 'u' .. i, int(b.u[i]))
    if b.fresh then bucket_append(set, 'c' .. i, int(b.c[i])) end
  end
  bucket_write(b, set, bucket_reset(b))
end
