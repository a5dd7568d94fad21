-- parked_sums.lua reads what the books of parked jobs should say about some jobs.
-- KEYS their records
-- ARGV 1 the reason for which they are parked
-- returns the sum of the lengths of their payloads, then for each that has it, its money (books.lua); damaged records are left out
local bytes, answer = 0, {'0'}
for _, record in ipairs(KEYS) do
  local v = redis.pcall('HMGET', record, '@state', '@reason', '@money')
  if v[1] == 'parked' and v[2] == ARGV[1] then
    bytes = bytes + payload_bytes(record)
    answer[#answer + 1] = v[3] or nil
  end
end
answer[1] = int(bytes)
return answer
