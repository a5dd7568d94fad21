-- request.lua: acts that wait until a second person has approved them. A fragment: local functions only. Fields of spillway:{gateway}:request:<id>:
--   what               what is to be done, as the desk has it (JSON): nobody changes it
--   who, person, via   who asked for it, whose token that was ('' = nobody has said so), and how it is known that it was he (roles.Proof)
--   why, asked, until  why, when (µs), and until when it may be approved
--   state              asked; approved, and being done; rejected or done
--   decider, decider_via, decider_why, decided  who approved or rejected it, how it is known, why, and when (µs)
--   owner, lease       of one that is approved: who does it, and until when (µs) it is his to do; then anybody goes on
-- spillway:{gateway}:requests has those that are asked or approved, by until when they may be approved (approved: +inf). Others stay for REQUEST_STAY.
local REQUEST_STAY = 2592000000 -- ms

-- request_over ends a request as rejected or done.
local function request_over(key, all, id, state)
  redis.call('HSET', key, 'state', state)
  redis.call('HDEL', key, 'owner', 'lease')
  redis.call('ZREM', all, id)
  redis.call('PEXPIRE', key, REQUEST_STAY)
end
