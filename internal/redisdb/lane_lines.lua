-- lane_lines.lua reads the names of the lists that hold the tasks of some lanes.
-- KEYS 1 lanes, where bucket's lanes.lua lists all keys  2 throttled, or one of the sets of lanes that may be called
-- ARGV 1 place of the first lane in that set  2 place of the last
-- returns {how many lanes were looked at, name of a list, …}
local prefix, lines = string.match(KEYS[1], '^.*}:'), {{1, 'due'}, {2, 'pending'}, {4, 'retries'}, {8, 'replays'}}
local lanes = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2])
local out = {#lanes}
for _, lane in ipairs(lanes) do
  local read, v = pcall(cmsgpack.unpack, redis.pcall('GET', prefix .. 'lane:' .. lane) or '\192')
  if not read or type(v) ~= 'table' then v = {} end -- something else has overwritten it
  for i = 4, #v - 2, 3 do
    for _, line in ipairs(lines) do
      if bit.band(v[i + 2], line[1]) > 0 then out[#out + 1] = prefix .. 'flow:' .. v[i] .. ':' .. line[2] .. ':' .. lane end
    end
  end
end
return out
