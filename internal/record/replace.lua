-- replace.lua: a person gives parked jobs another payload. They stay parked, and their next call carries the next generation of
-- the idempotency key: a gateway answers a used key with its first answer again.
-- KEYS for each job: record, then counters
-- ARGV 1 now (µs, 0 = Redis's), then for each job: generation it is parked with, reason, digest it has now, payload, digest of that,
--      money (batch.lua; '' = none), "1": an earlier call may have charged, and the gateway has said since that it did not
-- returns for each job: 1 replaced  0 not as given any more
local now, answers = now_us(ARGV[1]), {}

for i = 1, #KEYS - 1 do
  local a, record = 7 * i - 5, KEYS[i]
  local v = redis.call('HMGET', record, '@state', '@generation', '@reason', '@digest', '@key_generation', '@parked_at', '@may_have_charged')
  local same = v[1] == 'parked' and v[2] == ARGV[a] and v[3] == ARGV[a + 1] and v[4] == ARGV[a + 2] and (not v[7] or ARGV[a + 6] == '1')
  if same then
    local fields = {'@digest', ARGV[a + 4], '@key_generation', int(next_key(record, v[5])), '@edited_at', int(math.max(now, tonumber(v[6]) or 0))}
    payload_put(fields, #fields, ARGV[a + 3], 1, #ARGV[a + 3])
    local bytes = payload_bytes(record)
    redis.call('HDEL', record, '@first_call_at', '@may_have_charged', '@reference', unpack(PAYLOAD))
    redis.call('HSET', record, unpack(fields))
    reprice(record, ARGV[a + 5], bytes)
  end
  answers[i] = same and 1 or 0
end
return answers
