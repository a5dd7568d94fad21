-- unlane.lua puts the jobs of lanes back into the lines of the queue if a gateway has no lanes any more. Each lane's jobs go before those that are there, in their
-- order.
-- KEYS
--    1  lanes, where bucket's lanes.lua lists all keys
--    2  throttled, or one of the sets of lanes that may be called
--    3  due
--    4  pending
--    5  retries
--    6  replays
--    7  classes
--    8  a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  how many at most
--    3  if a job was bound within this time, another dispatcher still has lanes (µs)
-- returns {how many were moved, 1 if there is more in this set, 1 if there is more, but another dispatcher still has lanes}
local KEEP = 3600000 -- how long it is remembered what a lane has used, in case it comes back (ms)
local now, most, moved, of, left = now_us(ARGV[1]), tonumber(ARGV[2]), 0, {}, 0
local prefix = string.match(KEYS[1], '^.*}:')
local used = redis.call('HMGET', KEYS[1], 'bound', 'moved')
if now + (tonumber(used[2]) or 0) - (tonumber(used[1]) or 0) < tonumber(ARGV[3]) then return {0, 0, redis.call('EXISTS', KEYS[2])} end

-- empty moves the tasks of one line of a flow, and reports whether it has none left.
local function empty(flow, from, to)
  while moved < most do
    if not redis.call('LMOVE', from, to, 'LEFT', 'RIGHT') then return true end -- the last one goes first, so that what was first stays first
    moved = moved + 1
    of[flow] = (of[flow] or 0) + 1
  end
  return redis.call('EXISTS', from) == 0
end

-- unknown returns the record of a lane whose own is gone, or can't be read: it may have tasks of each flow that has some.
local function unknown()
  local v = {0, '', {}}
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    local flow = string.match(name, '^n([^:]*:.*)$')
    if flow then v[#v + 1], v[#v + 2], v[#v + 3] = flow, 0, 0 end
  end
  return v
end

-- leave moves the tasks of a lane, and removes it from its sets when none is left.
local function leave(lane)
  local read, v = pcall(cmsgpack.unpack, redis.pcall('GET', prefix .. 'lane:' .. lane) or '\192')
  local over = true
  if not read or type(v) ~= 'table' or type(v[3]) ~= 'table' then v = unknown() end
  for i = 4, #v - 2, 3 do
    local flow = v[i]
    local class = string.match(flow, '^[^:]*')
    local first = class == '' and KEYS[4] or prefix .. 'first:' .. class
    if class ~= '' then redis.call('HSETNX', KEYS[7], class, '0') end -- its line may have been given up
    local lines = {replays = KEYS[6], retries = KEYS[5], pending = first, due = class == '' and KEYS[3] or first}
    for line in string.gmatch('replays retries pending due', '%a+') do
      over = empty(flow, prefix .. 'flow:' .. flow .. ':' .. line .. ':' .. lane, lines[line]) and over
    end
    if over then
      v[i + 2] = 0
      redis.call('ZREM', prefix .. 'ready:' .. flow, lane)
    end
  end
  if over then
    redis.call('ZREM', prefix .. 'throttled', lane)
    redis.call('ZREM', KEYS[2], lane)
    v[1], v[2], left = 0, '', left + 1
    redis.call('SET', prefix .. 'lane:' .. lane, cmsgpack.pack(v), 'PX', KEEP)
  end
end

while moved < most do
  local lane = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not lane then break end
  leave(lane)
end
if moved > 0 then redis.call('HINCRBY', KEYS[1], 'tasks', -moved) end
for flow, n in pairs(of) do redis.call('HINCRBY', KEYS[1], string.format('n%s', flow), -n) end
if left > 0 then redis.call('HINCRBY', KEYS[1], 'busy', -left) end
return {moved, redis.call('EXISTS', KEYS[2]), 0}
