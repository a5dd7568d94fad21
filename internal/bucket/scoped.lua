-- scoped.lua: a call met trouble that concerns only its route or its lane. circuit.lua counts it in the hold of that scope. Composed after NowLua, permits.lua, lanes.lua,
-- scopes.lua, outage.lua and, as a function, circuit.lua.
-- KEYS 1 pace  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it  3… sets of lanes with jobs, of which some may not have been called
-- ARGV as in circuit.lua, with a channel that wakes processes that wait, then: 19 r or l (route or lane)  20 its name
-- returns what circuit.lua returns.
lanes.open(KEYS[1], 1)
local now = now_us(ARGV[1]) + L.moved
local key, args = L.prefix .. 'hold:' .. ARGV[19] .. ':' .. ARGV[20], {unpack(ARGV)}
local keys = {key, key, unpack(KEYS, 3)}
args[1] = int(now)
args[5] = int(tonumber(ARGV[5]) + L.moved)
if ARGV[18] ~= '0' then args[18] = int(tonumber(ARGV[18]) + L.moved) end
local out = circuit(keys, args)
scopes.look(ARGV[19], ARGV[20], now)
out[2] = int(tonumber(out[2]) - L.moved)
if out[3] ~= '0' then out[3] = int(tonumber(out[3]) - L.moved) end
return out
