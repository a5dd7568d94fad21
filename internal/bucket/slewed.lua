-- slewed.lua: a fragment for what processes have told one another about a clock of Redis that goes too fast: field y of the pace, see reserve.lua.

local SLEWED_FASTEST = 10 -- a clock that is being corrected gains at most one part in this many

local function slewed_told(text)
  local told = {}
  for number in string.gmatch(text or '', '%d+') do told[#told + 1] = tonumber(number) end
  return told
end

-- slewed_most returns the most that a clock can gain within a window.
local function slewed_most(window) return math.floor(window / SLEWED_FASTEST) end

-- slewed_by returns until when a process had watched, how much longer the permits of window k took then (0 if that lies before the window), and which process it was.
local function slewed_by(told, k, window, width, now)
  local at, by, who = told[3 * k - 2] or 0, told[3 * k - 1] or 0, told[3 * k] or 0
  if now >= at + window + width + slewed_most(window) then by = 0 end
  return at, by, who
end
