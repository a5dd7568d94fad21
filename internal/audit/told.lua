-- told.lua compares what the outcome feed last said about some jobs with their records. It writes nothing. The feed is that of told.lua of internal/record. Composed after NowLua.
-- KEYS 1 outcomes  2 feed  ARGV 1 how many entries, the latest  2 prefix of records
-- returns {'' or the number of the latest outcome in the stream, that of the feed, for each job for which they differ: id, what the feed says, what its record says, …}
local entries = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])
local latest, seen = '', {}
local out = {'', redis.call('HGET', KEYS[2], 'number') or ''}

-- judged compares an outcome with the job's record. It skips outcomes of another life of the id, and jobs that continued after they were parked.
local function judged(id, said, accepted)
  local v = redis.call('HMGET', ARGV[2] .. id, '@state', '@reason', '@accepted_at')
  local is = v[1]
  if is == 'parked' then is = 'parked/' .. (v[2] or '') end
  local ends = v[1] == 'parked' or v[1] == 'done' or v[1] == 'discarded'
  if not is or v[3] ~= accepted or is == said or not ends and string.sub(said, 1, 7) == 'parked/' then return end
  local n = #out
  out[n + 1], out[n + 2], out[n + 3] = id, said, is
end

for _, entry in ipairs(entries) do
  local text, time = entry[2][2], tonumber(string.match(entry[1], '%-(%d+)$'))
  local first, count, at = string.match(text, '^(%d+) (%d+);()')
  if not first then break end
  if latest == '' then latest = int(tonumber(first) + tonumber(count) - 1) end
  local all = {}
  for i = 1, tonumber(count) do
    local said, age, id_bytes, lengths, from = string.match(text, '^(%S+) %d+ %d+ (%d+) (%d+) ([%d ]+):()', at)
    if not said then break end
    local id, size = string.sub(text, from, from + tonumber(id_bytes) - 1), tonumber(id_bytes)
    for length in string.gmatch(lengths, '%d+') do size = size + tonumber(length) end
    all[i], at = {id, said, int(time - tonumber(count) + i - tonumber(age))}, from + size
  end
  for i = #all, 1, -1 do
    local id = all[i][1]
    if id ~= '' and not seen[id] then judged(id, all[i][2], all[i][3]) end
    seen[id] = true
  end
end
out[1] = latest
return out
