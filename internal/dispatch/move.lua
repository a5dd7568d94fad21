-- move.lua gives keys of one gateway the names of another. Each step may be done twice.
-- KEYS in pairs: the old name, the new one. A key that has the new name is deleted, except jobs and their books: the new name had none, so those were moved here,
-- and something was written under the old name since
-- ARGV for each pair: '' or the new value of the field msg of the hash
-- returns how many keys got another name; the error TAKEN if both names have such a key
local moved = 0

-- kept reports whether a key has jobs or their books, which must not be overwritten.
local function kept(key)
  if string.find(key, '}:counters$') then return (tonumber(redis.call('HGET', key, 'accepted') or '') or 0) > 0 end
  return (string.find(key, '}:job:') or string.find(key, '}:parked:') or string.find(key, '}:t:') or string.find(key, '}:pending$')) and redis.call('EXISTS', key) == 1
end

for i = 1, #ARGV do
  local old, new = KEYS[2 * i - 1], KEYS[2 * i]
  if redis.call('EXISTS', old) == 1 then
    if kept(new) then return redis.error_reply('TAKEN both ' .. old .. ' and ' .. new .. ' are there: another program has written under the old name meanwhile; nothing was overwritten') end
    if ARGV[i] ~= '' then redis.call('HSET', old, 'msg', ARGV[i]) end
    redis.call('RENAME', old, new)
    moved = moved + 1
  end
end
return moved
