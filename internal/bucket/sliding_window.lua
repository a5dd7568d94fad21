-- sliding_window.lua: a counter for each part of the window of each of K limits, all in one hash. A fragment behind
-- algorithm.lua. What is taken counts until a whole window after its part has ended. So no window, wherever
-- it begins, holds more than the limit. With P parts to a window, at most P + 1 are kept, and P/(P + 1) of the limit is
-- reached.
-- A limit is three whole numbers, cap/w/p: cap tokens, w, the window's length in µs, and p, the length of a part.
-- Own fields of the hash: w<i> length   l<i> "end count end count …" of the parts, oldest first

local SLIDING_WINDOW = {name = 'sliding-window', names = {'l', 'w'}, each = 3}

-- sliding_source returns the stored parts that serve a window of length w: those of the same length, else of the
-- shortest that is longer, else of the longest. The parts say when they end, so their length does not matter.
local function sliding_source(b, w)
  local best, length = '', 0
  for _, row in ipairs(b.rows) do
    local have = tonumber(row.w)
    local longer = length < w and have > length
    if longer or have >= w and have < length then best, length = row.l, have end
  end
  return best
end

-- sliding_parts returns the ends and counts that still count, and their sum.
local function sliding_parts(b, i)
  if b.alien then
    if b.last + b.w[i] <= b.now then return {}, {}, 0 end
    return {b.last}, {b.cap[i]}, b.cap[i]
  end
  local text = b.fresh and sliding_source(b, b.w[i]) or b.stored[b.head + i]
  local ends, counts, sum = {}, {}, 0
  for e, n in string.gmatch(text, '(%d+) (%d+)') do
    e, n = tonumber(e), tonumber(n)
    if e + b.w[i] > b.now then
      ends[#ends + 1], counts[#counts + 1] = e, n
      sum = sum + n
    end
  end
  return ends, counts, sum
end

local function bucket_load(key, now, argv, at)
  local b = bucket_open(SLIDING_WINDOW, key, now, argv[at])
  b.w, b.p, b.ends, b.counts = {}, {}, {}, {}
  for i = 1, b.count do
    b.c[i], b.cap[i], b.w[i], b.p[i] = 1, b.numbers[3 * i - 2], b.numbers[3 * i - 1], b.numbers[3 * i]
    b.ends[i], b.counts[i], b.u[i] = sliding_parts(b, i)
  end
  return b, at + 1
end

local function bucket_take(b, cost)
  if not bucket_add(b, cost) then return false end
  for i = 1, b.count do
    local ends, counts = b.ends[i], b.counts[i]
    local part = (math.floor(b.now / b.p[i]) + 1) * b.p[i]
    if #ends == 0 or ends[#ends] < part then
      ends[#ends + 1], counts[#counts + 1] = part, 0
    end
    counts[#counts] = counts[#counts] + cost
  end
  return true
end

local function bucket_retry(b, cost)
  return bucket_until(b, cost, function(i, over)
    local part = 0
    while over > 0 do
      part = part + 1
      over = over - b.counts[i][part]
    end
    return b.ends[i][part] + b.w[i] - b.now
  end)
end

local function bucket_reset(b)
  return bucket_longest(b, function(i)
    local ends = b.ends[i]
    return #ends > 0 and ends[#ends] + b.w[i] - b.now or 0
  end)
end

local function bucket_save(b)
  if not b.changed then return end
  local set = {'t', int(b.now)}
  for i = 1, b.count do
    local parts = {}
    for j, e in ipairs(b.ends[i]) do parts[j] = int(e) .. ' ' .. int(b.counts[i][j]) end
    bucket_append(set, 'l' .. i, table.concat(parts, ' '))
    if b.fresh then bucket_append(set, 'w' .. i, int(b.w[i])) end
  end
  bucket_write(b, set, bucket_reset(b))
end
