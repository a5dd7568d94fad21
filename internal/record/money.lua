-- money.lua: the money that a gateway's calls take, by currency and window, as counted for brakes. A fragment: local functions only, behind batch.lua.
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
