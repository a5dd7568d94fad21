-- errors.lua reads the errors of a stretch of a set of parked jobs, each text once; or which of its jobs have certain errors.
-- KEYS 1 parked:<reason>, or its part of one batch
-- ARGV 1 prefix of records  2 lowest score  3 highest score  4 how many jobs at most  5… the errors asked for, if any
-- returns {jobs looked at, last score (false if there was none), error1, error2, …}; if errors are asked for {id1, score1, …}
local first = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, 1)[1]
if not first then return #ARGV > 4 and {} or {0, false} end
local n = math.min(tonumber(ARGV[4]), redis.call('ZCOUNT', KEYS[1], ARGV[2], ARGV[3]))
local from = redis.call('ZRANK', KEYS[1], first)
local to = from + n - 1

-- texts returns the errors of the stretch. Redis reads a field of many records with one command in a third of the time that it takes with
-- one command for each. A cluster does not allow that, and neither does a server that has no such command for this user.
local function texts()
  local all = redis.pcall('SORT_RO', KEYS[1], 'BY', 'nosort', 'LIMIT', from, n, 'GET', ARGV[1] .. '*->@error')
  if not all.err then return all end
  all = {}
  for i, id in ipairs(redis.call('ZRANGE', KEYS[1], from, to)) do all[i] = redis.call('HGET', ARGV[1] .. id, '@error') end
  return all
end

local all = texts()

-- having returns the jobs with one of the errors asked for.
local function having()
  local asked, jobs = {}, {}
  for i = 5, #ARGV do asked[ARGV[i]] = true end
  local found = redis.call('ZRANGE', KEYS[1], from, to, 'WITHSCORES')
  for i = 1, n do
    if asked[all[i] or ''] then
      jobs[#jobs + 1] = found[2 * i - 1]
      jobs[#jobs + 1] = found[2 * i]
    end
  end
  return jobs
end
if #ARGV > 4 then return having() end

local seen, errors = {}, {n, redis.call('ZRANGE', KEYS[1], to, to, 'WITHSCORES')[2]}
for i = 1, n do
  local e = all[i] or ''
  if not seen[e] then
    seen[e] = true
    errors[#errors + 1] = e
  end
end
return errors
