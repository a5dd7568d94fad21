-- approve.lua: a second person approves a batch that awaits it. shelve.lua does what follows for its jobs. Composed before act.lua.
-- No person can approve what they brought in (approval_is).
-- KEYS 1 the batch's books  2 awaiting  3 shelving
-- ARGV 1 now (µs, 0 = Redis's)  2 the batch  3 who  4 why  5 what they were shown: since when it waits (µs), how many jobs it has, how many were brought in, including
--      payloads that replace others, and approval_text, with a blank between each  6 the owner of their token ('' = unknown)
-- returns 0 there is no such batch  1 approved  2 it awaits no approval  3 it has changed since it was shown  4 they brought in jobs of it  5 it is cancelled; only 1 writes anything
local key = KEYS[1]
if redis.call('EXISTS', key) == 0 then return 0 end
local v = redis.call('HMGET', key, 'awaits', 'cancelled', 'paused')
if not v[1] then return 2 end
if v[2] then return 5 end
local all, brought = redis.call('HGETALL', key), 0
for i = 1, #all, 2 do
  local via, name = string.match(all[i], '^from/([^/]*)/(.*)$')
  if via and approval_is(via, name, ARGV[3], ARGV[6]) then return 4 end
  if via then brought = brought + (tonumber(all[i + 1]) or 0) end
end
local sums, unread, jobs = approval_sums(key)
local text = approval_text(sums, unread)
if v[1] .. ' ' .. int(jobs) .. ' ' .. int(brought) .. ' ' .. text ~= ARGV[5] then return 3 end
redis.call('HDEL', key, 'awaits', 'over')
redis.call('HSET', key, 'approved', int(now_us(ARGV[1])), 'approver', ARGV[3], 'approval_why', ARGV[4], 'approved_sums', text)
redis.call('ZREM', KEYS[2], ARGV[2])
if v[3] then redis.call('HDEL', KEYS[3], ARGV[2]) else redis.call('HSET', KEYS[3], ARGV[2], 'approve') end -- the jobs of a paused batch go in when it is resumed
return 1
