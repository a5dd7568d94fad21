-- alive.lua: the age of a gateway's data, which shows when Redis was restored from an old snapshot. A fragment: local functions only.
-- Fields of spillway:{gateway}:alive; internal/incarnation writes all of them, and pulses move at:
--   line    the data's incarnations, oldest first, a space between; the last is the present one, and each confirmed restore begins another
--   at      the last sign of life (µs): every dispatcher's pulse moves it on, at most once a second, and never back
--   seen    "now at" (µs): the last sign of life while the clock is behind at, because it was set back, and at; of another at: it is not behind
--   back    by how much the clock was set back in all, as signs of life saw it, rather more than less (µs; absent: it never was)
--   v       when anything but at, seen and back was last changed (µs): a process that knows another v must look before it calls
--   gaps    "from-to …" (µs): times without a sign of life
--   marks   "from-until …" (µs): confirmed restores. Calls made in between are not in the books
--   df ds dl  a dispatcher's doubt, until an operator settles it: from when on the data knows nothing (µs; 1: it never knew
--           anything), the last sign of life that was seen elsewhere (µs), and the incarnations known there (as line)
--   emptied when data was begun that others knew before it was emptied (µs; absent: it was not emptied, as far as is known)
--   format  the format that its writers give to all of the gateway's data (see Format in check.go). absent: the data is from before formats had numbers, or only producers were here
--           so far, who write it into the counters
--   moving entry  "rename OLD NEW" or "forget NAME": this was begun and is not over, so no calls are made and no job goes in; the place of its entry in the
--           trail, or when it was begun (µs)
local ALIVE_BEAT, ALIVE_SILENCE = 1000000, 10000000

-- alive_fits reports whether the data is what its caller has seen, and no older than least. It also returns the data's last sign of life, the same on the clock as it was set
-- since, and by how much that was set back in all.
local function alive_fits(alive, v, least)
  local a = redis.call('HMGET', alive, 'v', 'at', 'seen', 'back')
  local at = tonumber(a[2]) or 0
  local seen, of = string.match(a[3] or '', '^(%d+) (%d+)$')
  return a[1] == v and at >= tonumber(least), at, tonumber(of or '') == at and tonumber(seen) or at, tonumber(a[4] or '') or 0
end

-- alive_turned notes a sign of life by a clock that is behind the latest one. It returns by how much the clock was set back since the last one, rather less than more.
local function alive_turned(alive, now, at, last, back)
  local by = math.max(last - now, 0)
  if by == 0 and now - last < ALIVE_BEAT then return 0 end
  if by > 0 then back = back + by + 2 * ALIVE_BEAT end
  local written = redis.pcall('HSET', alive, 'seen', int(now) .. ' ' .. int(at), 'back', int(back))
  return type(written) == 'table' and 0 or by
end

-- alive_beat gives a sign of life, and returns the last one, and by how much the clock was set back since then. It returns -1 if the caller must look before it calls, or 0 if it does not watch
-- (v is ''). If Redis takes no writes now, the old sign of life stays.
local function alive_beat(alive, v, least, now)
  if v == '' then return 0, 0 end
  local fits, at, last, back = alive_fits(alive, v, least)
  local by = now < at and alive_turned(alive, now, at, last, back) or 0
  if not fits or now - at > ALIVE_SILENCE then return -1, by end
  if now - at < ALIVE_BEAT then return at, by end
  local written = redis.pcall('HSET', alive, 'at', int(now))
  return type(written) == 'table' and at or now, 0
end

-- alive_changed returns the version of data that is changed now: another one than before, even if the clock was set back.
local function alive_changed(v, now) return int(math.max(now, (tonumber(v) or 0) + 1)) end

-- alive_forgotten returns the latest moment of calls after this one that the books may have forgotten (µs): the confirmation of a restore. nil: none is forgotten.
local function alive_forgotten(marks, known)
  local latest
  for till in string.gmatch(marks or '', '%d+%-(%d+)') do
    if known < tonumber(till) then latest = math.max(latest or 0, tonumber(till)) end
  end
  return latest
end

-- alive_unknown returns from when on a job's calls may be missing in the books, or nil. That is the time of the oldest snapshot that was
-- restored, of those restores that were confirmed after the job's state was last known for certain.
local function alive_unknown(marks, known)
  local oldest
  for from, till in string.gmatch(marks, '(%d+)-(%d+)') do
    if known <= tonumber(till) then oldest = math.min(oldest or math.huge, tonumber(from)) end
  end
  return oldest
end
