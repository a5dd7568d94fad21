-- approval.lua: batches that wait until a second person has approved them. A fragment: local functions only, behind gather.lua. Fields of the batch's books:
--   awaits, over    since when it waits (µs), and why
--   from/VIA/NAME   how many of its jobs a person or program brought in, and how its identity is known (roles.Proof). If the configuration says whose token it was, that follows after a blank
--   approved, approver, approval_why, approved_sums  when it was last approved (µs), by whom and why, and for what: CURRENCY=SUM in minor units, -=N jobs whose amount can't be read, each followed by a comma
--   l:CURRENCY L:CURRENCY  the money below zero that came to it (l + L * 10^9, as m and M of books.lua): it makes no room for other money
-- spillway:{gateway}:awaiting has the batches that wait, by the moment.

-- approval_sums returns the money of all jobs of a batch, whatever their state, by currency; how many of them have an amount that can't be read; and how many they are.
local function approval_sums(key)
  local sums, unread, jobs = {}, 0, 0
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local field, n = flat[i], tonumber(flat[i + 1]) or 0
    local kind = string.sub(field, 1, 2)
    if kind == 'n:' then jobs = jobs + n end
    if kind == 'u:' then unread = unread + n end
    if kind == 'm:' or kind == 'M:' then
      local currency = string.match(field, '([^:]*)$')
      sums[currency] = (sums[currency] or 0) + (kind == 'M:' and n * 1000000000 or n)
    end
  end
  return sums, unread, jobs
end

-- approval_text returns what is approved, in the form of approved_sums.
local function approval_text(sums, unread)
  local all = {}
  for currency, sum in pairs(sums) do
    if sum ~= 0 then all[#all + 1] = currency .. '=' .. int(sum) end
  end
  if unread ~= 0 then all[#all + 1] = '-=' .. int(unread) end
  table.sort(all)
  return table.concat(all, ',')
end

-- approval_of reads CURRENCY=SUM,…
local function approval_of(text)
  local of = {}
  for currency, sum in string.gmatch(text or '', '([^,=]*)=(-?%d+)') do of[currency] = tonumber(sum) end
  return of
end

-- approval_less records that a job with money below zero has come to a batch.
local function approval_less(key, money)
  local currency, low, high = books_parts(money)
  if not currency or low + high * 1000000000 >= 0 then return end
  books_count(key, 'l:' .. currency, -low)
  books_count(key, 'L:' .. currency, -high)
end

-- approval_add adds the money of a new job to a sum of those that come to a batch. Money below zero makes no room for other money.
local function approval_add(coming, money)
  local currency, low, high = books_parts(money)
  if currency and low + high * 1000000000 < 0 then money = '0 ' .. currency end
  books_sum(coming, money ~= '' and money or nil, 0)
end

-- approval_over returns why a batch needs an approval to go on once these jobs (a sum of those with money above zero) have come to it, or nil. limits are the sums up
-- to which it needs none. anew: what was approved does not count, because the payloads have changed since (replace.lua).
local function approval_over(key, limits, coming, anew)
  local sums, unread = approval_sums(key)
  local approved = anew and {} or approval_of(redis.call('HGET', key, 'approved_sums') or '')
  unread = unread + coming.unread
  for currency, low in pairs(coming.low) do sums[currency] = (sums[currency] or 0) + low + (coming.high[currency] or 0) * 1000000000 end
  for currency, sum in pairs(sums) do
    local less = redis.call('HMGET', key, 'l:' .. currency, 'L:' .. currency)
    sums[currency] = sum + (tonumber(less[1] or '') or 0) + (tonumber(less[2] or '') or 0) * 1000000000
  end
  local names = {}
  for currency in pairs(sums) do names[#names + 1] = currency end
  table.sort(names)
  for _, currency in ipairs(names) do
    local sum, limit = sums[currency], limits[currency]
    if sum > (limit or 0) and sum > (approved[currency] or 0) then
      local named = currency == '' and 'without a currency' or 'in ' .. currency
      return limit and 'its sum ' .. named .. ' is above what goes without one' or 'it has money ' .. named .. ', of which no sum goes without one'
    end
  end
  if unread > (approved['-'] or 0) then return 'amounts of its jobs can\'t be read' end
  return nil
end

-- approval_ask makes a batch wait from now on. A dispatcher parks its waiting jobs; until then open.lua keeps them from being called.
local function approval_ask(record, batch, now, why)
  local key = books_key(record, 'batch:' .. batch)
  if redis.call('HSETNX', key, 'awaits', int(now)) == 0 then return end
  redis.call('HSET', key, 'over', why)
  redis.call('ZADD', books_key(record, 'awaiting'), int(now), batch)
  redis.call('HSET', books_key(record, 'shelving'), batch, 'await')
end

-- approval_awaits returns, by batch, why it needs an approval once the jobs of a chunk are in. newcomers calls a function with the batch and the money of each. ask is accept.lua's: a batch
-- whose key is of another type is left out.
local function approval_awaits(record, sums_free, newcomers, ask)
  local awaits, coming, limits = {}, {}, approval_of(sums_free)
  newcomers(function(of, money)
    coming[of] = coming[of] or books_none()
    approval_add(coming[of], money)
  end)
  for of, sum in pairs(coming) do
    local key = books_key(record, 'batch:' .. of)
    if of ~= '' and ask('HLEN', key) then awaits[of] = approval_over(key, limits, sum) end
  end
  return awaits
end

-- approval_joined records what came to batches with a chunk: the money below zero (below has batch and money in turn), who brought the jobs in, and that batches wait from now on.
local function approval_joined(record, now, awaits, below, sender)
  for i = 1, #below, 2 do approval_less(books_key(record, 'batch:' .. below[i]), below[i + 1]) end
  for of, b in pairs(joining) do
    if of ~= '' then redis.call('HINCRBY', b.key, 'from/' .. sender, b.jobs) end
    if awaits[of] then approval_ask(record, of, now, awaits[of]) end
  end
end

-- approval_is reports whether the person who brought jobs in (how their identity is known, and their name as from/ has it) may be the one who approves (their name, and the owner of their token, '' = unknown).
-- It ignores case, and what follows the @ of one name if the other has no @, or was typed.
local function approval_is(via, did, who, person)
  did, who, person = string.lower(did), string.lower(who), string.lower(person)
  local name, of = did, ''
  if via == 'token' then name, of = string.match(did, '^(%S*) ?(.*)$') end
  for _, a in ipairs({name, of}) do
    if a ~= '' and (a == who or a == person) then return true end
  end
  local a, b = of ~= '' and of or name, person ~= '' and person or who
  local x, y = string.match(a, '^[^@ ]*'), string.match(b, '^[^@ ]*') -- after a blank, a typed name says where
  return x ~= '' and x == y and (x == a or y == b or via ~= 'token' and via ~= 'oidc')
end
