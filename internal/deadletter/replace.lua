-- replace.lua: a person gives parked jobs another payload. They stay parked, and their next call carries the next generation of
-- the idempotency key: a gateway answers a used key with its first answer again.
-- KEYS for each job: record
-- ARGV 1 now (µs, 0 = Redis's), then for each job: generation it is parked with, reason, digest it has now, payload, digest of that,
--      money (batch.lua; '' = none)
-- returns for each job: 1 replaced  0 not as given any more
local now, answers = now_us(ARGV[1]), {}

-- next_key returns the next generation of the idempotency key that is no other job's id.
local function next_key(record, present)
  local k = (tonumber(present) or 1) + 1
  while redis.call('EXISTS', record .. '~' .. int(k)) == 1 do k = k + 1 end
  return k
end

for i, record in ipairs(KEYS) do
  local a = 6 * i - 4
  local v = redis.call('HMGET', record, 's', 'g', 'r', 'd', 'k', 'pa')
  local same = v[1] == 'parked' and v[2] == ARGV[a] and v[3] == ARGV[a + 1] and v[4] == ARGV[a + 2]
  if same then
    local fields = {'d', ARGV[a + 4], 'k', int(next_key(record, v[5])), 'ed', int(math.max(now, tonumber(v[6]) or 0))}
    payload_put(fields, #fields, ARGV[a + 3], 1, #ARGV[a + 3])
    redis.call('HDEL', record, 'f', 'am', unpack(PAYLOAD))
    redis.call('HSET', record, unpack(fields))
    reprice(record, ARGV[a + 5])
  end
  answers[i] = same and 1 or 0
end
return answers
