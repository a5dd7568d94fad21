-- doubt.lua: how much it takes until trouble counts as the gateway's. A fragment: local functions only.
-- Field of the hold, for each kind of trouble: level:KIND "level until". It rises when a hold turned out to be for trouble of single jobs, up to
-- LEVEL_MOST, and is forgotten after LEVEL_MEMORY (µs). Each level takes LEVEL_STEP times as many jobs in a row as the one below.
local LEVEL_STEP, LEVEL_MOST, LEVEL_MEMORY = 4, 3, 600000000

local function level_of(text, now)
  local level, till = string.match(text or '', '^(%d+) (%d+)$')
  return till and tonumber(till) > now and tonumber(level) or 0
end

local function level_raised(text, now) return int(math.min(level_of(text, now) + 1, LEVEL_MOST)) .. ' ' .. int(now + LEVEL_MEMORY) end
