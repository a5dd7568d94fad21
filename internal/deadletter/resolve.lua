-- resolve.lua: a person has looked jobs of unknown outcome up, and they were charged: they are done, as if their call had said so.
-- KEYS 1 counters  2 parked:unknown_outcome  3 acts, then for each job: record
-- ARGV 1 now (µs, 0 = Redis's)  2 dedupe (ms)  3 act's place in the trail ('' = none), then for each job: id, generation it is parked with
-- returns for each job: 1 done now  0 not parked like this any more
local now, answers, resolved = now_us(ARGV[1]), {}, 0
local key = 4
for a = 4, #ARGV, 2 do
  local record, answer = KEYS[key], 0
  local v = redis.call('HMGET', record, 's', 'g', 'r')
  if v[1] == 'parked' and v[2] == ARGV[a + 1] and v[3] == 'unknown_outcome' then
    redis.call('ZREM', KEYS[2], ARGV[a])
    finish(record, KEYS[1], now, ARGV[2])
    resolved, answer = resolved + 1, 1
  end
  answers[#answers + 1] = answer
  key = key + 1
end
if resolved > 0 and ARGV[3] ~= '' then redis.call('HINCRBY', KEYS[3], ARGV[3], resolved) end
return answers
