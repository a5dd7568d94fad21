-- alone.lua: a fragment of reserve.lua for a gateway whose own limits are all that a call takes permits of.

local function lost_beside() end
