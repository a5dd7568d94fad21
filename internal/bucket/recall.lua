-- recall.lua: what Redis remembers of the windows that are charged after a loss. Composed after NowLua and loss.lua. It looks only.
-- KEYS 1 pace  2… those windows' lists
-- ARGV 1 now (µs, 0 = Redis's)  2 shape  3 the latest slot that the caller knows to have been given to anybody (µs)
--      4 life that the caller knows (0 = none)  then for each list the span that is put together to one pair (µs)
-- Returns nothing where there is no state, or of another shape, or one that lacks what a loss took that nobody has noticed yet; else {now, s, o, u, w of the pace (see reserve.lua),
--      then for each list: number of pairs, edge, units, edge, units, …}, oldest first.
local pace = redis.call('HMGET', KEYS[1], 'g', 's', 'o', 'u', 'w', 'r')
if pace[1] ~= ARGV[2] then return {} end
local run, restored = loss_run(pace[6])
local life, root = pool_numbers(pace[3]), tonumber(ARGV[4])
if restored or (run or false) ~= pace[6] or tonumber(ARGV[3]) > tonumber(pace[2]) or root > 0 and root < life then return {} end
local out = {int(now_us(ARGV[1])), pace[2], pace[3] or '', pace[4] or '', pace[5] or ''}
for k = 1, #ARGV - 4 do
  local v, span = redis.call('LRANGE', KEYS[1 + k], 0, -1), tonumber(ARGV[4 + k])
  local at, from = #out + 1, nil
  out[at] = 0
  for i = 1, #v, 2 do
    local edge, units = tonumber(v[i]), tonumber(v[i + 1])
    if from and edge - from <= span then
      out[#out - 1], out[#out] = edge, out[#out] + units
    else
      out[#out + 1], out[#out + 2], out[at], from = edge, units, out[at] + 1, edge
    end
  end
  for i = at, #out do out[i] = int(out[i]) end
end
return out
