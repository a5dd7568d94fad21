-- alone.lua: a fragment of reserve.lua for a gateway in which a call takes permits of the gateway's own limits only.

local function lost_beside() end
