-- ended.lua: runs a script's body, and then at_end, which one of its fragments defines, whatever became of the body: what it has changed before it
-- failed is changed. Composed behind body().
-- returns what body() returns
local ran, answer = pcall(body)
at_end()
if not ran and type(answer) ~= 'table' then answer = redis.error_reply(tostring(answer)) end
return answer
