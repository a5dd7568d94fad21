-- stop.lua records what holds for a batch from now on: it is paused, or cancelled, or neither. shelve.lua does what follows for its jobs.
-- Composed before act.lua.
-- This is a person's decision: it ends what the batch did by itself (books.lua), and after a resume its calls are counted from zero.
-- KEYS 1 the batch's books  2 braked  3 shelving
-- ARGV 1 now (µs, 0 = Redis's)  2 paused | cancelled | '' = neither  3 why  4 who  5 the batch
-- An awaited approval stays: a resume lets nothing out that was not approved.
-- returns 1 written  2 written, and the batch awaits an approval  0 there is no such batch: nothing was written
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[1], 'paused', 'cancelled', 'why', 'who', 'ahead', 'braked', 'answered', 'refused')
redis.call('ZREM', KEYS[2], ARGV[5])
redis.call('HDEL', KEYS[3], ARGV[5])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], ARGV[2], int(now_us(ARGV[1])), 'why', ARGV[3], 'who', ARGV[4]) end
local awaits = redis.call('HEXISTS', KEYS[1], 'awaits') == 1
if ARGV[2] == '' then redis.call('HSET', KEYS[3], ARGV[5], awaits and 'await' or 'resume') end -- its jobs, paused until now, are parked for that, or go in again
return awaits and 2 or 1
