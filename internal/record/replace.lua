-- replace.lua: a person gives parked jobs another payload. They stay parked, and their next call carries the next generation of
-- the idempotency key, because a gateway answers a used key with its first answer. If the batch of the job is now above the sum up to which it needs no approval, the job waits for one, as
-- a new job does, and so does the whole batch: this payload was not approved. Its payee and its amount may both have changed.
-- KEYS for each job: record, then counters
-- ARGV 1 now (µs, 0 = Redis's)  2 where batches need an approval, the sums up to which they need none, a blank, and who replaces, as accept.lua has them; else ''
--      then for each job: id, generation it is parked with, reason, digest it has now, payload, digest of that,
--      money (books.lua; '' = none), "1": an earlier call may have charged, and the gateway has said since that it did not
-- returns for each job: 2 replaced, and it waits for an approval  1 replaced  0 it has changed
local now, answers, jobs = now_us(ARGV[1]), {}, #KEYS - 1
local sums_free, sender = string.match(ARGV[2], '^ ?(%S*) ?(.*)$')
local counters, brought = KEYS[#KEYS], {} -- how many jobs of each batch were replaced

-- reprice gives a parked job's record other money ('' = none), and returns how long its payload was until now.
local function reprice(record, money, bytes)
  local v = redis.call('HMGET', record, '@reason', '@batch', '@money')
  local place, books = books_place('parked', v[1]), {books_key(record, 'money')}
  books_count(books_key(record, 'counters'), 'b:' .. place, payload_bytes(record) - bytes)
  if (v[3] or '') == money then return end
  if v[2] then books[2] = books_key(record, 'batch:' .. v[2]) end
  for _, key in ipairs(books) do
    if v[3] then books_money(key, place, v[3], -1) end
    if money ~= '' then books_money(key, place, money, 1) end
  end
  if money == '' then redis.call('HDEL', record, '@money') else redis.call('HSET', record, '@money', money) end
end

for i = 1, jobs do
  local a, record = 8 * i - 5, KEYS[i]
  local v = redis.call('HMGET', record, '@state', '@generation', '@reason', '@digest', '@key_generation', '@parked_at', '@may_have_charged', '@batch')
  local same = v[1] == 'parked' and v[2] == ARGV[a + 1] and v[3] == ARGV[a + 2] and v[4] == ARGV[a + 3] and (not v[7] or ARGV[a + 7] == '1')
  if same then
    local fields = {'@digest', ARGV[a + 5], '@key_generation', int(next_key(record, v[5])), '@edited_at', int(math.max(now, tonumber(v[6]) or 0))}
    payload_put(fields, #fields, ARGV[a + 4], 1, #ARGV[a + 4])
    local bytes = payload_bytes(record)
    redis.call('HDEL', record, '@first_call_at', '@may_have_charged', '@reference', unpack(PAYLOAD))
    redis.call('HSET', record, unpack(fields))
    reprice(record, ARGV[a + 6], bytes)
    if sums_free ~= '' and v[8] then
      approval_less(books_key(record, 'batch:' .. v[8]), ARGV[a + 6]) -- the old money was below zero, and stays in that sum: it makes no room either
      brought[v[8]] = (brought[v[8]] or 0) + 1
    end
  end
  answers[i] = same and 1 or 0
end

local limits = approval_of(sums_free)
for batch, n in pairs(brought) do
  local key = books_key(KEYS[1], 'batch:' .. batch)
  redis.call('HINCRBY', key, 'from/' .. sender, int(n))
  local why = approval_over(key, limits, books_none(), true)
  if why then approval_ask(KEYS[1], batch, now, why) end
end

-- A job whose batch waits for an approval is parked for that, in its place in the order of parking. A job that a pause or a cancel keeps back stays so.
for i = 1, jobs do
  local a, record = 8 * i - 5, KEYS[i]
  local batch = answers[i] == 1 and redis.call('HGET', record, '@batch')
  local why, reason = books_stopped(record, batch)
  if reason == 'awaiting_approval' then
    answers[i] = 2
    if ARGV[a + 2] ~= reason then
      shelf_remove(books_key(record, 'parked:' .. ARGV[a + 2]), ARGV[a])
      local when = stamp(counters, now)
      become(record, 'parked', '@reason', reason, '@error', why, '@parked_at', int(when), '@edited_at', int(when))
      redis.call('ZADD', books_key(record, 'parked:' .. reason), int(when), ARGV[a])
    end
  end
end
return answers
