-- scopes.lua: a fragment behind lanes.lua, for holds and caps of single routes and lanes. A scope is r:ROUTE or l:LANE.
--
-- Keys, whose names have the same prefix as the pace; their times go on when Redis's clock is set back:
--      hold:SCOPE    hash  the hold, as circuit.lua has the gateway's, and how many calls were bound in each part of 5 s. It expires when it has no meaning any more
--      flight:SCOPE  zset  leases of calls in flight: their ends
-- Until when a hold may say something is in the lanes' field H<route>, or in the lane's record. So scripts don't look for holds that are not there.

local SCOPES_PART, SCOPES_PROBE = 5000000, 5000000 -- as circuit.lua and reserve.lua have them
local SCOPES_KEPT = 600000000 -- how long a hold that is over is remembered
local SCOPES_PARTS = 30 -- parts of 5 s that are remembered
local SCOPES_ROUTE, SCOPES_LANE, SCOPES_PLACE = 1, 2, 4 -- marks of a slot: its call is sent ahead after the hold of its route, or of its lane; it has leases in flight

local scopes = {}
local S = {} -- holds that were read

function scopes.hold(scope)
  if not S[scope] then
    local v = redis.call('HMGET', L.prefix .. 'hold:' .. scope, 'until', 'need', 'probe')
    S[scope] = {till = tonumber(v[1]) or 0, need = v[2] == '1', probe = tonumber(v[3]) or 0}
  end
  return S[scope]
end

-- scopes.held returns until when a scope (kind is r: or l:) is held, or news of the call that was sent ahead are awaited; known is until when its hold may say something.
function scopes.held(kind, name, known, t)
  if known <= t then return 0 end
  local h = scopes.hold(kind .. name)
  return h.need and math.max(h.till, h.probe) or h.till
end

-- scopes.ahead says that the next call of a scope is the one that is sent ahead after its hold.
function scopes.ahead(kind, name, known, t) return known > t and scopes.hold(kind .. name).need end

-- scopes.room returns when a scope has fewer calls under way than may be (most, 0 = any number), at t at the earliest.
function scopes.room(kind, name, most, now, t)
  if most == 0 then return t end
  local key = L.prefix .. 'flight:' .. kind .. name
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  local over = redis.call('ZCARD', key) - most
  if over < 0 then return t end
  return math.max(t, tonumber(redis.call('ZRANGE', key, over, over, 'WITHSCORES')[2]))
end

-- scopes.take notes that a call of a scope was bound to a slot, with a lease until its end if the scope has a cap. It says whether it is the one sent ahead.
function scopes.take(kind, name, known, most, now, slot, lease, ends)
  if most > 0 then
    local key = L.prefix .. 'flight:' .. kind .. name
    redis.call('ZADD', key, int(ends), lease)
    redis.call('PEXPIRE', key, int(math.ceil((ends - now) / 1000) + SCOPES_KEPT / 1000))
  end
  if known <= now then return false end
  local scope = kind .. name
  local key, h = L.prefix .. 'hold:' .. scope, scopes.hold(scope)
  redis.call('HINCRBY', key, int(math.floor(now / SCOPES_PART)), 1)
  if not h.need then return false end
  h.probe = slot + SCOPES_PROBE
  redis.call('HSET', key, 'probe', int(h.probe), 'slot', int(slot))
  return true
end

-- scopes.over gives back the place of a call that ended or was not made. If it was the one sent ahead and nothing came of it, another may go.
function scopes.over(scope, mark, marks, slot, lease)
  if bit.band(marks, SCOPES_PLACE) > 0 then redis.call('ZREM', L.prefix .. 'flight:' .. scope, lease) end
  local key = L.prefix .. 'hold:' .. scope
  if bit.band(marks, mark) > 0 and redis.call('HGET', key, 'slot') == int(slot) then redis.call('HDEL', key, 'probe', 'slot') end
end

-- scopes.look has a route or a lane looked at by what its hold is now, and remembers that there is one. kind is r or l.
function scopes.look(kind, name, now)
  local key = L.prefix .. 'hold:' .. kind .. ':' .. name
  local v = redis.call('HMGET', key, 'until', 'need')
  local held = tonumber(v[1]) or 0
  local known = math.max(now, held) + SCOPES_KEPT
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local part = tonumber(field)
    if part and part < math.floor(now / SCOPES_PART) - SCOPES_PARTS then redis.call('HDEL', key, field) end
  end
  local stay = (known - now) / 1000
  if redis.call('PEXPIRE', key, int(math.ceil(2 * stay))) == 0 then return end -- there is none
  if kind == 'r' then
    lanes.set('H' .. name, known)
    return lanes.save()
  end
  local r, record = lanes.record(name), L.prefix .. 'lane:' .. name
  r.held = known
  if v[2] == '1' and held > now then lanes.throttle(name, r, held, '') else lanes.look(name, r) end
  lanes.save()
  local left = redis.call('PTTL', record)
  if left == -2 then
    redis.call('SET', record, lanes.packed(r), 'PX', int(math.ceil(stay)))
  elseif left >= 0 and left < stay then
    redis.call('PEXPIRE', record, int(math.ceil(stay)))
  end
end
