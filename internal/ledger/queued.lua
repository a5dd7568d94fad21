-- queued.lua: a fragment that counts the tasks in a line of the queue that is named in the hash classes.

-- queued_of returns those of a class. For the mark of gateways with lanes, it returns those in the lines of all lanes. prefix is that of the lines of classes.
local function queued_of(prefix, class)
  if class ~= '#lanes' then return redis.call('LLEN', prefix .. class) end
  return math.max(tonumber(redis.call('HGET', (string.gsub(prefix, 'first:$', 'lanes')), 'tasks')) or 0, 0)
end
