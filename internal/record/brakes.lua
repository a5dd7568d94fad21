-- brakes.lua: how the money that a gateway's calls take is counted, by currency and window, for brakes. A fragment: local functions only, behind books.lua. A brake has the
-- windows that its file names, the most that one call may take, and whether money of other currencies is refused. All calls are counted, including those of processes whose files
-- have other brakes or none.
-- A window is named CURRENCY:LENGTH (µs). Its calls are counted in parts, each at the end of its part. A call counts from its opening until a window after the end of
-- the part in which it is written at the latest. So any window by Redis's clock has no more in it than was counted when the last of its calls was opened.
-- spillway:{gateway}:brakes, all times in µs, all money in minor units:
--      born     since when money is counted; a process that knows another value knows of calls that are lost
--      clock, latest  the latest moment at which a call was opened, and the latest at which one may be written
--      on       the windows that are counted beside that of a day, which each currency has
--      u:WINDOWS  when a process whose file has these windows last opened a call (µs, by the hour)
--      s:W h:W b:W:EDGE   of a window: its sum; its first and its last part that may have money, by their ends; and the money of the part that ends then
--      p:PROCESS:CURRENCY "money at": what a process has opened in all, and when it last did
--      wide     empty: it keeps the hash from being stored as a list
--      full     it is unknown what was called before
--      lifted   until when no window keeps a call back, and lifted_by, lifted_at, lifted_why
--      asked    when a process that has brakes in its file last opened a call (µs, by the hour)
--      forgiven a loss from before this moment is no longer charged
-- Fields of the hold: brakes (1: money is counted), and while a call waits for room: brake (no call goes before), brake_until (when it has room), brake_why, brake_since.
local MONEY_PARTS, MONEY_LONGEST = 256, 15 -- digits of an amount that is counted; a longer one is above any limit

local MONEY_WAITS = {'brake', 'brake_until', 'brake_why', 'brake_since'}

-- money_span returns the window of a currency that has this length (µs, as text).
local function money_span(currency, length)
  local span = tonumber(length)
  return {name = currency .. ':' .. length, currency = currency, span = span, seconds = string.sub(length, 1, -7), width = math.ceil(span / MONEY_PARTS)}
end

local function money_window(name)
  local currency, length = string.match(name, '^(%u+):(%d+)$')
  return currency and money_span(currency, length)
end

-- money_edge returns the end of the part of a window that a moment is in.
local function money_edge(w, at) return math.ceil(at / w.width) * w.width end

-- money_back takes back a call that was certainly not made. counted is what its record says: "minor currency at windows"; at is when it would have been written
-- at the latest (µs), and windows are their lengths in seconds. Older versions wrote them in µs: no window is shorter than 10 s, or as long as 10,000,000 s.
local function money_back(record, counted)
  local minor, currency, at, windows = string.match(counted, '^(%d+) (%u+) (%d+) (.*)$')
  if not minor then return end
  local key = shelf_key(record, 'brakes')
  for length in string.gmatch(windows, '%d+') do
    local w = money_span(currency, tonumber(length) < 10000000 and length .. '000000' or length)
    local part = 'b:' .. w.name .. ':' .. int(money_edge(w, tonumber(at)))
    local has = tonumber(redis.call('HGET', key, part) or '')
    if has and has >= tonumber(minor) then
      if redis.call('HINCRBY', key, part, '-' .. minor) == 0 then redis.call('HDEL', key, part) end
      redis.call('HINCRBY', key, 's:' .. w.name, '-' .. minor)
    end
  end
end

local BRAKES_DAY, BRAKES_DAY_TEXT = 86400000000, '86400000000' -- each currency is counted for this long, so that a brake that is new in the file knows of it
local BRAKES_LEAD = 10000000 -- a call of an unknown process may have been written this long after it was opened, or longer
local BRAKES_CHUNK = 500
local BRAKES_REACH = 100000 -- the most parts that are looked at, so that no script runs for long, whatever is in Redis

-- brakes_read parses a brake: "EUR:60000000:5000000=EUR 50000/1m;…|EUR:2000000=EUR 20000;…|1", each limit with its name for people. It returns nil if there is none.
local brakes_text, brakes_said -- the brake that was read last in this run
local function brakes_read(setting)
  if setting == '' then return nil end
  if setting == brakes_text then return brakes_said end
  local limits, singles, refuses = string.match(setting, '^([^|]*)|([^|]*)|(.)$')
  local b = {limits = {}, singles = {}, refuses = refuses == '1', named = {}, least = {}, names = ''}
  for currency, length, most, label in string.gmatch(limits, '(%u+):(%d+):(%d+)=([^;]*);') do
    local limit = {currency = currency, length = length, most = tonumber(most), label = label}
    b.limits[#b.limits + 1], b.named[currency], b.names = limit, true, b.names .. currency .. ':' .. length .. ' '
    b.least[currency] = math.min(b.least[currency] or limit.most, limit.most)
  end
  for currency, most, label in string.gmatch(singles, '(%u+):(%d+)=([^;]*);') do
    b.singles[#b.singles + 1], b.named[currency] = {currency = currency, most = tonumber(most), label = label}, true
  end
  brakes_text, brakes_said = setting, b
  return b
end

local function brakes_part(w, edge) return 'b:' .. w.name .. ':' .. int(edge) end

-- brakes_load reads some fields, and what is known of windows: sum, first and last part, and the part that a moment is in.
local function brakes_load(key, windows, at, fields)
  local fixed = #fields
  for _, w in ipairs(windows) do
    w.edge = money_edge(w, at)
    local n = #fields
    fields[n + 1], fields[n + 2], fields[n + 3] = 's:' .. w.name, 'h:' .. w.name, brakes_part(w, w.edge)
  end
  local v = #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {}
  for i, w in ipairs(windows) do
    local n = fixed + 3 * i
    local first, newest = string.match(v[n - 1] or '', '^(%d+) (%d+)$')
    w.sum, w.first, w.newest, w.has, w.add = tonumber(v[n - 2] or '') or 0, tonumber(first), tonumber(newest), {[w.edge] = tonumber(v[n] or '') or 0}, {}
    if w.first and w.newest - w.first > BRAKES_REACH * w.width then w.first = math.ceil(w.newest / w.width - BRAKES_REACH) * w.width end
  end
  return v
end

-- brakes_parts calls each with the end and the money of every part between two, oldest first, until it returns true.
local function brakes_parts(key, w, from, upto, each)
  while from <= upto do
    local fields, ends = {}, {}
    for edge = from, math.min(upto, from + (BRAKES_CHUNK - 1) * w.width), w.width do
      ends[#ends + 1], fields[#fields + 1] = edge, brakes_part(w, edge)
    end
    for i, has in ipairs(redis.call('HMGET', key, unpack(fields))) do
      if has and each(ends[i], tonumber(has) or 0) then return end
    end
    from = ends[#ends] + w.width
  end
end

-- brakes_span formats the field h of a window.
local function brakes_span(w) return w.first and int(w.first) .. ' ' .. int(w.newest) or '' end

-- brakes_expire removes the parts that are over.
local function brakes_expire(key, w, now)
  if not w.first then return end
  local last = math.min(math.floor((now - w.span) / w.width) * w.width, w.newest)
  if w.first > last then return end
  local gone = {}
  brakes_parts(key, w, w.first, last, function(edge, has)
    w.sum, w.has[edge], gone[#gone + 1] = w.sum - has, nil, brakes_part(w, edge)
  end)
  for i = 1, #gone, BRAKES_CHUNK do redis.call('HDEL', key, unpack(gone, i, math.min(#gone, i + BRAKES_CHUNK - 1))) end
  w.moved = true
  if last < w.newest then
    w.first = last + w.width
  else -- everything that was counted is over, whatever the sum says
    w.first, w.newest, w.sum = nil, nil, 0
  end
end

-- brakes_room returns when a window has room for this much more, given what was counted so far.
local function brakes_room(key, w, minor)
  local sum, at = w.sum, nil
  brakes_parts(key, w, w.first or 1, w.newest or 0, function(edge, has)
    sum, at = sum - has, edge + w.span
    return sum + minor <= w.most
  end)
  return at
end

-- brakes_put counts money in a window, at a moment. brakes_written writes it.
local function brakes_put(w, at, minor)
  local edge = money_edge(w, at)
  w.sum, w.add[edge] = w.sum + minor, (w.add[edge] or 0) + minor
  if not w.first or edge > w.newest or edge < w.first then
    w.newest, w.first, w.moved = w.first and math.max(w.newest, edge) or edge, math.min(w.first or edge, edge), true
  end
end

-- brakes_written appends the present values of windows to the fields that will be set.
local function brakes_written(set, key, windows)
  local unread, fields = {}, {}
  for _, w in ipairs(windows) do
    for edge in pairs(w.add) do
      if not w.has[edge] then unread[#unread + 1], fields[#fields + 1] = {w.has, edge}, brakes_part(w, edge) end
    end
  end
  if #fields > 0 then
    for i, has in ipairs(redis.call('HMGET', key, unpack(fields))) do unread[i][1][unread[i][2]] = tonumber(has or '') or 0 end
  end
  for _, w in ipairs(windows) do
    local n = #set
    for edge, minor in pairs(w.add) do
      w.has[edge] = w.has[edge] + minor
      set[n + 1], set[n + 2] = brakes_part(w, edge), int(w.has[edge])
      n = n + 2
    end
    if w.moved then
      set[n + 1], set[n + 2] = 'h:' .. w.name, brakes_span(w)
      n = n + 2
    end
    if w.moved or next(w.add) then set[n + 1], set[n + 2] = 's:' .. w.name, int(w.sum) end
    w.add, w.moved = {}, nil
  end
end

-- brakes_begin fills a new window from what another one of its currency knows: the shortest that is longer, or the longest.
local function brakes_begin(key, w, all, now, before)
  local from
  for _, other in ipairs(all) do
    if not from or other.span >= w.span and (from.span < w.span or other.span < from.span) or from.span < w.span and other.span > from.span then from = other end
  end
  local parts = {}
  brakes_parts(key, from, from.first or 1, from.newest or 0, function(edge, has)
    edge = math.min(edge, before)
    if edge > now - w.span then
      edge = money_edge(w, edge)
      parts[edge] = (parts[edge] or 0) + has
    end
  end)
  w.sum, w.first, w.newest, w.has, w.add = 0, nil, nil, {}, {}
  for edge, has in pairs(parts) do brakes_put(w, edge, has) end
end

-- brakes_forgotten removes a window that is no longer counted, with all its parts.
local function brakes_forgotten(key, w)
  brakes_load(key, {w}, 0, {})
  brakes_expire(key, w, 2 ^ 53)
  redis.call('HDEL', key, 's:' .. w.name, 'h:' .. w.name)
end

-- brakes_on adds to the windows of a currency, that of a day first, which were read, all others that are counted. It begins those that were not counted.
local function brakes_on(key, on, windows, currency, now, before)
  local read, counted, more, fresh = {}, {[windows[1].name] = true}, {}, {}
  for _, w in ipairs(windows) do read[w.name] = true end
  for name in string.gmatch(on, '%S+') do
    local w = not read[name] and money_window(name)
    if w and w.currency == currency then more[#more + 1] = w end
    counted[name] = true
  end
  if #more > 0 then brakes_load(key, more, now, {}) end
  for _, w in ipairs(windows) do
    if counted[w.name] then more[#more + 1] = w else fresh[#fresh + 1] = w end
  end
  for _, w in ipairs(fresh) do
    brakes_begin(key, w, more, now, before)
    local set = {}
    brakes_written(set, key, {w})
    if #set > 0 then redis.call('HSET', key, unpack(set)) end
    more[#more + 1], on = w, on .. ' ' .. w.name
  end
  if #fresh > 0 then redis.call('HSET', key, 'on', on) end
  return more, on
end

-- brakes_lost returns the moment before which it is unknown what was called, if there is one. known is the born that the caller has seen ('' = none).
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

-- brakes_short returns the number at the start of a text.
local function brakes_short(text) return tonumber(string.match(text or '', '^%d+') or '') or 0 end

