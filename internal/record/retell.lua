-- retell.lua rewrites the outcome feed without the references of jobs that were erased (erase.lua), a part at each call. An entry of a stream can't be changed, and a deleted one stays in its block.
-- So all entries are copied, and with the last part the copy takes the stream's name. A copy that was given up expires after an hour.
-- KEYS 1 feed  2 outcomes  3 the copy
-- ARGV 1 whose copy it is  2 the last entry that was copied ('' = begin)  3 how many are copied  4 prefix of records
-- returns the last entry copied, '' = it is done, or '!' = another process has begun a copy since
local copy = KEYS[3]
if ARGV[2] == '' then
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('HDEL', KEYS[1], 'retelling')
    return ''
  end
  redis.call('DEL', copy)
  redis.call('HSET', KEYS[1], 'retelling', ARGV[1])
elseif redis.call('HGET', KEYS[1], 'retelling') ~= ARGV[1] then
  return '!'
end

-- without returns an entry's text without references of erased jobs.
local function without(text)
  local head = string.match(text, '^%d+ %d+;')
  if not head then return text end
  local parts, at = {head}, #head + 1
  while at <= #text do
    local said, lengths, from = string.match(text, '^(%S+ %d+ %d+ %d+) ([%d ]+):()', at)
    if not said then return text end
    local sizes, all = {}, 0
    for n in string.gmatch(lengths, '%d+') do
      sizes[#sizes + 1] = tonumber(n)
      all = all + tonumber(n)
    end
    local id = string.sub(text, from, from + sizes[1] - 1)
    local reference = from + sizes[1] + sizes[2]
    local body = string.sub(text, from, from + all - 1)
    if id ~= '' and sizes[3] > 0 and redis.call('HEXISTS', ARGV[4] .. id, '@erased_at') == 1 then
      body = string.sub(text, from, reference - 1) .. string.sub(text, reference + sizes[3], from + all - 1)
      sizes[3] = 0
    end
    for i = 1, #sizes do sizes[i] = int(sizes[i]) end
    parts[#parts + 1] = said .. ' ' .. table.concat(sizes, ' ') .. ':' .. body
    at = from + all
  end
  return table.concat(parts)
end

local entries = redis.call('XRANGE', KEYS[2], ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'COUNT', ARGV[3])
for _, entry in ipairs(entries) do redis.call('XADD', copy, entry[1], 'told', without(entry[2][2])) end
if #entries == tonumber(ARGV[3]) then
  redis.call('PEXPIRE', copy, 3600000)
  return entries[#entries][1]
end
local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', '1')[1]
if first then
  redis.call('XTRIM', copy, 'MINID', first[1]) -- what all readers have acknowledged meanwhile
  redis.call('RENAME', copy, KEYS[2])
  redis.call('PERSIST', KEYS[2])
else
  redis.call('DEL', copy)
end
redis.call('HDEL', KEYS[1], 'retelling')
return ''
