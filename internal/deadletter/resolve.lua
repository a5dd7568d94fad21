-- resolve.lua: a person has looked jobs of unknown outcome up, and they were charged: they are done, as if their call had said so.
-- KEYS 1 counters  2 parked:unknown_outcome, then for each job: record
-- ARGV 1 now (µs, 0 = Redis's)  2 dedupe (ms), then for each job: id, generation it is parked with
-- returns for each job: 1 done now  0 not parked like this any more
local now, answers = now_us(ARGV[1]), {}
local key = 3
for a = 3, #ARGV, 2 do
  local record, answer = KEYS[key], 0
  local v = redis.call('HMGET', record, 's', 'g', 'r')
  if v[1] == 'parked' and v[2] == ARGV[a + 1] and v[3] == 'unknown_outcome' then
    redis.call('ZREM', KEYS[2], ARGV[a])
    finish(record, KEYS[1], now, ARGV[2])
    answer = 1
  end
  answers[#answers + 1] = answer
  key = key + 1
end
return answers
