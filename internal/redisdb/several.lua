-- several.lua runs a script's body, which is the function one, for several callers, one after the other. Composed after gather.lua, or after a substitute for it
-- if nothing is gathered.
-- KEYS the keys that are the same for all, then those of each caller that are not
-- ARGV 1 how many callers of one gateway come after one another, then of the next one: "2 1 1"
--      2 for each key of the script "0" if it is the same for all and "1" if not  3 the same for the arguments,
--      then the arguments that are the same for all, then those of each caller that are not
-- returns what each caller's run returned or failed with. A failure of one does not affect the others. A failure of what is changed once for all callers of a gateway is returned to all of these.
local keys, args, own_keys, own_args, k, a = {}, {}, {}, {}, 0, 3
local byte, keys_own, args_own = string.byte, ARGV[2], ARGV[3]
for i = 1, #keys_own do
  if byte(keys_own, i) == 49 then
    own_keys[#own_keys + 1] = i
  else
    k = k + 1
    keys[i] = KEYS[k]
  end
end
for i = 1, #args_own do
  if byte(args_own, i) == 49 then
    own_args[#own_args + 1] = i
  else
    a = a + 1
    args[i] = ARGV[a]
  end
end

local function failure(of)
  return type(of) == 'table' and of or redis.error_reply(tostring(of))
end

local answers = {}
for callers in string.gmatch(ARGV[1], '%d+') do
  callers = tonumber(callers)
  gather(callers)
  for _ = 1, callers do
    for i = 1, #own_keys do keys[own_keys[i]] = KEYS[k + i] end
    for i = 1, #own_args do args[own_args[i]] = ARGV[a + i] end
    k, a = k + #own_keys, a + #own_args
    local ran, answer = pcall(one, keys, args)
    answers[#answers + 1] = ran and answer or failure(answer)
  end
  local ran, why = pcall(gathered)
  if not ran then
    for i = #answers - callers + 1, #answers do answers[i] = failure(why) end
  end
end
return answers
