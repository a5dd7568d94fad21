-- approval.lua: batches that wait until a second person has approved them. A fragment: local functions only, behind batch.lua. Fields of the batch's books:
--   awaits, over    since when it waits (µs), and why
--   from/VIA/NAME   how many of its jobs somebody brought in, and how it is known that it was he (roles.Proof). Of a token whose configuration says whose it is, that is behind a blank
--   approved, approver, approval_why, approved_sums  when it was approved last (µs), by whom and why, and for what: CURRENCY=SUM in minor units, -=N jobs whose amount can't be read, a comma behind each
--   l:CURRENCY L:CURRENCY  the money below nothing that came to it (l + L * 10^9, as m and M of batch.lua): it makes room for no other money
-- spillway:{gateway}:awaiting has the batches that wait, by the moment.

-- approval_sums returns the money of all of a batch's jobs, wherever they stand, by currency, how many of them have an amount that can't be read, and how many they are.
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

-- approval_text is what is approved, as approved_sums has it.
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

-- approval_less writes down that a job with money below nothing has come to a batch.
local function approval_less(key, money)
  local currency, low, high = books_parts(money)
  if not currency or low + high * 1000000000 >= 0 then return end
  books_count(key, 'l:' .. currency, -low)
  books_count(key, 'L:' .. currency, -high)
end

-- approval_over says why a batch may not go on without an approval once these jobs (a sum of those with money above nothing) have come to it; nil if it may. limits are the sums up
-- to which it may. anew: what was approved does not count, since it is another payload by now (replace.lua).
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

-- approval_ask lets a batch wait from now on. A dispatcher parks the jobs that wait; until then open.lua keeps them from being called.
local function approval_ask(record, batch, now, why)
  local key = books_key(record, 'batch:' .. batch)
  if redis.call('HSETNX', key, 'awaits', int(now)) == 0 then return end
  redis.call('HSET', key, 'over', why)
  redis.call('ZADD', books_key(record, 'awaiting'), int(now), batch)
  redis.call('HSET', books_key(record, 'shelving'), batch, 'await')
end

-- approval_is says that who did something (how it is known, and his name as from/ has it) may be the one who approves it (his name, and whose token he shows; '' = nobody has said so).
-- Whether letters are large or small makes no difference, and neither does what is behind the @ of one where the other has none, or was typed.
local function approval_is(via, did, who, person)
  did, who, person = string.lower(did), string.lower(who), string.lower(person)
  local name, of = did, ''
  if via == 'token' then name, of = string.match(did, '^(%S*) ?(.*)$') end
  for _, a in ipairs({name, of}) do
    if a ~= '' and (a == who or a == person) then return true end
  end
  local a, b = of ~= '' and of or name, person ~= '' and person or who
  local x, y = string.match(a, '^[^@ ]*'), string.match(b, '^[^@ ]*') -- behind a blank, a typed name says where
  return x ~= '' and x == y and (x == a or y == b or via ~= 'token' and via ~= 'oidc')
end
