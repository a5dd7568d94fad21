-- line.lua: lists of incarnations. A fragment: local functions only.

-- line_with adds to a list what it lacks of another one.
local function line_with(line, more)
  for name in string.gmatch(more, '%S+') do
    if not string.find(' ' .. line .. ' ', ' ' .. name .. ' ', 1, true) then
      line = line == '' and name or line .. ' ' .. name
    end
  end
  return line
end
