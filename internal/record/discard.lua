-- discard.lua: parked jobs are removed for good. Their payloads and what the gateway said go; the rest of their records stays for the dedupe window.
-- KEYS 1 counters  2 acts, then for each job: record, parked:<its reason>
-- ARGV 1 now (µs, 0 = Redis's)  2 dedupe (ms)  3 act's place in the trail ('' = none), then for each job: id, generation it is parked with, reason
-- returns for each job: 1 discarded  0 no longer parked like this
local now, answers, discarded = now_us(ARGV[1]), {}, 0
local key = 3
for a = 4, #ARGV, 3 do
  local record, answer = KEYS[key], 0
  local v = redis.call('HMGET', record, '@state', '@generation', '@reason')
  if v[1] == 'parked' and v[2] == ARGV[a + 1] and v[3] == ARGV[a + 2] then
    redis.call('ZREM', KEYS[key + 1], ARGV[a])
    finish(record, KEYS[1], 'discarded', now, ARGV[2])
    discarded, answer = discarded + 1, 1
  end
  answers[#answers + 1] = answer
  key = key + 2
end
if discarded > 0 and ARGV[3] ~= '' then redis.call('HINCRBY', KEYS[2], ARGV[3], discarded) end
return answers
