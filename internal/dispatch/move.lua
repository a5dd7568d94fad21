-- move.lua: gives keys of one gateway the names of another one. Each step may be done twice.
-- KEYS in pairs: the old name, the new one. What has the new name goes
-- ARGV for each pair: '' or what the field msg of the hash is to be
-- returns how many keys got another name
local moved = 0
for i = 1, #ARGV do
  local old, new = KEYS[2 * i - 1], KEYS[2 * i]
  if redis.call('EXISTS', old) == 1 then
    if ARGV[i] ~= '' then redis.call('HSET', old, 'msg', ARGV[i]) end
    redis.call('RENAME', old, new)
    moved = moved + 1
  end
end
return moved
