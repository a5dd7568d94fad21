-- expire.lua: a person has looked jobs up whose time has passed, and they were not charged: they are parked as expired, and nobody doubts them
-- any more. Their key moves on, as after any definite no.
-- KEYS 1 counters  2 parked:expired  3 acts, then for each job: record
-- ARGV 1 now (µs, 0 = Redis's)  2 act's place in the trail ('' = none), then for each job: id, generation it is parked with
-- returns for each job: 1 settled  0 not parked like this any more, or not in doubt
local now, answers, settled = now_us(ARGV[1]), {}, 0
for i = 4, #KEYS do
  local record, a, answer = KEYS[i], 2 * i - 5, 0
  local id = ARGV[a]
  local v = redis.call('HMGET', record, '@state', '@generation', '@reason', '@may_have_charged', '@key_generation')
  if v[1] == 'parked' and v[2] == ARGV[a + 1] and in_doubt(v[3], v[4]) then
    local when = stamp(KEYS[1], now)
    redis.call('ZREM', books_key(record, books_place('parked', v[3])), id)
    become(record, 'parked', '@reason', 'expired', '@error', 'its time had passed when it was found not to be charged', '@parked_at', int(when),
      '@key_generation', int(next_key(record, v[5])), '@looked_up_at', int(now), '@settled', settled_by('not_done', now, ARGV[2]))
    redis.call('HDEL', record, '@first_call_at', '@may_have_charged', '@reference')
    redis.call('ZADD', KEYS[2], int(when), id)
    settled, answer = settled + 1, 1
  end
  answers[#answers + 1] = answer
end
if settled > 0 and ARGV[2] ~= '' then redis.call('HINCRBY', KEYS[3], ARGV[2], settled) end
return answers
