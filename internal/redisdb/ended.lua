-- ended.lua runs a script's body, and then at_end, which one of its fragments defines, even if the body has failed: what it changed before it
-- failed stays changed. Composed behind body().
-- returns what body() returns
local ran, answer = pcall(body)
at_end()
if not ran and type(answer) ~= 'table' then answer = redis.error_reply(tostring(answer)) end
return answer
