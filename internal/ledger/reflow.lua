-- reflow.lua puts a stretch of the jobs parked as rejected into the parts of flows (books.lua): jobs that were parked before there were parts, or by a process whose file has
-- none. Or it removes from a part jobs that are no longer parked so.
-- KEYS 1 parked:rejected  2 counters  3 parked:flows  4 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 in | out | level  2 prefix of records  3 in: the place after which to begin (a score); out: the flow ('' = those that never fit); level: how many were missing before
--      4 how many  5 out: place of the first
-- returns {how many it looked at, the place of the last (in), how many of them it put in or took out, how many are missing now (below 0: too many are there)}
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
  call('HINCRBY', KEYS[2], 'flowed', put) -- 0 means that there are parts from now on
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

-- If as many are still missing as before everything was looked at, only the count is wrong.
local function level()
  if missing() == tonumber(ARGV[3]) then shelf_count(record, missing()) end
  return {'0', '0', '0', int(missing())}
end

return ({['in'] = put_in, out = take_out, level = level})[what]()
