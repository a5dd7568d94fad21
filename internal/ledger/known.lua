-- known.lua reads which of some jobs a gateway knows.
-- KEYS 1 alive  2… records of jobs
-- returns {1 if the gateway is being renamed (its jobs change their keys), else 0, and of each job that is known: its place, from 1, and its digest ('' = it can't be read)}
local function none_known()
  for i = 2, #KEYS, 1000 do
    if redis.call('EXISTS', unpack(KEYS, i, math.min(i + 999, #KEYS))) > 0 then return false end
  end
  return true
end

local moving = redis.pcall('HGET', KEYS[1], 'moving')
local answer = {type(moving) == 'string' and string.find(moving, '^rename ') and 1 or 0}
if none_known() then return answer end
for i = 2, #KEYS do
  local digest = redis.pcall('HGET', KEYS[i], '@digest')
  if type(digest) == 'table' then digest = '' end
  if digest then answer[#answer + 1], answer[#answer + 2] = i - 1, digest end
end
return answer
