-- told.lua writes the outcomes that feed.lua has noted to the gateway's feed. A fragment: local functions only, behind record.lua.
-- spillway:{gateway}:outcomes is a stream. An entry has up to FEED_PACK outcomes in its field told: "FIRST COUNT;" and then each as
-- "STATE STATUS ATTEMPTS AGE ID BATCH REFERENCE MONEY ROUTE LANE:", those from ID on being lengths in bytes, with these texts behind it; LANE, and ROUTE before it, are left out where the job has none. STATE is done, discarded, parked/REASON or batch_done
-- (no id then), STATUS 0 where no call was answered, AGE how long before its time the job was accepted (µs), MONEY as a record has it (books.lua). More lengths may follow, and their texts.
-- FIRST is the number of its first outcome, counted from 1 over the life of the feed. The id of an entry is "EPOCH-TIME" of its last outcome; those before it have
-- the times (µs) just before: no two outcomes have the same, so EPOCH-TIME is an outcome's cursor. Later ones are greater, also after a fail-over,
-- and an epoch begins with each restore (confirm.lua) for a clock that was set back.
-- spillway:{gateway}:feed has epoch, time and number of the latest outcome; what readers do to it is in internal/feed.
local FEED_PACK = 32

-- feed_text returns one outcome in the form of an entry; at is its time (µs).
local function feed_text(note, at)
  if type(note) == 'table' then return 'batch_done 0 0 0 0 ' .. #note[1] .. ' 0 0:' .. note[1] end
  local v, id = redis.call('HMGET', note, '@state', '@reason', '@batch', '@status', '@reference', '@money', '@accepted_at', '@calls', '@route', '@lane'), shelf_id(note)
  local state, batch, reference, money, calls = v[1] or '', v[3] or '', v[5] or '', v[6] or '', v[8]
  if state == 'parked' then state = state .. '/' .. (v[2] or '') end
  if not calls then calls = v[4] and int(calls_made(read(note, '@calls', '@history', '@replays', '@spent'))) or '0' end
  local more = v[10] and ' ' .. #(v[9] or '') .. ' ' .. #v[10] or v[9] and ' ' .. #v[9] or ''
  return state .. ' ' .. (v[4] or '0') .. ' ' .. calls .. ' ' .. int(math.max(at - (tonumber(v[7]) or at), 0)) .. ' ' .. #id .. ' ' .. #batch .. ' ' .. #reference .. ' ' .. #money .. more .. ':' ..
    id .. batch .. reference .. money .. (v[9] or '') .. (v[10] or '')
end

-- feed_number returns the number of the last outcome in the stream, for a feed of which nothing else is known.
local function feed_number(stream)
  local entries = redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', '1')
  local first, count = string.match(entries[1] and entries[1][2][2] or '', '^(%d+) (%d+);')
  return first and tonumber(first) + tonumber(count) - 1 or 0
end

-- feed_epoch_of returns the epoch of the last outcome that the stream ever had.
local function feed_epoch_of(stream)
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return tonumber(string.match(info[i + 1], '^%d+')) end
  end
end

-- feed_put appends an entry, and returns its epoch. Anything of another type under the key is damaged data, and is deleted. A stream that has
-- later entries than the feed knows of continues in another epoch.
local function feed_put(stream, epoch, time, text, now)
  local put = redis.pcall('XADD', stream, int(epoch) .. '-' .. int(time), 'told', text)
  if type(put) ~= 'table' then return epoch end
  if string.sub(put.err, 1, 9) == 'WRONGTYPE' then redis.call('DEL', stream) else epoch = math.max(feed_epoch_of(stream) + 1, math.floor(now / 1000000)) end
  redis.call('XADD', stream, int(epoch) .. '-' .. int(time), 'told', text)
  return epoch
end

-- at_end runs after the body of the script (redisdb.NewScript), even if the body has failed: what it had changed by then stays changed.
local function at_end()
  local total = #feed_notes
  if total == 0 then return end
  local feed, stream, now = shelf_key(feed_record, 'feed'), shelf_key(feed_record, 'outcomes'), now_us('0')
  local v = redis.pcall('HMGET', feed, 'epoch', 'time', 'number')
  if v.err then
    redis.call('DEL', feed)
    v = {}
  end
  local epoch, time, number = tonumber(v[1] or '') or math.floor(now / 1000000), math.max((tonumber(v[2] or '') or 0) + 1, now), tonumber(v[3] or '') or feed_number(stream)
  for from = 1, total, FEED_PACK do
    local texts, count = {}, math.min(total - from + 1, FEED_PACK)
    for i = 1, count do texts[i] = feed_text(feed_notes[from + i - 1], time + i - 1) end
    epoch = feed_put(stream, epoch, time + count - 1, int(number + 1) .. ' ' .. count .. ';' .. table.concat(texts), now)
    time, number = time + count, number + count
  end
  redis.call('HSET', feed, 'epoch', int(epoch), 'time', int(time - 1), 'number', int(number))
end
