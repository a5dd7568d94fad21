-- readmit.lua takes parked jobs through admission again, oldest first. Those without room stay parked. Those that were called before (they have a history) go to the tail of the replays,
-- the others to the tail of the queue.
-- KEYS  The other names are made here, with the same hash tag: each argument of a script costs Redis more than making such a text.
--    1  admission
--    2  pending
--    3  counters
--    4  scheduled
--    5  costs
--    6  acts
--    7  a key that is never written. While a cluster's slot moves, either node refuses a script if it lacks one of the KEYS. So this one keeps the script out until all of the
--       gateway's keys are on one node. Otherwise it could find a record there, and not be allowed to write the task
-- ARGV
--    1  now (µs, 0 = Redis's)
--    2  gateway
--    3  wake channel
--    4  act's place in the trail ('' = none; again = by themselves, as books.lua counts)
--    5  prefix of records
--    6  prefix of tasks
--    7  where room is shared among flows, what share_open reads, else ''
--    8  all jobs in one text (admit.go), of each: its kind and the length of its id (2 bytes each, the higher first), and the id
--    9… messages of the new tasks (forms_load in record.lua), then:
--       how many kinds of job there are, and for each kind five:
--         generation they are parked with
--         reason
--         idempotency key: keep | next (the gateway said a definite no) | settled (so did a person, who has looked it up) | forgotten (it no longer counts as sent)
--         class from now on: = and its name, which is empty for the usual one ('' = the one that it has)
--         the moment (µs) after which nobody may have replaced their payload ('' = it may have been replaced)
--       the bucket's arguments
-- returns "RETRY DIGITS": µs until the first job without room would find some (as accept.lua), and of each job: 1 queued  2 no room  3 not parked like this any more, or replaced
local QUEUED, NO_ROOM, GONE = '1', '2', '3'
local now, call, unpack = now_us(ARGV[1]), redis.call, unpack
local record_prefix, task_prefix, kinds, at = ARGV[5], ARGV[6], {}, forms_load(ARGV, 9)
for k = at + 1, at + 5 * tonumber(ARGV[at]), 5 do
  local next_one = int(tonumber(ARGV[k]) + 1)
  kinds[#kinds + 1] = {generation = ARGV[k], reason = ARGV[k + 1], key = ARGV[k + 2], class = ARGV[k + 3] ~= '' and string.sub(ARGV[k + 3], 2) or nil, set = books_key(record_prefix, books_place('parked', ARGV[k + 1])),
    agreed = tonumber(ARGV[k + 4]), next = next_one, suffix = '~' .. next_one}
end
local bucket = bucket_load(KEYS[1], now, ARGV, at + 1 + 5 * #kinds)
local text, by_itself = ARGV[8], ARGV[4] == 'again'
local lines = {KEYS[2], books_key(record_prefix, 'replays')}
local idle = call('LLEN', lines[1]) == 0
local full, refused, pushed, taken, retry, answers = false, false, {}, 0, 0, {}
local moment = int(now)
local since = moment .. '000'
local flows = share_open(ARGV[7], record_prefix, lines[1])

-- PAST is what a job's record loses when it is no longer parked, by the table in layout.go. Looking whether it has a field costs as much as deleting it.
local PAST = {@@past}

-- replaced reports whether a refused job was given another payload since it was parked, maybe after its caller had read it: the key came with that.
local function replaced(kind, record)
  if kind.reason ~= 'refused' then return false end
  local edited, parked = unpack(call('HMGET', record, '@edited_at', '@parked_at'))
  return edited and tonumber(edited) >= (tonumber(parked) or 0)
end

-- cancelled_batch reports whether a batch is cancelled: one look for a chunk.
local cancelled = {}
local function cancelled_batch(record, batch)
  if batch and cancelled[batch] == nil then
    local _, reason = books_stopped(record, batch)
    cancelled[batch] = reason == 'cancelled'
  end
  return batch and cancelled[batch]
end

local function flow(record, class)
  local route, lane = unpack(call('HMGET', record, '@route', '@lane'))
  return share_flow(class or '', route or '', lane or '')
end

local function past(key_change)
  local drop = {unpack(PAST)}
  if key_change ~= 'keep' then drop[#drop + 1], drop[#drop + 2], drop[#drop + 3] = '@first_call_at', '@may_have_charged', '@reference' end
  if not by_itself then drop[#drop + 1] = '@self_replays' end
  return drop
end

-- takes reports whether there is room for a job.
local function takes(f, cost)
  if not f then
    if bucket_take(bucket, cost) then return true end
    full, retry = true, bucket_retry(bucket, cost)
    return false
  end
  if full and not f.passes then return false end
  local taken, dear = share_take(f, bucket, cost)
  if taken then return true end
  if not refused then retry = share_retry(f, bucket, cost) end
  refused, full = true, full or dear and true
  return false
end

-- enter puts the task of a job into a line of the queue, when all jobs are done.
local function enter(line, id, kind, cost)
  local task_id = id .. kind.suffix
  task_new(task_prefix .. task_id, task_id, forms_message(task_id), KEYS[5], cost, since)
  local tasks = pushed[line]
  if not tasks then
    tasks = {n = 0}
    pushed[line] = tasks
  end
  tasks.n = tasks.n + 1
  tasks[tasks.n] = task_id
end

-- plain_fields returns how many fields a plain job's record has, by its batch, its money and in how many pieces its payload is. Such a job was parked as rejected when it came, and has
-- nothing but what all jobs have: it was never called, replayed or edited, and has no cost, time, class, lane or route. Its fields are state, generation, digest, accepted_at, reason,
-- error and parked_at, its payload, and maybe its batch and its money. If a record parked as rejected has this many, it has no others: looking for each of those takes Redis
-- longer than all the rest.
local function plain_fields(batch, money, pieces) return 8 + (batch and 1 or 0) + (money and 1 or 0) + payload_count(pieces) end

-- plain takes a plain job in, with what readmit would do to it and nothing else. It returns nil for any other job.
local pieces, piece = '1', '@payload1' -- the last of the last job's: many have payloads of one size
local function plain(kind, id, record)
  local v = call('HMGET', record, '@state', '@generation', '@reason', '@batch', '@money', '@pieces', piece)
  local batch, money, n = v[4], v[5], v[6]
  if v[1] ~= 'parked' or v[2] ~= kind.generation or v[3] ~= 'rejected' or call('HLEN', record) ~= plain_fields(batch, money, n) then return nil end
  if full or not takes(nil, 1) then return NO_ROOM end
  local bytes
  if n == pieces and v[7] then
    bytes = PIECE_BYTES * (n - 1) + #v[7]
  else
    bytes = payload_bytes(record, n)
    if n and bytes > 0 then pieces, piece = n, '@payload' .. n end
  end
  call('HSET', record, '@state', 'queued', '@replays', '1', '@generation', kind.next)
  call('HDEL', record, '@reason', '@error', '@parked_at')
  shelf_remove(kind.set, id)
  shelf_take(record, 'rejected', batch)
  books_moved(record, batch, money or nil, bytes, 'parked:rejected', 'queued')
  taken = taken + 1
  enter(lines[1], id, kind, 1)
  return QUEUED
end

local function readmit(kind, id)
  local record = record_prefix .. id
  if kind.reason == 'rejected' and kind.key == 'keep' and not kind.class and not by_itself and not flows then
    local answer = plain(kind, id, record)
    if answer then return answer end
  end
  local job = read(record, '@state', '@generation', '@reason', '@batch', '@money', '@pieces', '@cost', '@not_before',
    '@key_generation', '@replays', '@self_replays', '@history', '@priority')
  if job.@state ~= 'parked' or job.@generation ~= kind.generation or job.@reason ~= kind.reason then
    if job.@state ~= 'parked' or job.@reason ~= kind.reason then call('ZREM', kind.set, id) end -- the record is right
    return GONE
  end
  if kind.agreed and (tonumber(call('HGET', record, '@edited_at')) or 0) > kind.agreed then return GONE end
  if full and not flows then return NO_ROOM end
  local was = job.@priority or ''
  local class = kind.class or was
  local f, left = flows and flow(record, class), flows and class ~= was and flow(record, was)
  local key_change, settled = kind.key, kind.key == 'settled'
  if settled then key_change = 'next' end
  local cost, due = tonumber(job.@cost) or 1, tonumber(job.@not_before) or 0
  if not takes(f, cost) then return NO_ROOM end
  shelf_remove(kind.set, id)
  if f and kind.reason == 'rejected' then (left or f).fed = true end
  taken = taken + 1
  if key_change == 'next' and replaced(kind, record) then key_change = 'keep' end
  local set = {'@replays', int((tonumber(job.@replays) or 0) + 1)}
  local function put(name, value) set[#set + 1], set[#set + 2] = name, value end
  if due <= now then put('@generation', kind.next) end
  if job.@history then put('@calls', '0') end
  if by_itself then put('@self_replays', int((tonumber(job.@self_replays) or 0) + 1)) end
  -- Jobs parked as rejected and as exhausted also go in by themselves. Here a person readmits a job of a cancelled batch, so it is called all the same.
  if kind.reason ~= 'rejected' and not by_itself and cancelled_batch(record, job.@batch) then put('@despite_cancel', '1') end
  if key_change == 'next' then put('@key_generation', int(next_key(record, job.@key_generation))) end
  if key_change == 'forgotten' or settled or key_change ~= 'keep' and kind.reason == 'unknown_outcome' then put('@looked_up_at', moment) end -- a person has looked it up
  if settled then put('@settled', settled_by('not_done', now, ARGV[4])) end
  job.set, job.drop = set, past(key_change)
  become_of(record, job, due > now and 'scheduled' or 'queued')
  if class == '' and was ~= '' then call('HDEL', record, '@priority') elseif class ~= was then call('HSET', record, '@priority', class) end -- only now, after its flow has lost the job
  if due > now then
    schedule(KEYS[4], books_key(record, 'moments'), int(due), id, now)
    return QUEUED
  end
  enter(job.@history and lines[2] or first_line(record, class, lines[1]), id, kind, cost)
  if f then share_enter(f, not job.@history) end
  return QUEUED
end

-- fed makes the flows whose parked jobs went in wait for their next turn.
local function fed()
  share_close()
  for _, f in pairs(flows.flows) do
    if f.fed then
      local turns = books_key(record_prefix, 'parked:flows')
      if call('EXISTS', f.set) == 0 then
        call('ZREM', turns, f.name)
      else
        call('ZADD', turns, shelf_turn(f.queued.jobs, f.passes, now), f.name)
      end
    end
  end
end

shelf_gather() -- the sets of parked jobs change once for the whole chunk, and so do the books and the queue
books_gather()
local byte, sub, place = string.byte, string.sub, 1
while place <= #text do
  local k2, k1, n2, n1 = byte(text, place, place + 3)
  local behind = place + 4 + n2 * 256 + n1
  answers[#answers + 1] = readmit(kinds[k2 * 256 + k1], sub(text, place + 4, behind - 1))
  place = behind
end
for line, tasks in pairs(pushed) do
  idle = idle or line ~= lines[1] and line ~= lines[2]
  for from = 1, #tasks, 1000 do call('LPUSH', line, unpack(tasks, from, math.min(from + 999, #tasks))) end
end
books_gathered()
shelf_gathered()
if flows then fed() end
bucket_save(bucket)
if taken > 0 and tonumber(ARGV[4]) then call('HINCRBY', KEYS[6], ARGV[4], taken) end
if idle and next(pushed) then call('PUBLISH', ARGV[3], ARGV[2]) end
return int(retry) .. ' ' .. table.concat(answers)
