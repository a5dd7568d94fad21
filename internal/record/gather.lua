-- gather.lua: what several jobs of one script change together. A fragment: local functions only, behind books.lua. Between gather() and
-- gathered(), changes that would be made job by job are noted: of the books, sorted sets, counts and times to live. Each of these then changes once. The script must not
-- read in between what is noted. All of it is of one gateway.
local gathers -- what was noted, by key; nil if each change is made at once

-- gather_add adds a member to a sorted set.
local function gather_add(set, score, member)
  if not gathers then return redis.call('ZADD', set, score, member) end
  local all = gathers.add[set] or {}
  gathers.add[set] = all
  all[#all + 1] = score
  all[#all + 1] = member
end

-- gather_delete deletes a key.
local function gather_delete(key)
  if not gathers then return redis.call('DEL', key) end
  gathers.gone[#gathers.gone + 1] = key
end

-- gather_count adds one to a number. The first time, it sets when the number expires (Unix seconds; nil: never).
local function gather_count(key, till, n)
  if gathers then
    gathers.count[key] = (gathers.count[key] or 0) + 1
    gathers.till[key] = till
    return
  end
  n = n or 1
  if redis.call('INCRBY', key, int(n)) == n and till then redis.call('EXPIREAT', key, till) end
end

-- gather_book adds one to a field of a hash.
local function gather_book(key, field)
  if not gathers then return redis.call('HINCRBY', key, field, '1') end
  local fields = gathers.book[key] or {}
  gathers.book[key] = fields
  fields[field] = (fields[field] or 0) + 1
end

-- gather_once reports whether this script asks for a key for the first time, or nothing is gathered.
local function gather_once(key)
  if not gathers then return true end
  local before = gathers.once[key]
  gathers.once[key] = true
  return not before
end

-- gather_first has something done before everything else that was noted, once, after all jobs. It returns false if nothing is gathered.
local function gather_first(what)
  if not gathers then return false end
  gathers.first = what
  return true
end

-- gather_seen returns what was passed to gather_see under this name, in this script and for this gateway, or nil.
local function gather_seen(name) return gathers and gathers.seen[name] end
local function gather_see(name, what)
  if gathers then gathers.seen[name] = what end
end

-- gather_stopped is books_stopped, asked once or twice for each batch.
local function gather_stopped(record, batch, despite)
  if not gathers or not batch then return books_stopped(record, batch, despite) end
  local asked = batch .. (despite and ' despite' or ' ')
  local known = gathers.stopped[asked]
  if not known then
    known = {books_stopped(record, batch, despite)}
    gathers.stopped[asked] = known
  end
  return known[1], known[2]
end

-- gather_stay lets the books of a batch expire after a while (ms) if none of its jobs is live. It can't be resumed then.
local function gather_stay(key, ids, stay)
  if gathers then
    gathers.stay[key] = {ids, stay}
  elseif redis.call('HGET', key, 'live') == '0' then
    redis.call('PEXPIRE', key, stay)
    redis.call('PEXPIRE', ids, stay)
    local name = string.match(key, '^[^}]*}:batch:(.*)$')
    redis.call('ZREM', shelf_key(key, 'braked'), name)
    if redis.call('HDEL', key, 'awaits') == 1 then redis.call('ZREM', shelf_key(key, 'awaiting'), name) end
  end
end

-- forget lets the record of a job that is over expire. With the last record of its batch (false: it has none), the batch's books expire, later.
local function forget(record, dedupe_ms, batch)
  redis.call('PEXPIRE', record, dedupe_ms)
  if not batch then return end
  local key = books_key(record, 'batch:' .. batch)
  if gathers and gathers.stay[key] then return end
  gather_stay(key, books_key(record, 'batch-ids:' .. batch), int(tonumber(dedupe_ms) + BOOKS_STAY))
end

-- gather begins with a number of jobs of a gateway. For a single job, each change is made at once.
local function gather(jobs)
  shelf_begin()
  books_begin()
  gathers = nil
  if jobs == 1 then return end
  gathers = {add = {}, gone = {}, count = {}, till = {}, book = {}, once = {}, stay = {}, stopped = {}, seen = {}}
  shelf_gather()
  books_gather()
end

local function gathered()
  local all = gathers
  if not all then return end
  gathers = nil
  if all.first then all.first() end
  books_gathered()
  shelf_gathered()
  for set, members in pairs(all.add) do redis.call('ZADD', set, unpack(members)) end
  if #all.gone > 0 then redis.call('DEL', unpack(all.gone)) end
  for key, fields in pairs(all.book) do
    for field, n in pairs(fields) do redis.call('HINCRBY', key, field, int(n)) end
  end
  for key, n in pairs(all.count) do gather_count(key, all.till[key], n) end
  for key, v in pairs(all.stay) do gather_stay(key, v[1], v[2]) end
end

-- books_join notes a new job; batch and money are '' if it has none. books_joined writes all that were noted, so that a chunk costs little more than
-- one job. joining has the batches by name; '' are parked jobs without one.
local joining, joining_order, joining_record = {}, {}, nil

local function books_joining(record, batch)
  local b = {key = books_key(record, 'batch:' .. batch), list = books_key(record, 'batch-ids:' .. batch),
    names = books_key(record, 'batches'), jobs = 0, ids = {}, places = {}}
  joining[batch], joining_record = b, record
  joining_order[#joining_order + 1] = batch
  return b
end

-- books_joining_sum returns the sum of one place in a table of sums.
local function books_joining_sum(sums, place)
  local sum = sums[place] or books_none()
  sums[place] = sum
  return sum
end

local function books_join(record, id, place, batch, money, bytes)
  if money == '' then money = nil end
  if batch == '' and string.sub(place, 1, 7) ~= 'parked:' then return end
  local b = joining[batch] or books_joining(record, batch)
  b.jobs = b.jobs + 1
  b.ids[b.jobs] = id
  books_sum(books_joining_sum(b.places, place), money, bytes)
end

-- books_join_all is books_join for all jobs of a chunk, if they are in one place. sums is their sum: "bytes unread CURRENCY=m,M ...", which are the bytes of the payloads,
-- the number of amounts that can't be read, and the money by currency.
local function books_join_all(record, ids, place, batch, sums)
  if batch == '' and string.sub(place, 1, 7) ~= 'parked:' then return end
  local b, bytes, unread = books_joining(record, batch), string.match(sums, '^(%d+) (%d+)')
  local sum = books_joining_sum(b.places, place)
  b.jobs, b.ids, sum.jobs, sum.bytes, sum.unread = #ids, ids, #ids, tonumber(bytes), tonumber(unread)
  for currency, low, high in string.gmatch(sums, ' (%u*)=(-?%d+),(-?%d+)') do sum.low[currency], sum.high[currency] = tonumber(low), tonumber(high) end
end

local function books_joined(now)
  for _, batch in ipairs(joining_order) do
    local b = joining[batch]
    for place, sum in pairs(b.places) do books_parked(joining_record, place, sum, 1) end
    if batch ~= '' then
      redis.call('ZADD', b.names, 'NX', int(now), batch)
      for place, sum in pairs(b.places) do
        books_count(b.key, 'n:' .. place, sum.jobs)
        books_sums(b.key, place, sum, 1)
      end
      redis.call('HINCRBY', b.key, 'live', b.jobs)
      for i = 1, b.jobs, 1000 do redis.call('RPUSH', b.list, unpack(b.ids, i, math.min(i + 999, b.jobs))) end
      redis.call('PERSIST', b.key)
      redis.call('PERSIST', b.list)
    end
  end
end
