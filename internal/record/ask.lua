-- ask.lua: a person has the gateway asked about parked jobs that may have been charged. The jobs become pending, and their next look-up is due now.
-- KEYS 1 asking  2 acts, then for each job: record
-- ARGV 1 now (µs, 0 = Redis's)  2 act's place in the trail ('' = none), then for each job: id, generation it is parked with
-- returns for each job: 1 asked about  0 no longer parked like this, or not in doubt
local now, answers, asked = now_us(ARGV[1]), {}, 0
for i = 3, #KEYS do
  local record, a, answer = KEYS[i], 2 * i - 3, 0
  local id = ARGV[a]
  local job = read_all(record)
  if job.@state == 'parked' and job.@generation == ARGV[a + 1] and in_doubt(job.@reason, job.@may_have_charged) and job.@reason ~= 'unreadable' then
    redis.call('ZREM', books_key(record, books_place('parked', job.@reason)), id)
    job.drop = {'@reason', '@parked_at', '@absent', '@ask_failed', '@ask_failing', '@ask_owner', '@seen', '@self_replays'}
    become_of(record, job, 'pending', '@asked', '0', '@ask_at', int(now), '@call_ended_at', job.@call_ended_at or job.@parked_at or int(now),
      '@may_have_charged', '1', '@accepted_by_gateway', string.find(job.@history or '', ' accepted\n$') and '1' or '0')
    redis.call('ZADD', KEYS[1], int(now), id)
    asked, answer = asked + 1, 1
  end
  answers[#answers + 1] = answer
end
if asked > 0 and ARGV[2] ~= '' then redis.call('HINCRBY', KEYS[2], ARGV[2], asked) end
return answers
