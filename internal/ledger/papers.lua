-- papers.lua removes tasks of jobs that have moved on from a stretch of one of the queue's lines, counted from its tail. The others keep their order.
-- KEYS 1 the line  2 costs  3 a key that is never written: with it, a cluster refuses the script while the slot moves, instead of running half of it
-- ARGV 1 place of the first  2 how many  3 prefix of records  4 prefix of tasks
-- returns {how many tasks were looked at, how many of them were removed}
local GONE = '~' -- no task has this name
local over = {parked = true, done = true, discarded = true, scheduled = true, retrying = true, pending = true}
local from, gone = tonumber(ARGV[1]), 0
local tasks = redis.call('LRANGE', KEYS[1], ARGV[1], int(from + tonumber(ARGV[2]) - 1))
for i, task in ipairs(tasks) do
  local id, generation = string.match(task, '^(.+)~(%d+)$')
  local v = id and redis.pcall('HMGET', ARGV[3] .. id, '@state', '@generation') or {} -- a record that is damaged is left to open.lua
  if v[1] and (v[2] ~= generation or over[v[1]]) then
    redis.call('DEL', ARGV[4] .. task)
    redis.call('HDEL', KEYS[2], task)
    redis.call('LSET', KEYS[1], int(from + i - 1), GONE)
    gone = gone + 1
  end
end
if gone > 0 then
  local near_head = 2 * from > redis.call('LLEN', KEYS[1]) -- they are looked for from the end that is nearer: the line may have millions of tasks
  redis.call('LREM', KEYS[1], int(near_head and -gone or gone), GONE)
end
local lanes, flow = string.match(KEYS[1], '^(spillway:{[^}]*}:)flow:([^:]*:[^:]*):')
if lanes and gone > 0 then
  redis.call('HINCRBY', lanes .. 'lanes', 'tasks', -gone)
  redis.call('HINCRBY', lanes .. 'lanes', string.format('n%s', flow), -gone)
end
return {#tasks, gone}
