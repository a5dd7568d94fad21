-- receipt.lua: a script that can be asked again. An offer comes twice when its answer was lost, and the first may even come after the
-- second, out of a stalled connection: whichever is first is carried out, and the other gets its answer.
-- Needs offered(), the script itself, which returns numbers alone and finds neither of these in KEYS and ARGV:
-- KEYS last: receipt, the answer to the lane's last offer
-- ARGV last two: number of the offer, how long its answer is kept (ms)
-- returns what offered() returns, or has returned; an error if the lane has gone on since: nobody waits for the answer then
local receipt, lifetime, number = table.remove(KEYS), table.remove(ARGV), tonumber(table.remove(ARGV))

local function kept()
  local answers, last = {}, nil
  for n in string.gmatch(redis.call('GET', receipt) or '', '%S+') do
    if last then answers[#answers + 1] = tonumber(n) else last = tonumber(n) end
  end
  return last or 0, answers
end

local last, answers = kept()
if last == number then return answers end
if last > number then return redis.error_reply('SUPERSEDED a later offer of this lane has been answered') end
answers = offered()
local text, digits = {int(number)}, {} -- most answers are one of a few small numbers
for i = 1, #answers do
  local n = answers[i]
  local d = digits[n]
  if not d then
    d = int(n)
    digits[n] = d
  end
  text[i + 1] = d
end
redis.call('SET', receipt, table.concat(text, ' '), 'PX', lifetime)
return answers
