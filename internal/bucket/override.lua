-- override.lua: an operator sets what one lane may have, or pauses a lane or a route, or takes that back. From then on, every job of it is bound to a slot in the new way.
-- Composed after NowLua, permits.lua and lanes.lua, before act.lua.
-- KEYS
--    1  acted: which act upon it was the latest (hash; the switch)
--    2  pace
--    3  a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV
--    1  lane | route
--    2  its name
--    3  limits, as permits.own reads them
--    4  weight
--    5  1 = paused
--    6  calls in flight at most (0 = any number)
--       Of these four, '' means the value of all others, and '=' no change
--    7  channel
--    8  gateway
-- returns 1.
local ACTED = 10000 -- ms; an act older than half of this is not carried out
lanes.open(KEYS[2], 1)
local key, of, was, is = L.prefix .. 'overrides', ARGV[1] .. ':' .. ARGV[2], {}, {}
was[1], was[2], was[3], was[4] = string.match(redis.call('HGET', key, of) or '', '^([^|]*)|([^|]*)|([^|]*)|?(%d*)$')
for i = 1, 4 do is[i] = ARGV[i + 2] == '=' and (was[i] or '') or ARGV[i + 2] end
redis.call('HSET', KEYS[1], 'acted', 0) -- act.lua writes when it began
redis.call('PEXPIRE', KEYS[1], ACTED)
local text = table.concat(is, '|')
if text == '|||' then redis.call('HDEL', key, of) else redis.call('HSET', key, of, text) end
if ARGV[1] == 'lane' then lanes.look(ARGV[2], lanes.record(ARGV[2])) end -- a lane without jobs too: it may be throttled
if lanes.state('oe') == 0 then lanes.set('oe', now_us('0')) end
lanes.set('ov', lanes.state('ov') + 1)
lanes.save()
redis.call('PUBLISH', ARGV[7], ARGV[8])
return 1
