-- resolve.lua: a person has looked up jobs in doubt, and they were charged. They are done, as if their calls had succeeded.
-- KEYS 1 counters  2 acts, then for each job: record
-- ARGV 1 now (µs, 0 = Redis's)  2 dedupe (ms)  3 act's place in the trail ('' = none)  4 the gateway's own reference ('' = none is known),
--      then for each job: id, generation it is parked with
-- returns for each job: 1 done now  0 no longer parked like this, or not in doubt
local now, answers, resolved = now_us(ARGV[1]), {}, 0
for i = 3, #KEYS do
  local record, a, answer = KEYS[i], 2 * i - 1, 0
  local v = redis.call('HMGET', record, '@state', '@generation', '@reason', '@may_have_charged')
  if v[1] == 'parked' and v[2] == ARGV[a + 1] and in_doubt(v[3], v[4]) then
    redis.call('ZREM', books_key(record, books_place('parked', v[3])), ARGV[a])
    redis.call('HSET', record, '@settled', settled_by('done', now, ARGV[3]))
    if ARGV[4] ~= '' then redis.call('HSET', record, '@reference', ARGV[4]) end
    finish(record, KEYS[1], 'done', now, ARGV[2])
    resolved, answer = resolved + 1, 1
  end
  answers[#answers + 1] = answer
end
if resolved > 0 and ARGV[3] ~= '' then redis.call('HINCRBY', KEYS[2], ARGV[3], resolved) end
return answers
