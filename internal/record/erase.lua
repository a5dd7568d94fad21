-- erase.lua: a person erases personal data from the records of jobs that are over: payload, error and reference. The digest goes too, since a payload can be guessed from
-- it; '-' replaces it, and keeps the id known (accept.lua). A payee can be guessed from what the job's batch is compared by: that goes, too. The facts that the books consist of stay.
-- KEYS 1 acts, then for each job: record, what was set aside of it
-- ARGV 1 now (µs, 0 = Redis's)  2 act's place in the trail ('' = none), then for each job: when it was accepted (µs): after the dedupe window an id may begin another life
-- returns for each job: 1 erased  2 erased already  0 not over, or not this job any more
local now, answers, erased = now_us(ARGV[1]), {}, 0
for i = 2, #KEYS, 2 do
  local record, answer = KEYS[i], 0
  local v = redis.call('HMGET', record, '@state', '@accepted_at', '@erased_at', '@batch')
  if books_over(v[1]) and v[2] == ARGV[2 + i / 2] then
    answer = v[3] and 2 or 1
    if answer == 1 then
      redis.call('HDEL', record, '@reference', unpack(OVER))
      redis.call('HDEL', record, unpack(PAYLOAD))
      redis.call('HSET', record, '@digest', '-', '@erased_at', int(now))
      redis.call('DEL', KEYS[i + 1])
      if v[4] then redis.call('DEL', books_key(record, 'prints:' .. v[4])) end
      erased = erased + 1
    end
  end
  answers[#answers + 1] = answer
end
if erased > 0 and ARGV[2] ~= '' then redis.call('HINCRBY', KEYS[1], ARGV[2], erased) end
return answers
