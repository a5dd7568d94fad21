-- parked_sums.lua: what the books of what is parked say of some jobs. Reads only.
-- KEYS their records
-- ARGV 1 the reason for which they are parked
-- returns how long their payloads are together, then of each that has it, its money (batch.lua); what is no record is left out
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
