-- tasks.lua reads a stretch of the tasks that asynq holds in one place, and what they are.
-- KEYS 1 pending, active, or one of asynq's own sets
-- ARGV 1 LRANGE or ZRANGE  2 place of the first  3 place of the last  4 prefix of records  5 prefix of tasks  6 "1": it is active
-- returns for each task two: its id, and what it is: '' (a job's present one) | old_task (its job has moved on) | foreign_task (not ours)
--      | no_record | no_message
local found = {}
local function judge(task)
  local id, generation = string.match(task, '^(.+)~(%d+)$')
  if not id or tonumber(generation) < 1 then return 'foreign_task' end
  local v = redis.pcall('HMGET', ARGV[4] .. id, '@state', '@generation')
  if v.err then return '' end -- the record is damaged, which its own check reports
  if not v[1] then return 'no_record' end
  local present = v[2] == generation and (v[1] == 'queued' or (ARGV[6] == '1' and v[1] == 'in_flight'))
  if not present then return 'old_task' end
  return redis.call('HEXISTS', ARGV[5] .. task, 'msg') == 1 and '' or 'no_message'
end
for _, task in ipairs(redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3])) do
  found[#found + 1], found[#found + 2] = task, judge(task)
end
return found
