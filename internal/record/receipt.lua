-- receipt.lua: a script that can be asked again. An offer comes twice if its answer was lost. The first may even come after the
-- second, out of a stalled connection. Whichever comes first is carried out, and the other gets its answer.
-- It needs offered(), the script itself, which returns a text, or an error if it changed nothing. offered() finds neither of these in KEYS and ARGV:
-- KEYS last two: receipt, the number of the lane's last offer and the answer to it, and the receipt of the lane that the offer must come behind
-- ARGV first: now (µs, 0 = Redis's); last four: number of the offer, how long its answer is kept (ms), number of the offer that it must come behind (0: none),
--      when it is too late to carry it out (µs, 0: never)
-- returns what offered() returns, or has returned; an error if the lane has gone on since, because no caller waits for the answer then; or, with
-- nothing changed, an error if it is too late (LATE), if the offer has overtaken the one that it must come behind, or if the answer to that one begins with a ! or a #, so that nothing goes in behind it
local ahead, receipt = table.remove(KEYS), table.remove(KEYS)
local till = table.remove(ARGV)
local after, lifetime, number = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local last, answer = string.match(redis.call('GET', receipt) or '0 ', '^(%d+) (.*)$')
if last == number then return answer end
if tonumber(last) > tonumber(number) then return redis.error_reply('SUPERSEDED a later offer of this lane has been answered') end
if till ~= '0' and now_us(ARGV[1]) >= tonumber(till) then return redis.error_reply('LATE this offer was to be carried out by now') end
if after ~= '0' then
  local carried, shut = string.match(redis.call('GET', ahead) or '0 ', '^(%d+) ([!#]?)')
  if tonumber(carried) < tonumber(after) then return redis.error_reply('EARLY the offer before this one was not carried out yet') end
  if shut ~= '' then return redis.error_reply('SHUT nothing goes in behind the offer before this one') end
end
answer = offered()
if type(answer) == 'table' then return answer end -- an error: nothing was changed
redis.call('SET', receipt, number .. ' ' .. answer, 'PX', lifetime)
return answer
