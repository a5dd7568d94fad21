-- reflow.lua: puts a stretch of what is parked as rejected into the parts of flows (shelf.lua): jobs that were parked before there were any, or by a process whose file has
-- none. Or it takes out of a part what is not parked so any more.
-- KEYS 1 parked:rejected  2 counters  3 parked:flows  4 one that nobody writes: half of the script could run while a cluster's slot moves
-- ARGV 1 in | out | level  2 prefix of records  3 in: the place behind which to begin (a score); out: the flow ('' = those that never fit); level: how many were missing before
--      4 how many  5 out: place of the first
-- returns {how many it looked at, the place of the last (in), how many of them it put in or took out, how many are missing now (fewer than 0: too many are there)}
local what, record, call = ARGV[1], ARGV[2], redis.call
local function missing() return call('ZCARD', KEYS[1]) - (tonumber(call('HGET', KEYS[2], 'flowed') or '') or 0) end

local function put_in()
  local ids, put, last = call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[4])), 0, ARGV[3]
  for i = 1, #ids, 2 do
    local v = redis.pcall('HMGET', record .. ids[i], '@priority', '@route', '@lane')
    local flow = v.err and '::' or (v[1] or '') .. ':' .. (v[2] or '') .. ':' .. (v[3] or '')
    last = ids[i + 1]
    if not call('ZSCORE', shelf_key(record, 'parked:rejected:unfit'), ids[i]) then
      put = put + call('ZADD', shelf_flow_set(record, flow), last, ids[i])
      call('ZADD', KEYS[3], 'NX', shelf_turn(0, false, tonumber(last)), flow)
    end
  end
  call('HINCRBY', KEYS[2], 'flowed', put) -- 0 says that there are parts from now on
  return {int(#ids / 2), last, int(put), int(missing())}
end

local function take_out()
  local set = ARGV[3] == '' and shelf_key(record, 'parked:rejected:unfit') or shelf_flow_set(record, ARGV[3])
  local ids, gone = call('ZRANGE', set, tonumber(ARGV[5]), tonumber(ARGV[5]) + tonumber(ARGV[4]) - 1), 0
  for _, id in ipairs(ids) do
    if not call('ZSCORE', KEYS[1], id) then gone = gone + call('ZREM', set, id) end
  end
  shelf_count(record, -gone)
  return {int(#ids), '0', int(gone), int(missing())}
end

-- What was missing before all was looked at, and still is, is missing in the count alone.
local function level()
  if missing() == tonumber(ARGV[3]) then shelf_count(record, missing()) end
  return {'0', '0', '0', int(missing())}
end

return ({['in'] = put_in, out = take_out, level = level})[what]()
