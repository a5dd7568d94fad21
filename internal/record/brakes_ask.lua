-- brakes_ask.lua: whether a call may take its money. A fragment: local functions only, behind brakes.lua and gather.lua. Several calls in one run of a script read what is
-- known once, and write it once.
local BRAKES_SETTLE = 3000000 -- after a loss, processes have this long to tell what they have opened
local BRAKES_TRY = 10000000 -- the job that waits may be gone, so others are tried this often
local BRAKES_FORGET = 2678400000000 -- this long after the last file with brakes, counting ends
local BRAKES_HOUR = 3600000000
local BRAKES_WIDE = string.rep('-', 65) -- a hash with such a field is not stored as a list, in which Redis would search up to 512 fields for one

-- brakes_kept records once an hour which process has brakes, and which windows its file has. It forgets processes that opened nothing for a day, and windows that are in no file any more: one
-- of up to a day after a day, since that of a day knows all of it, and a longer one after the longest possible window. It returns the windows that are counted.
local function brakes_kept(key, hold, b, now, on)
  redis.call('HSET', key, 'asked', int(now), 'u:' .. b.names, int(now), 'wide', BRAKES_WIDE)
  redis.call('HSET', hold, 'brakes', 1)
  local named, left = {}, {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local kind = string.sub(field, 1, 2)
    local value = (kind == 'p:' or kind == 'u:') and redis.call('HGET', key, field) or ''
    local at = tonumber(string.match(value, '(%d+)$') or '') or 0
    if kind == 'p:' and now - at > BRAKES_DAY + BRAKES_HOUR or kind == 'u:' and now - at > BRAKES_FORGET then
      redis.call('HDEL', key, field)
    elseif kind == 'u:' then
      for name in string.gmatch(field, '%u+:%d+') do named[name] = math.max(named[name] or 0, at) end
    end
  end
  for name in string.gmatch(on, '%S+') do
    local w = money_window(name)
    if w and w.span > BRAKES_DAY and not named[name] then -- a process of an older version may have it in its file
      redis.call('HSET', key, 'u:' .. name .. ' ', int(now))
      named[name] = now
    end
    if w and now - (named[name] or 0) <= (w.span > BRAKES_DAY and BRAKES_FORGET or BRAKES_DAY) then
      left[#left + 1] = name
    elseif w then
      brakes_forgotten(key, w)
    end
  end
  local kept = table.concat(left, ' ')
  if kept ~= on then redis.call('HSET', key, 'on', kept) end
  return kept
end

-- brakes_wait stops the gateway until there is room, and lets others try now and then.
local function brakes_wait(hold, now, till, why)
  local v = redis.call('HMGET', hold, 'brake_since', 'brake_until')
  local since = v[1] and (tonumber(v[2] or '') or 0) + BRAKES_TRY > now and v[1] or int(now)
  redis.call('HSET', hold, 'brake', int(math.min(till, now + BRAKES_TRY)), 'brake_until', int(till), 'brake_why', why, 'brake_since', since)
  redis.call('HINCRBY', hold, 'epoch', 1)
end

-- brakes_forbid returns why a call must never be made with this brake.
local function brakes_forbid(b, amount, currency)
  if b.refuses and not (currency and b.named[currency]) then
    return amount and 'its currency ' .. currency .. ' has no brake, and unknown_currency is refuse' or 'nobody knows its money, and unknown_currency is refuse'
  end
  for _, s in ipairs(b.singles) do
    if s.currency == currency and amount > s.most then return 'it is above the brake single ' .. s.label end
  end
end

-- brakes_run returns what this run of a script knows of a gateway's brakes; some of it is not written yet.
local brakes_run

-- brakes_save writes it.
local function brakes_save()
  local s = brakes_run
  if not s or not s.changed then return end
  local set = {'clock', int(s.clock), 'latest', int(s.latest)}
  for field, value in pairs(s.set) do set[#set + 1], set[#set + 2] = field, value end
  for mine, opened in pairs(s.opened) do set[#set + 1], set[#set + 2] = mine, int(opened) .. ' ' .. int(s.clock) end
  for _, windows in pairs(s.of) do brakes_written(set, s.key, windows) end
  redis.call('HSET', s.key, unpack(set))
  s.changed, s.set = nil, {}
end

-- brakes_end writes it after the last call of a run was asked for.
local function brakes_end()
  brakes_save()
  brakes_run = nil
end

-- brakes_back is money_back for the calls of a run.
local function brakes_back(record, counted)
  brakes_end()
  money_back(record, counted)
end

-- brakes_see reads what this run does not know yet about a call's currency and process, and returns what it knows of the gateway.
local function brakes_see(c, key, b, currency, mine)
  local s = brakes_run
  if s and (s.key ~= key or s.setting ~= c.setting) then
    brakes_end()
    s = nil
  end
  if s and s.of[currency] and s.opened[mine] then return s end
  local windows = s and s.of[currency]
  if not windows then
    windows = {money_span(currency, BRAKES_DAY_TEXT)}
    for _, l in ipairs(b and b.limits or {}) do
      if l.currency == currency then
        local w = l.length == BRAKES_DAY_TEXT and windows[1] or money_span(currency, l.length)
        w.limit = l
        if w ~= windows[1] then windows[#windows + 1] = w end
      end
    end
  end
  if s then
    local v = brakes_load(key, s.of[currency] and {} or windows, c.now + c.lead, {mine})
    s.opened[mine], s.of[currency] = brakes_short(v[1]), windows
    return s
  end
  local v = brakes_load(key, windows, c.now + c.lead, {mine, 'born', 'clock', 'latest', 'on', 'full', 'lifted', b and 'u:' .. b.names or 'asked'})
  s = {key = key, setting = c.setting, of = {[currency] = windows}, opened = {[mine] = brakes_short(v[1])}, tells = {}, set = {}, born = v[2], clock = tonumber(v[3] or '') or 0,
    latest = tonumber(v[4] or '') or 0, on = v[5] or '', full = tonumber(v[6] or ''), lifted = tonumber(v[7] or '') or 0, asked = tonumber(v[8] or '') or 0}
  brakes_run = s
  return s
end

-- brakes_tells is the pattern by which a process that knows of this gateway's money has told what it has opened in a currency.
local function brakes_tells(s, currency)
  s.tells[currency] = '^' .. s.born .. ' .-' .. currency .. ':(%d+)'
  return s.tells[currency]
end

-- brakes_full returns the limit that keeps a call back longest, and until when. windows are those that are counted.
local function brakes_full(c, s, windows, amount, full)
  local why, till = nil, 0
  local lead = math.max(c.lead, c.longest, BRAKES_LEAD)
  for _, w in ipairs(windows) do
    local limit = s.lifted <= c.now and w.limit
    if limit then
      w.most = limit.most
      local room = 0
      if w.sum + amount > w.most then
        brakes_save()
        room = brakes_room(s.key, w, amount) or c.now + w.span
      end
      local lost = full and full + lead + w.span or 0
      if math.max(room, lost) > math.max(till, c.now) then
        till = math.max(room, lost)
        why = 'the brake ' .. limit.label .. (lost >= room and ': nobody knows what was called before Redis lost its data' or '')
      end
      if c.lost and c.lost + BRAKES_SETTLE > math.max(till, c.now) then
        why, till = 'the brake ' .. limit.label .. ': Redis lost its latest writes, and dispatchers tell what they had called', c.lost + BRAKES_SETTLE
      end
    end
  end
  return why, till
end

-- brakes_ask counts the money of a call that is opened now. If the call must not be made, it returns 'over' or 'braked' and why, else nothing. c describes the call: record, hold,
-- alive (keys), now, lead (how long until it is written at most, µs), longest (the longest lead of its process), money (as the record has it), setting, process, known
-- ("born CURRENCY:MONEY …", or ''), marks, lost (when Redis was found to have lost writes, or nil), waits (until when calls wait because a job waits for room, or nil). It sets
-- c.counted, for the record, and c.known.
local function brakes_ask(c)
  local b, key = brakes_read(c.setting), shelf_key(c.record, 'brakes')
  local minor, currency = string.match(c.money or '', '^%-?(%d+) (%u+)$')
  local amount = minor and (#minor <= MONEY_LONGEST and tonumber(minor) or 10 ^ MONEY_LONGEST)
  local never = b and brakes_forbid(b, amount, currency)
  if never then return 'over', never end
  if not amount then return end
  local several = gather_first(brakes_end)
  if not several then brakes_run = nil end
  local mine = 'p:' .. c.process .. ':' .. currency
  local s = brakes_see(c, key, b, currency, mine)
  if b and s.lifted <= c.now then
    if amount > (b.least[currency] or amount) then
      for _, l in ipairs(b.limits) do
        if l.currency == currency and amount > l.most then return 'over', 'it is above the whole brake ' .. l.label end
      end
    end
    if c.waits and c.waits > c.now then return 'braked', redis.call('HGET', c.hold, 'brake_why') or '' end
  end
  if not b and c.now - s.asked > BRAKES_FORGET then
    redis.call('DEL', key)
    redis.call('HDEL', c.hold, 'brakes', unpack(MONEY_WAITS))
    brakes_run = nil
    return
  end
  if b and c.now - s.asked > BRAKES_HOUR then
    s.on, s.asked = brakes_kept(key, c.hold, b, c.now, s.on), c.now
  end
  if c.now < s.clock then c.now = s.clock end -- a clock that was set back stands still
  local at = c.now + c.lead
  local before = s.latest
  if at > before then s.latest = at end
  s.clock, s.changed = c.now, true
  local full = s.full
  local told = s.born and string.match(c.known, s.tells[currency] or brakes_tells(s, currency))
  local newer -- the process knows books that were begun after these: those were put aside
  if not told or c.marks ~= '' then
    local known = string.match(c.known, '^%d*')
    full = brakes_lost(s.born, full, known, c.alive, c.marks, c.now)
    newer = s.born and known ~= '' and tonumber(known) > tonumber(s.born) and tonumber(known)
  end
  local windows = s.of[currency]
  if not windows.seconds then
    local on
    windows, on = brakes_on(key, s.on, windows, currency, c.now, before)
    windows.seconds, s.of[currency], s.on = '', windows, on
    for _, w in ipairs(windows) do windows.seconds = windows.seconds .. w.seconds .. ' ' end
  end
  local missing = told and tonumber(told) - s.opened[mine] or 0
  if not s.born or newer then -- from now on this is known to be a loss from before, and is charged once
    s.born, s.tells = int(math.max(c.now, (newer or 0) + 1)), {}
    s.set.born = s.born
  end
  if full ~= s.full then
    s.full, s.set.full = full, int(full)
  end
  if windows.at ~= c.now then
    for i = 1, #windows do brakes_expire(key, windows[i], c.now) end
    windows.at = c.now
  end
  if missing > 0 then
    local written = c.now + math.max(c.lead, c.longest, BRAKES_LEAD)
    for _, w in ipairs(windows) do brakes_put(w, written, missing) end
    s.latest, s.opened[mine] = math.max(s.latest, written), s.opened[mine] + missing
  end
  if full and full <= (tonumber(redis.call('HGET', key, 'forgiven') or '') or 0) then full = nil end
  local tight = full or c.lost
  for i = 1, #windows do
    local w = windows[i]
    tight = tight or w.limit and w.sum + amount > w.limit.most
  end
  local why, till
  if tight then
    why, till = brakes_full(c, s, windows, amount, full)
  end
  if not why then
    for i = 1, #windows do brakes_put(windows[i], at, amount) end
    local opened = s.opened[mine] + amount
    s.opened[mine], s.changed = opened, true
    c.counted = (#minor <= MONEY_LONGEST and minor or int(amount)) .. ' ' .. currency .. ' ' .. int(at) .. ' ' .. windows.seconds
    c.known = s.born .. ' ' .. currency .. ' ' .. int(opened)
    if c.waits then redis.call('HDEL', c.hold, unpack(MONEY_WAITS)) end
  end
  if not several then brakes_end() end
  if not why then return end
  brakes_wait(c.hold, c.now, till, why)
  return 'braked', why
end
