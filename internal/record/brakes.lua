-- brakes.lua: whether a call may take its money. A fragment: local functions only, behind money.lua and alive.lua. A brake has the windows that its file names, the most
-- that one call may take, and whether money of no named currency is refused. All calls are counted, also those of processes whose files have other brakes or none.
local BRAKES_DAY = 86400000000 -- each currency is counted for so long: a brake that is new in the file knows of it
local BRAKES_MOST = 16 -- windows that are counted at once
local BRAKES_SETTLE = 3000000 -- after a loss, processes have so long to tell what they have opened
local BRAKES_TRY = 10000000 -- the job that waits may be gone: so often others are tried
local BRAKES_FORGET = 2678400000000 -- so long after the last file with brakes, nothing is counted any more
local BRAKES_HOUR = 3600000000
local BRAKES_CHUNK = 500

-- brakes_read reads a brake: "EUR:60000000:5000000=EUR 50000/1m;…|EUR:2000000=EUR 20000;…|1", each limit with what it is called by people; nil if there is none.
local function brakes_read(setting)
  if setting == '' then return nil end
  local limits, singles, refuses = string.match(setting, '^([^|]*)|([^|]*)|(.)$')
  local b = {limits = {}, singles = {}, refuses = refuses == '1', named = {}, names = ''}
  for name, most, label in string.gmatch(limits, '(%u+:%d+):(%d+)=([^;]*);') do
    local w = money_window(name)
    w.most, w.label = tonumber(most), label
    b.limits[#b.limits + 1], b.named[w.currency], b.names = w, true, b.names .. name .. ' '
  end
  for currency, most, label in string.gmatch(singles, '(%u+):(%d+)=([^;]*);') do
    b.singles[#b.singles + 1], b.named[currency] = {currency = currency, most = tonumber(most), label = label}, true
  end
  return b
end

-- brakes_load reads what is known of windows: sum, first part, and the part in which a moment lies.
local function brakes_load(key, windows, at, fixed)
  local fields = {unpack(fixed)}
  for _, w in ipairs(windows) do
    w.edge = money_edge(w, at)
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3] = 's:' .. w.name, 'h:' .. w.name, 'b:' .. w.name .. ':' .. int(w.edge)
  end
  local v = #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {}
  for i, w in ipairs(windows) do
    local n = #fixed + 3 * i
    local first, newest = string.match(v[n - 1] or '', '^(%d+) (%d+)$')
    w.sum, w.first, w.newest, w.has = tonumber(v[n - 2] or '') or 0, tonumber(first), tonumber(newest), tonumber(v[n] or '') or 0
  end
  return v
end

-- brakes_parts calls each with the end and the money of each part between two, oldest first, until it returns true.
local function brakes_parts(key, w, from, upto, each)
  while from <= upto do
    local fields, ends = {}, {}
    for edge = from, math.min(upto, from + (BRAKES_CHUNK - 1) * w.width), w.width do
      ends[#ends + 1], fields[#fields + 1] = edge, 'b:' .. w.name .. ':' .. int(edge)
    end
    for i, has in ipairs(redis.call('HMGET', key, unpack(fields))) do
      if has and each(ends[i], tonumber(has) or 0) then return end
    end
    from = ends[#ends] + w.width
  end
end

-- brakes_span is what the field h of a window has.
local function brakes_span(w) return w.first and int(w.first) .. ' ' .. int(w.newest) or '' end

-- brakes_expire takes out the parts that are over.
local function brakes_expire(key, w, now)
  if not w.first then return end
  local last = math.min(math.floor((now - w.span) / w.width) * w.width, w.newest)
  if w.first > last then return end
  local gone = {}
  brakes_parts(key, w, w.first, last, function(edge, has)
    w.sum, gone[#gone + 1] = w.sum - has, 'b:' .. w.name .. ':' .. int(edge)
  end)
  for i = 1, #gone, BRAKES_CHUNK do redis.call('HDEL', key, unpack(gone, i, math.min(#gone, i + BRAKES_CHUNK - 1))) end
  w.first, w.moved = last < w.newest and last + w.width or nil, true
end

-- brakes_room returns when a window has room for so much more, of what was counted so far.
local function brakes_room(key, w, minor)
  local sum, at = w.sum, nil
  brakes_parts(key, w, w.first or 1, w.newest or 0, function(edge, has)
    sum, at = sum - has, edge + w.span
    return sum + minor <= w.most
  end)
  return at
end

-- brakes_put counts money in a window.
local function brakes_put(set, w, minor)
  w.sum, w.has = w.sum + minor, w.has + minor
  w.newest, w.first = w.first and math.max(w.newest, w.edge) or w.edge, math.min(w.first or w.edge, w.edge)
  local n = #set
  set[n + 1], set[n + 2], set[n + 3], set[n + 4] = 's:' .. w.name, int(w.sum), 'b:' .. w.name .. ':' .. int(w.edge), int(w.has)
  set[n + 5], set[n + 6] = 'h:' .. w.name, brakes_span(w)
end

-- brakes_begin counts in a window that is new what is known by another one of its currency: the shortest that is longer, or the longest.
local function brakes_begin(key, w, all, now, before)
  local from
  for _, other in ipairs(all) do
    if not from or other.span >= w.span and (from.span < w.span or other.span < from.span) or from.span < w.span and other.span > from.span then from = other end
  end
  brakes_load(key, {from}, now, {})
  local parts = {}
  brakes_parts(key, from, from.first or 1, from.newest or 0, function(edge, has)
    edge = math.min(edge, before)
    if edge > now - w.span then
      edge = money_edge(w, edge)
      parts[edge] = (parts[edge] or 0) + has
    end
  end)
  w.sum = 0
  for edge, has in pairs(parts) do
    w.sum, w.first, w.newest = w.sum + has, math.min(w.first or edge, edge), math.max(w.newest or edge, edge)
    redis.call('HSET', key, 'b:' .. w.name .. ':' .. int(edge), int(has))
  end
  redis.call('HSET', key, 's:' .. w.name, int(w.sum), 'h:' .. w.name, brakes_span(w))
end

-- brakes_forgotten takes a window that is counted no more out, with all its parts.
local function brakes_forgotten(key, name)
  local w = money_window(name)
  if not w then return end
  brakes_load(key, {w}, 0, {})
  brakes_expire(key, w, 2 ^ 53)
  redis.call('HDEL', key, 's:' .. name, 'h:' .. name)
end

-- brakes_on returns the windows of a currency that are counted, that of a day first, and begins those that the brake has and that were not.
local function brakes_on(key, on, b, currency, now, before)
  local day = money_window(currency .. ':' .. int(BRAKES_DAY))
  local names, all, known = {}, {day}, {[day.name] = true}
  for name in string.gmatch(on, '%S+') do
    names[#names + 1] = name
    local w = money_window(name)
    if w and w.currency == currency and not known[name] then all[#all + 1], known[name] = w, true end
  end
  local fresh = {}
  for _, w in ipairs(b and b.limits or {}) do
    if w.currency == currency and not known[w.name] then fresh[#fresh + 1], known[w.name] = w.name, true end
  end
  for _, name in ipairs(fresh) do
    local w = money_window(name)
    brakes_begin(key, w, all, now, before)
    all[#all + 1], names[#names + 1] = w, name
  end
  while #names > BRAKES_MOST do
    brakes_forgotten(key, table.remove(names, 1))
    fresh[1] = fresh[1] or ''
  end
  if #fresh > 0 then redis.call('HSET', key, 'on', table.concat(names, ' ')) end
  return all
end

-- brakes_lost returns the moment before which nobody knows what was called, if there is one. known is the born that the caller has seen ('' = none).
local function brakes_lost(born, full, known, alive, marks, now)
  if not born then
    full = tonumber(redis.call('HGET', alive, 'emptied') or '') or full
    if known ~= '' then full = now end
  elseif known ~= '' and known ~= born then
    full = math.max(full or 0, tonumber(known) < tonumber(born) and tonumber(born) or now)
  end
  for till in string.gmatch(marks, '%d+%-(%d+)') do full = math.max(full or 0, tonumber(till)) end
  return full
end

-- brakes_told returns what a process has opened in a currency, of what it has said, and what stands in Redis.
local function brakes_told(text, currency) return tonumber(string.match(' ' .. text, ' ' .. currency .. ':(%d+)') or '') or 0 end

local function brakes_short(text) return tonumber(string.match(text or '', '^%d+') or '') or 0 end

-- brakes_kept renews, once an hour, what says who goes by brakes, and forgets processes that opened nothing for a day.
local function brakes_kept(key, hold, now)
  redis.call('HSET', key, 'asked', int(now))
  redis.call('HSET', hold, 'brakes', 1)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 2) == 'p:' then
      local at = tonumber(string.match(redis.call('HGET', key, field) or '', ' (%d+)$') or '') or 0
      if now - at > BRAKES_DAY + BRAKES_HOUR then redis.call('HDEL', key, field) end
    end
  end
end

-- brakes_wait stops the gateway until there is room, and tries others now and then.
local function brakes_wait(hold, now, till, why)
  local v = redis.call('HMGET', hold, 'brake_since', 'brake_until')
  local since = v[1] and (tonumber(v[2] or '') or 0) + BRAKES_TRY > now and v[1] or int(now)
  redis.call('HSET', hold, 'brake', int(math.min(till, now + BRAKES_TRY)), 'brake_until', int(till), 'brake_why', why, 'brake_since', since)
  redis.call('HINCRBY', hold, 'epoch', 1)
end

-- brakes_forbid says why a call must never be made as the brake is.
local function brakes_forbid(b, amount, currency)
  if b.refuses and not (currency and b.named[currency]) then
    return amount and 'its currency ' .. currency .. ' has no brake, and unknown_currency is refuse' or 'nobody knows its money, and unknown_currency is refuse'
  end
  for _, s in ipairs(b.singles) do
    if s.currency == currency and amount > s.most then return 'it is above the brake single ' .. s.label end
  end
end

-- brakes_full is the limit that keeps a call back for the longest, and until when. windows are those that are counted.
local function brakes_full(key, c, windows, limits, amount, full)
  local why, till = nil, 0
  for _, w in ipairs(windows) do
    local limit = limits[w.name]
    if limit then
      w.most = limit.most
      local room = w.sum + amount > w.most and (brakes_room(key, w, amount) or c.now + w.span) or 0
      local lost = full and full + w.span or 0
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

-- brakes_ask counts the money of a call that is opened now, or says why it must not be: returns nothing, or 'over' or 'braked' with why. c says what is called: record, hold,
-- alive (keys), now, lead (until it is written at the latest, µs), money (as the record has it), setting, process, known ("born CURRENCY:MONEY …", or ''), marks, lost (when
-- Redis was found to have lost writes, or nil), waits (until when nobody calls, as a job waits for room, or nil). It sets c.counted, for the record, and c.known.
local function brakes_ask(c)
  local b, key = brakes_read(c.setting), shelf_key(c.record, 'brakes')
  local minor, currency = string.match(c.money or '', '^%-?(%d+) (%u+)$')
  local amount = minor and (#minor <= MONEY_LONGEST and tonumber(minor) or 10 ^ MONEY_LONGEST)
  local never = b and brakes_forbid(b, amount, currency)
  if never then return 'over', never end
  if not amount then return end
  local mine = 'p:' .. c.process .. ':' .. currency
  local v = brakes_load(key, {}, 0, {'born', 'clock', 'latest', 'on', 'full', 'lifted', 'asked', mine, 'forgiven'})
  local born, lifted, asked = v[1], (tonumber(v[6] or '') or 0) > c.now, tonumber(v[7] or '') or 0
  local limits = {}
  for _, w in ipairs(b and not lifted and b.limits or {}) do
    if w.currency == currency and amount > w.most then return 'over', 'it is above the whole brake ' .. w.label end
    limits[w.name] = w
  end
  if b and not lifted and c.waits and c.waits > c.now then return 'braked', redis.call('HGET', c.hold, 'brake_why') or '' end
  if not b and c.now - asked > BRAKES_FORGET then
    redis.call('DEL', key)
    redis.call('HDEL', c.hold, 'brakes', unpack(MONEY_WAITS))
    return
  end
  if b and c.now - asked > BRAKES_HOUR then brakes_kept(key, c.hold, c.now) end
  c.now = math.max(c.now, tonumber(v[2] or '') or 0) -- a clock that was set back stands still
  local at = c.now + c.lead
  local before = tonumber(v[3] or '') or 0
  local latest = math.max(at, before)
  local seen, told = string.match(c.known, '^(%d*)(.*)$')
  local full = brakes_lost(born, tonumber(v[5] or ''), seen, c.alive, c.marks, c.now)
  local windows = brakes_on(key, v[4] or '', b, currency, c.now, before)
  brakes_load(key, windows, at, {})
  local opened = brakes_short(v[8])
  local missing = born and born == seen and math.max(brakes_told(told, currency) - opened, 0) or 0
  local set = {'born', born or int(c.now), 'clock', int(c.now), 'latest', int(latest)}
  if full and full ~= tonumber(v[5] or '') then set[#set + 1], set[#set + 2] = 'full', int(full) end
  for _, w in ipairs(windows) do
    brakes_expire(key, w, c.now)
    if missing > 0 then brakes_put(set, w, missing) end
  end
  if full and full <= (tonumber(v[9] or '') or 0) then full = nil end
  local why, till = brakes_full(key, c, windows, limits, amount, full)
  opened = opened + missing
  if not why then
    local spans = ''
    for _, w in ipairs(windows) do
      brakes_put(set, w, amount)
      spans = spans .. int(w.span) .. ' '
    end
    c.counted, opened = int(amount) .. ' ' .. currency .. ' ' .. int(at) .. ' ' .. spans, opened + amount
    if c.waits then redis.call('HDEL', c.hold, unpack(MONEY_WAITS)) end
  end
  for _, w in ipairs(windows) do
    if w.moved then set[#set + 1], set[#set + 2], set[#set + 3], set[#set + 4] = 's:' .. w.name, int(w.sum), 'h:' .. w.name, brakes_span(w) end
  end
  set[#set + 1], set[#set + 2] = mine, int(opened) .. ' ' .. int(c.now)
  redis.call('HSET', key, unpack(set))
  c.known = set[2] .. ' ' .. currency .. ' ' .. int(opened)
  if not why then return end
  brakes_wait(c.hold, c.now, till, why)
  return 'braked', why
end
