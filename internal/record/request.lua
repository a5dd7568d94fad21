-- request.lua: acts that wait until a second person has approved them. A fragment: local functions only. Fields of spillway:{gateway}:request:<id>:
--   what               what shall be done, in the desk's form (JSON); it never changes
--   who, person, via   who asked for it, the owner of their token ('' = unknown), and how their identity is known (roles.Proof)
--   why, asked, until  why, when (µs), and until when it may be approved
--   state              asked; approved, which includes that it is being done; rejected or done
--   decider, decider_via, decider_why, decided  who approved or rejected it, how their identity is known, why, and when (µs)
--   owner, lease       of an approved one: which process carries it out, and until when (µs) only that process may; after that any may go on
-- spillway:{gateway}:requests has those that are asked or approved, by until when they may be approved (approved: +inf). Others stay for REQUEST_STAY.
local REQUEST_STAY = 2592000000 -- ms

-- request_over ends a request as rejected or done.
local function request_over(key, all, id, state)
  redis.call('HSET', key, 'state', state)
  redis.call('HDEL', key, 'owner', 'lease')
  redis.call('ZREM', all, id)
  redis.call('PEXPIRE', key, REQUEST_STAY)
end
