-- act.lua carries out act(), which a person has asked for, unless it comes too late. A command that was stuck in a connection may arrive long after the person
-- was told that Redis is away, and has done something else. It needs act(), and SWITCH: whether it switches something that KEYS[1], a hash,
-- holds. A switch stays as the act left it that began last; acted in the hash is when that was. A time from before a clock was set back does not count.
-- ARGV last: when the act began (µs, Redis's clock; 0: no person waits for it, so it is never late). act() does not see it
-- returns what act() returns, 0 being that it did nothing; the error LEAVING if the gateway of KEYS[1] is being renamed or forgotten, NEWER if its data is of a newer format; the error LATE if it came too late: nothing was done then
local ACT_LIFE = 5000000
local LATE = redis.error_reply('LATE it was to be carried out by now, or before what was carried out already')
local tag = string.match(KEYS[1], '{.-}')
local refusal = tag and barred('spillway:' .. tag .. ':alive')
if refusal then return refusal end
local begun, now = tonumber(table.remove(ARGV)), now_us('0')
if begun == 0 then return act() end
if now - begun > ACT_LIFE then return LATE end
if not SWITCH then return act() end
local last = tonumber(redis.call('HGET', KEYS[1], 'acted')) or 0
if begun < last and last <= now then return LATE end
local answer = act()
if answer ~= 0 then redis.call('HSET', KEYS[1], 'acted', int(begun)) end
return answer
