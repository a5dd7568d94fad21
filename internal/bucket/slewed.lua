-- slewed.lua: a fragment; what processes have told one another of a clock of Redis that goes too fast: field y of the pace, see reserve.lua.

local SLEWED_FASTEST = 10 -- a clock that is being put right gains no more than one part in so many

local function slewed_told(text)
  local told = {}
  for number in string.gmatch(text or '', '%d+') do told[#told + 1] = tonumber(number) end
  return told
end

-- slewed_most returns the most that a clock can gain within a window.
local function slewed_most(window) return math.floor(window / SLEWED_FASTEST) end

-- slewed_by returns until when somebody had watched, how much longer the permits of window k took then (0 when that lies behind the window), and who it was.
local function slewed_by(told, k, window, width, now)
  local at, by, who = told[3 * k - 2] or 0, told[3 * k - 1] or 0, told[3 * k] or 0
  if now >= at + window + width + slewed_most(window) then by = 0 end
  return at, by, who
end
