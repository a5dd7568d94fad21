-- line.lua: lists of incarnations, and what begins with one. A fragment: local functions only.

-- line_with adds to a list what it lacks of another list.
local function line_with(line, more)
  for name in string.gmatch(more, '%S+') do
    if not string.find(' ' .. line .. ' ', ' ' .. name .. ' ', 1, true) then
      line = line == '' and name or line .. ' ' .. name
    end
  end
  return line
end

-- feed_epoch begins an epoch of the outcome feed, if there is one (told.lua of internal/record). What is told from now on comes after everything told before, even for readers
-- that have seen what this data lacks, and by a clock that is behind.
local function feed_epoch(feed, now)
  local epoch = redis.pcall('HGET', feed, 'epoch')
  if type(epoch) == 'string' then redis.call('HSET', feed, 'epoch', int(math.max((tonumber(epoch) or 0) + 1, math.floor(now / 1000000)))) end
end
