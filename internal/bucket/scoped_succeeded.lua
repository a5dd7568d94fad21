-- scoped_succeeded.lua: the call that was sent ahead after the hold of a route or a lane succeeded, so the rest of that scope's calls may follow. Composed as scoped.lua, with
-- succeeded.lua as a function.
-- KEYS 1 pace  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV as in succeeded.lua, with a channel that wakes processes that wait, then: 6 r or l (route or lane)  7 its name
-- returns what succeeded.lua returns.
lanes.open(KEYS[1], 1)
local now = now_us(ARGV[1]) + L.moved
local key, args = L.prefix .. 'hold:' .. ARGV[6] .. ':' .. ARGV[7], {unpack(ARGV)}
args[1] = int(now)
args[4] = int(tonumber(ARGV[4]) + L.moved)
local free = succeeded({key, key}, args)
if free > 0 then scopes.look(ARGV[6], ARGV[7], now) end
return free
