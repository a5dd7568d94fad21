-- canary.lua: of a batch that is to come, only the first jobs are let in, until they are done (books.lua).
-- KEYS 1 the batch's books  2 its ids
-- ARGV 1 how many jobs  2 how long the books stay if no job comes (ms)
-- returns 1 they go ahead, as was set now or before  0 the batch has jobs already, and none was to go ahead
if redis.call('HGET', KEYS[1], 'canary') then return 1 end
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'canary', ARGV[1], 'ahead', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
