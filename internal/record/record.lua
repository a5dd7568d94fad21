-- record.lua: how a job's record is read, and what every change of its state does to it. A fragment: local functions only, behind gather.lua.
-- A state is changed by become(), never by HSET alone.
-- layout.go has the table of its fields: @state is the field state, and @@over is all fields that are marked over.
local HISTORY_BYTES = 2000

-- A hash whose values all have at most 64 bytes takes half the memory (hash-max-listpack-value). So a payload of up to eight times
-- that is cut into pieces. A longer one stays whole: too little would be saved.
local PIECE_BYTES, PIECES = 64, 8

-- payload_bytes returns the length of a record's payload as it is stored (payload_put). pieces is its field of that name, or nil if it was not read.
local function payload_bytes(record, pieces)
  if pieces == nil then pieces = redis.call('HGET', record, '@pieces') end
  if not pieces then return redis.call('HSTRLEN', record, '@payload') end
  local n = tonumber(pieces)
  if not n or n < 1 or n > PIECES or n ~= math.floor(n) then return 0 end
  local last = redis.call('HSTRLEN', record, '@payload' .. int(n))
  return last > 0 and PIECE_BYTES * (n - 1) + last or 0
end

local PAYLOAD = {@@payload} -- every field that a payload may have

-- payload_put adds a payload, which is in text from one place to another, after the first n of fields, which has names and values in turn. It
-- returns how many entries there are then.
local sub, DIGITS = string.sub, {'1', '2', '3', '4', '5', '6', '7', '8'} -- Redis takes a long time to format a number
local function payload_put(fields, n, text, from, to)
  local size = to - from + 1
  if size <= PIECE_BYTES or size > PIECE_BYTES * PIECES then
    fields[n + 1], fields[n + 2] = '@payload', sub(text, from, to)
    return n + 2
  end
  local pieces = math.ceil(size / PIECE_BYTES)
  fields[n + 1], fields[n + 2] = '@pieces', DIGITS[pieces]
  n = n + 2
  for i = 1, pieces - 1 do
    fields[n + 1], fields[n + 2] = PAYLOAD[2 + i], sub(text, from, from + PIECE_BYTES - 1)
    n, from = n + 2, from + PIECE_BYTES
  end
  fields[n + 1], fields[n + 2] = PAYLOAD[2 + pieces], sub(text, from, to)
  return n + 2
end

-- read returns fields of a record by their names; missing ones are false.
local function read(record, ...)
  local names, values, job = {...}, redis.call('HMGET', record, ...), {}
  for i = 1, #names do job[names[i]] = values[i] end
  return job
end

-- read_all returns all fields of a record by their names.
local function read_all(record)
  local flat, job = redis.call('HGETALL', record), {}
  for i = 1, #flat, 2 do job[flat[i]] = flat[i + 1] end
  return job
end

-- payload_count returns how many pieces a record says its payload has, or the greatest possible number if the field is damaged.
local function payload_count(pieces)
  if not pieces then return 0 end
  local n = tonumber(pieces)
  return n and n >= 1 and n <= PIECES and n == math.floor(n) and n or PIECES
end

-- payload_pieces appends the pieces of a payload to a list; job has all its fields.
local function payload_pieces(list, job)
  if not job.@pieces then
    list[#list + 1] = job.@payload or '{}'
    return list
  end
  for i = 1, payload_count(job.@pieces) do list[#list + 1] = job[PAYLOAD[2 + i]] or '' end
  return list
end

-- payload_damaged reports whether a record has another number of pieces than it says.
local function payload_damaged(job)
  local pieces = payload_count(job.@pieces)
  if job.@pieces and tonumber(job.@pieces) ~= pieces then return true end
  for i = 1, pieces do
    if not job[PAYLOAD[2 + i]] then return true end
  end
  return false
end

-- stamp returns a time of parking that no other parked job of the gateway has, so that their order is exact.
local function stamp(counters, now)
  local last = tonumber(redis.call('HGET', counters, 'stamp')) or 0
  if now <= last then now = last + 1 end
  redis.call('HSET', counters, 'stamp', int(now))
  return now
end

-- history_with returns a history (false: none so far) with one more line, and without the oldest lines beyond HISTORY_BYTES.
local function history_with(text, line)
  text = (text or '') .. line .. '\n'
  while #text > HISTORY_BYTES do
    local cut = string.find(text, '\n', 1, true)
    text = string.sub(text, cut + 1)
  end
  return text
end

-- calls_made returns how many calls a job has had since it was last admitted. Older versions did not count them in the record. Without a replay, all of them are in the history;
-- after one, those that were spent are known.
local function calls_made(job)
  if job.@calls or not job.@history then return tonumber(job.@calls) or 0 end
  if job.@replays then return tonumber(job.@spent) or 0 end
  local _, lines = string.gsub(job.@history, '\n', '')
  return lines
end

-- history appends one line for a call.
local function history(record, line)
  if line ~= '' then redis.call('HSET', record, '@history', history_with(redis.call('HGET', record, '@history'), line)) end
end

-- called counts one call in the gateway's rate: a field for each 5 s, of which the last two minutes are kept.
local function called(rate, now)
  local bucket = math.floor(now / 5000000)
  if not gather_once(rate) then return gather_book(rate, int(bucket)) end
  local kind = redis.call('TYPE', rate).ok
  if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', rate) end -- it is only shown: damaged data in it must not keep an outcome from being recorded
  if redis.call('HINCRBY', rate, int(bucket), '1') > 1 then return end
  for _, field in ipairs(redis.call('HKEYS', rate)) do
    if tonumber(field) < bucket - 24 then redis.call('HDEL', rate, field) end
  end
end

-- answered counts the end of one call by the hour, its status and its verdict, in the hash hours beside rate: "HOUR STATUS VERDICT". It keeps the present hour
-- and the 24 before it. It is only shown, like rate.
local function answered(rate, now, line)
  local came = string.match(line, '^%S+ %S+ (%d+ %S+)$')
  if not came then return end
  local hours, hour = shelf_key(rate, 'hours'), math.floor(now / 3600000000)
  local field = int(hour) .. ' ' .. came
  if not gather_once(hours) then return gather_book(hours, field) end
  local calls = redis.pcall('HINCRBY', hours, field, '1')
  if type(calls) == 'table' then
    redis.call('DEL', hours)
    calls = redis.call('HINCRBY', hours, field, '1')
  end
  if calls > 1 then return end
  for _, known in ipairs(redis.call('HKEYS', hours)) do
    if (tonumber(string.match(known, '^%d+')) or 0) < hour - 24 then redis.call('HDEL', hours, known) end
  end
  redis.call('PEXPIRE', hours, 90000000)
end

-- task_new creates the queue's task for a generation of a job, pending since a moment (ns, as text). Its key is made of the job's id, so anything of another type
-- under that key is damaged data, and is deleted.
local function task_new(task, task_id, msg, costs, cost, since)
  local put = redis.pcall('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', since)
  if put ~= 3 and type(put) == 'table' then
    if string.sub(put.err, 1, 9) == 'WRONGTYPE' then redis.call('DEL', task) end
    redis.call('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', since)
  end
  if cost > 1 then redis.call('HSET', costs, task_id, int(cost)) end
end

-- What asynq must know of tasks is made here. The messages of task ids of one length differ only in the id, so one form serves them all.
local forms_before, forms_behind = {}, {}

-- forms_load reads argv[at]: how many lengths the task ids have, then for each length: the length, what a message has before the task's id, and what it has
-- after the id. It returns the place of what follows.
local function forms_load(argv, at)
  local behind = at + 1 + 3 * tonumber(argv[at])
  for f = at + 1, behind - 1, 3 do
    local size = tonumber(argv[f])
    forms_before[size], forms_behind[size] = argv[f + 1], argv[f + 2]
  end
  return behind
end

local function forms_message(task_id)
  local size = #task_id
  return forms_before[size] .. task_id .. forms_behind[size]
end

-- pend creates the task and adds it to a line of the queue: at its head (the right end, which dequeue.lua pops) or at its tail.
local function pend(push, line, task, task_id, msg, costs, cost, now)
  task_new(task, task_id, msg, costs, cost, int(now) .. '000')
  return redis.call(push, line, task_id)
end

-- schedule makes a job wait for its moment, at (µs, as text). Jobs of one moment get scores that are 1 µs apart, in the order in which they came.
-- moments has how many came for each moment, until none of them waits for it (moment_left, due.lua). It expires some time after the last moment.
local function schedule(set, moments, at, id, now)
  local place = redis.call('HINCRBY', moments, at, '1') - 1
  if place == 0 then
    local stay = (tonumber(at) - now) / 1000 + 3600000
    if redis.call('PTTL', moments) < stay then redis.call('PEXPIRE', moments, int(stay)) end
  end
  redis.call('ZADD', set, int(tonumber(at) + place), id)
end

-- moment_left records that a scheduled job leaves before its moment. moments (see schedule) also counts how many left: a place is given out once,
-- and both counts go with the last job.
local function moment_left(record)
  local at, moments = redis.call('HGET', record, '@not_before'), books_key(record, 'moments')
  local came = at and tonumber(redis.call('HGET', moments, at))
  if came and redis.call('HINCRBY', moments, at .. ':left', '1') >= came then redis.call('HDEL', moments, at, at .. ':left') end
end

-- first_line returns the line of the queue for jobs of a class that were never called; usual is that of jobs without a class.
local function first_line(record, class, usual)
  if not class or class == '' then return usual end
  redis.call('HSETNX', shelf_key(record, 'classes'), class, '0')
  return shelf_key(record, 'first:' .. class)
end

-- line_of returns the line of the queue that a job goes back to. A job that has a history was called before, and others go before it.
local function line_of(record, class, history, due, retries)
  if history and history ~= '' then return retries end
  return first_line(record, class, due)
end

-- become_of changes the state of a job whose state, reason, batch and money are known (it reads pieces if that is nil), and the
-- fields that go with the state. It also sets the fields in job.set and deletes those in job.drop, and clears both lists.
local function become_of(record, job, state, ...)
  local fields, reason, set = {...}, job.@reason, job.set or {}
  local n = #set
  for i = 1, #fields do set[n + i] = fields[i] end
  if job.@state == 'scheduled' and state ~= 'queued' then moment_left(record) end -- due.lua queues it, and handles its moment itself
  local bytes = (job.@state == 'parked' or state == 'parked') and payload_bytes(record, job.@pieces) or 0
  redis.call('HSET', record, '@state', state, unpack(set))
  if job.drop then redis.call('HDEL', record, unpack(job.drop)) end
  job.set, job.drop = nil, nil
  feed_job(record, state) --fed
  shelf_move(record, job.@batch, job.@state, reason, state, fields)
  if not job.@batch and not job.@money and bytes == 0 then return end
  for i = 1, #fields, 2 do
    if fields[i] == '@reason' then reason = fields[i + 1] end
  end
  local from, to = books_place(job.@state, job.@reason), books_place(state, reason)
  if from ~= to then books_moved(record, job.@batch, job.@money, bytes, from, to) end
end

-- become does it for any other job.
local function become(record, state, ...)
  local v = redis.call('HMGET', record, '@state', '@reason', '@batch', '@money')
  become_of(record, {@state = v[1], @reason = v[2], @batch = v[3], @money = v[4]}, state, ...)
end

-- attempt reads the record at the end of an attempt, and reports whether it is the attempt that the record knows: same generation, in flight,
-- same owner.
local function attempt(record, generation, owner)
  local job = read_all(record)
  return job, job.@state == 'in_flight' and job.@generation == generation and job.@owner == owner
end

-- end_attempt ends an open attempt; job is what attempt() read. What changes in the record (its history, its status, and that it is no longer open) is
-- only noted in job.set and job.drop: become_of writes it together with the job's next state, and must follow. line is empty if nothing was written; then opened is forgotten as the key's first call. A
-- call whose attempt was given up before (job.given_up) was counted then. The ZREM comes first: when its memory is full, Redis lets a script that has
-- begun to write continue, but does not let one begin with a command that needs memory, and an end must be recorded.
local function end_attempt(keys, job, id, now, spent, line, status)
  if gather_once(keys.open) then redis.call('ZREM', keys.open, id) else shelf_remove(keys.open, id) end
  local set, drop = {}, {'@owner', '@deadline', '@opened_at'}
  if job.@counted then
    drop[4] = '@counted'
    if line == '' and not job.given_up then money_back(keys.record, job.@counted) end
  end
  if line ~= '' then
    set[1], set[2] = '@history', history_with(job.@history, line)
    if not job.given_up then
      set[3], set[4] = '@calls', int(calls_made(job) + 1)
      answered(keys.rate, now, line)
    end
    called(keys.rate, now)
  elseif job.@first_call_at and job.@first_call_at == job.@opened_at then
    drop[#drop + 1] = '@first_call_at'
  end
  if status > 0 then set[#set + 1], set[#set + 2] = '@status', int(status) end
  if spent == 1 then redis.call('HINCRBY', keys.record, '@spent', 1) end
  job.set, job.drop = set, drop
end

-- holds_of returns the names of the holds that concern a job: the gateway's, and those of its route and lane, which may be held on their own (bucket's scopes.lua).
local function holds_of(hold, job)
  local all = {hold}
  if job.@route then all[2] = hold .. ':r:' .. job.@route end
  if job.@lane then all[#all + 1] = hold .. ':l:' .. job.@lane end
  return all
end

-- did_work records that the gateway did its work for a job, whether it paid or refused: the next failure is the first in a row.
local function did_work(hold, job)
  for _, of in ipairs(holds_of(hold, job)) do
    if gather_once(of) then redis.call('HDEL', of, 'run', 'unrun', 'runjob', 'runat', 'runs', 'runlast') end
  end
end

-- next_key returns the next generation of the idempotency key that is not another job's id.
local function next_key(record, present)
  local k = (tonumber(present) or 1) + 1
  while redis.call('EXISTS', record .. '~' .. int(k)) == 1 do k = k + 1 end
  return k
end

-- key_age returns how long ago the first call with a job's present key was (µs; -1: there was none), also if Redis's clock was set back since. last and back are what alive_fits
-- returns of the last sign of life and of the steps of the clock.
local function key_age(job, first, now, last, back)
  if first == 0 then return -1 end
  return math.max(math.max(now, last) - first, 0) + math.max(back - (tonumber(job.@first_call_back) or 0), 0)
end

-- key_covers reports whether the gateway takes another call with the present key for the same call: keeps is "1" if it keeps keys, and lives is how long (µs).
local function key_covers(alive, job, first, now, keeps, lives)
  if keeps ~= '1' or first == 0 then return false end
  local _, _, last, back = alive_fits(alive, '', 0)
  return key_age(job, first, now, last, back) <= tonumber(lives)
end

-- restored returns from when on a job may have had calls that these books don't know of, or nil. A restore was confirmed after it was accepted, or after a person last settled what
-- had become of it. It also returns the first call with its key, that one included, and whether the key came with another payload since.
local function restored(job, marks, first)
  local from = marks ~= '' and alive_unknown(marks, math.max(tonumber(job.@accepted_at) or 0, tonumber(job.@looked_up_at) or 0))
  if not from then return nil, first, false end
  if first == 0 or from < first then first = from end
  return from, first, (tonumber(job.@edited_at) or 0) >= from
end

-- doubt records what an attempt's end says about the present key (job.Ending.Doubt).
local function doubt(record, says)
  if says == 'next' then
    redis.call('HSET', record, '@key_generation', int(next_key(record, redis.call('HGET', record, '@key_generation'))))
    redis.call('HDEL', record, '@first_call_at', '@may_have_charged', '@reference')
  end
  if says == '1' or says == 'other' then redis.call('HSET', record, '@may_have_charged', '1') end
  if says == 'other' then redis.call('HDEL', record, '@first_call_at') end
  if says == 'no' then redis.call('HDEL', record, '@may_have_charged') end
end

-- task_end removes a task whose attempt has ended from asynq's keys, and counts it, as asynq's own script does after its handler. A task
-- that is gone already is not counted again. It is looked for from the end at which the oldest are. keys and args end with the contents of
-- redisdb.TaskEnd.
local function task_end(keys, args)
  local k, a = #keys - 4, #args - 1
  local held = redis.call('LREM', keys[k], '-1', args[a])
  shelf_remove(keys[k + 1], args[a])
  gather_delete(keys[k + 2])
  if held == 0 then return end
  gather_count(keys[k + 3], args[a + 1])
  gather_count(keys[k + 4])
end

-- in_doubt reports whether a parked job may have been charged, by its reason and may_have_charged.
local function in_doubt(reason, may_have_charged) return reason == 'unknown_outcome' or may_have_charged and true or false end

-- ask_for has the gateway asked about a job whose outcome is in doubt, instead of parking it. The first look-up comes after a while (µs). fields go with its state.
local function ask_for(record, job, asking, id, now, wait, ...)
  local at = int(now + math.max(tonumber(wait), 1))
  become_of(record, job, 'pending', '@ask_at', at, '@asked', '0', '@call_ended_at', int(now), ...)
  redis.call('ZADD', asking, at, id)
end

-- settled_by returns the field by of a job that a person settles now, in the act at this place of the trail.
local function settled_by(as, now, place) return as .. ' ' .. int(now) .. ' ' .. place end

-- MAY_HAVE_CHARGED is the end of the error of a job that must not be called again, and is parked as unknown_outcome instead.
local MAY_HAVE_CHARGED = '; an earlier call may have charged'

-- OVER has the fields that a record no longer needs when its job is over, besides the pieces of its payload. With the payload goes what the gateway said. The digest
-- stays, and so do the money, which the batch's sums need, and what says whether a discarded job may have been charged. DONE has the fields that also go when the job is done.
local OVER = {@@over}
local DONE = {@@done}

-- lose adds fields to those that are to be deleted; with has (a table by their names), only those that it has.
local function lose(drop, fields, has)
  for i = 1, #fields do
    local field = fields[i]
    if not has or has[field] then drop[#drop + 1] = field end
  end
end

-- finish ends a job: its state becomes done or discarded, and so is it counted. What is left of its record stays for the dedupe window. has is all
-- fields that the record has now, if they are known: looking for a missing field costs as much as deleting one.
local function finish(record, counters, state, now, dedupe_ms, job, has)
  job = job or read(record, '@state', '@reason', '@batch', '@money', '@pieces')
  local drop = job.drop or {}
  job.drop = drop
  lose(drop, OVER, has)
  if state == 'done' then lose(drop, DONE, has) end
  if job.@reason == 'unreadable' then redis.call('DEL', books_key(record, 'aside:' .. shelf_id(record))) end -- aside.lua may have put one there
  for i = 1, payload_count(job.@pieces) do drop[#drop + 1] = PAYLOAD[2 + i] end
  become_of(record, job, state, '@finished_at', int(now))
  gather_book(counters, state)
  forget(record, dedupe_ms, job.@batch)
end

-- paid_before finishes a job if an earlier call is known to have succeeded, whatever its last one came to; job is what attempt() read.
local function paid_before(record, counters, now, job)
  if job.@late_success then finish(record, counters, 'done', now, job.@late_success, job) end
  return job.@late_success
end
