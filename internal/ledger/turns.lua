-- turns.lua returns the parked jobs that go in next if a gateway has flows (share.lua): those of the flows with the fewest jobs in the queue, in turn, each flow's in their order. It
-- looks at up to twice as many flows as it returns jobs, and corrects what parked:flows says of them. It also corrects one flow chosen at random, whose tasks may have been removed.
-- KEYS 1 parked:flows  2 parked:rejected  3 counters  4 pending  5 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 now (µs, 0 = Redis's)  2 how many jobs at most  3 prefix of records  4 what share_open reads
-- returns {1 if all jobs parked as rejected are in the parts of flows, how many jobs it looked at, id, generation, cost, id, generation, cost, …}; the generation is -1 if the
--      record is damaged
local now, most, record, call = now_us(ARGV[1]), tonumber(ARGV[2]), ARGV[3], redis.call
local flows, turns, found = share_open(ARGV[4], record, KEYS[4]), {}, {}

-- look notes a flow; the later its turn comes, the higher its level.
local function look(name, score)
  local class, route, lane = string.match(name, '^([^:]*):([^:]*):(.*)$')
  local f = class and share_flow(class, route, lane)
  local n = f and not f.jobs and call('ZCARD', f.set) or 0
  if f and f.jobs then return end
  if n == 0 then
    call('ZREM', KEYS[1], name)
    return
  end
  local passes = f.passes and f.queued.jobs < flows.most
  f.jobs, f.some, f.since = n, 0, tonumber(score) % SHELF_TURN
  f.level = f.queued.jobs - (passes and SHELF_TURNS + 1 or 0)
  local turn = shelf_turn(f.queued.jobs, f.passes, (f.since + SHELF_EPOCH) * 10000)
  if turn ~= string.format('%.0f', tonumber(score)) then call('ZADD', KEYS[1], turn, name) end
  turns[#turns + 1] = f
end

local all = call('ZCARD', KEYS[1])
for _, zone in ipairs({{'-inf', '(0'}, {'0', '+inf'}}) do -- flows of classes that pass, and all others
  local first = call('ZRANGEBYSCORE', KEYS[1], zone[1], zone[2], 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #first, 2 do look(first[i], first[i + 1]) end
end
if all > most then
  local at = math.floor(now / 10) % all
  local one = call('ZRANGE', KEYS[1], at, at, 'WITHSCORES')
  if one[1] then look(one[1], one[2]) end
end
table.sort(turns, function(a, b)
  if a.level ~= b.level then return a.level < b.level end
  if a.since ~= b.since then return a.since < b.since end
  return a.name < b.name
end)

-- Each round takes one job of each flow that has come to its level.
local order = {}
local function round(level)
  local kept, least = {}, nil
  for _, f in ipairs(turns) do
    if f.level <= level and #order < most then
      order[#order + 1], f.some, f.level = f, f.some + 1, level + 1
    end
    if f.some < f.jobs then
      kept[#kept + 1] = f
      least = math.min(least or f.level, f.level)
    end
  end
  turns = kept
  return least
end
local level = turns[1] and turns[1].level
while level and #order < most do level = round(level) end

-- head returns the next job of a flow. A job that is no longer parked leaves its part this way.
local function head(f)
  if not f.heads then f.heads, f.at = call('ZRANGE', f.set, 0, f.some - 1), 0 end
  f.at = f.at + 1
  local id = f.heads[f.at]
  if not id then return end
  local v = redis.pcall('HMGET', record .. id, '@state', '@reason', '@generation', '@cost', '@priority', '@route', '@lane')
  local damaged = v.err or v[3] and not string.find(v[3], '^%d+$')
  local is = not damaged and v[1] == 'parked' and v[2] == 'rejected' and (v[5] or '') .. ':' .. (v[6] or '') .. ':' .. (v[7] or '') == f.name
  if not is then shelf_drop(record, f.name, {id}) end
  local n = #found
  found[n + 1], found[n + 2], found[n + 3] = id, damaged and '-1' or v[3] or '0', v[4] and string.find(v[4], '^%d+$') and v[4] or '1'
end
for _, f in ipairs(order) do head(f) end
return {call('ZCARD', KEYS[2]) == (tonumber(call('HGET', KEYS[3], 'flowed') or '') or 0) and '1' or '0', int(#order), unpack(found)}
