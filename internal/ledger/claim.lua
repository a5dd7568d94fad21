-- claim.lua: before jobs go in, their ids are claimed for one gateway, so that no other gateway accepts them meanwhile (dedupe_scope: all). A claim that is not given back
-- expires. It is safe to run twice. Composed after NowLua.
-- KEYS claims of ids: of one hash tag in a cluster
-- ARGV 1 gateway  2 the offer that claims them  3 how long a claim lives (ms)  4 1: only what this offer has claimed and still holds, for as long again
-- returns {now (µs), and for each key: '' if the id is claimed now, or the other gateway that has claimed it, or, with 4, 'ended'}
local answers = {now_us('0')}
local function renew(claim)
  if redis.pcall('HEXISTS', claim, ARGV[2]) ~= 1 then return 'ended' end
  redis.call('PEXPIRE', claim, ARGV[3])
  return ''
end

local function claimed(claim)
  local gateway = redis.pcall('HGET', claim, 'gateway')
  if type(gateway) == 'table' then -- a key of another type: damaged data
    redis.call('DEL', claim)
    gateway = false
  end
  if gateway and gateway ~= ARGV[1] then return gateway end
  redis.call('HSET', claim, 'gateway', ARGV[1], ARGV[2], '')
  redis.call('PEXPIRE', claim, ARGV[3])
  return ''
end

local take = ARGV[4] == '1' and renew or claimed
for i, claim in ipairs(KEYS) do answers[i + 1] = take(claim) end
return answers
