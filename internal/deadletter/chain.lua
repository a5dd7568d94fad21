-- chain.lua writes to the trail, and adds to the chain that verifies its entries, unless another process has written since they were read.
-- KEYS 1 trail  2 journal (the chain)  3 head (how it ends)
-- ARGV 1 head as it was read ('' = there was none)  2 how many entries the trail had  3 the new head  4 place of the entry to write (-1 = at the end,
--      '' = none is written)  5 the entry  6… the links to add
-- returns 1 written  0 another process has written
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[4] == '-1' then
  redis.call('RPUSH', KEYS[1], ARGV[5])
elseif ARGV[4] ~= '' then
  redis.call('LSET', KEYS[1], ARGV[4], ARGV[5])
end
for i = 6, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('SET', KEYS[3], ARGV[3])
return 1
