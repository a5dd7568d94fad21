-- asks.lua: a look-up of a job takes a permit of the job's lane, for a slot that has the account's permit. It takes one because it carries the lane's header, as the call did. Composed after NowLua,
-- permits.lua and lanes.lua.
-- KEYS 1 pace  2 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 now (µs, 0 = Redis's)  2 lane  3 slot (µs)  4 the moment at which exact windows count it (µs)  5 what the lane may have, as beside.lua reads it
-- returns 0, or how long after the slot the lane has a permit (µs). While the lane has jobs, one permit in ASKS_SHARE is for look-ups. It is kept for the
-- look-up that asks for it, if that comes soon.
local ASKS_LEFT, ASKS_AGAIN = 500000, 300000000 -- no job takes it for this time; the lane is looked at again after this time at the latest, as limits may be raised (µs)
local ASKS_SHARE, ASKS_KEPT = 10, 86400 -- and how long it is remembered when a permit was last kept for a look-up (s)
local now, lane, beside = now_us(ARGV[1]), ARGV[2], cjson.decode(ARGV[5])
lanes.open(KEYS[1], beside.weight, permits.limits(beside.lane), beside.own)
if lanes.state('bound') - now - L.moved > LANES_BACK then
  L.moved = lanes.state('bound') - now
  lanes.set('moved', L.moved)
end
local r, slot = lanes.record(lane), tonumber(ARGV[3]) + L.moved
local busy, turn = next(r.work) ~= nil, L.prefix .. 'asked:' .. lane
local asked = busy and tonumber(redis.call('GET', turn) or '') or 0 -- the next permit for a look-up, while there are jobs
local wait = math.min(math.max(permits.ready(r.logs, r.limits, 1, slot, L.lost, false), asked) - slot, ASKS_AGAIN)
if wait > 0 then
  local till = slot + wait + ASKS_LEFT
  if asked <= slot and r.x < till then lanes.throttle(lane, r, till, '') end
else
  permits.take(r.logs, r.kept, 1, slot, tonumber(ARGV[4]) + L.moved, now + L.moved)
  lanes.set('bound', now + L.moved)
  if busy then
    local apart = 0
    for _, window in ipairs(r.limits) do apart = math.max(apart, window.R / window.N) end
    redis.call('SET', turn, int(slot + ASKS_SHARE * apart), 'EX', ASKS_KEPT)
  end
  if r.x > 0 then lanes.look(lane, r) end
end
L.dirty[lane] = true
lanes.save(now + L.moved)
return int(wait)
