-- seed.lua: after a loss, a process tells what it remembers. Composed after NowLua, pool.lua and loss.lua.
-- KEYS 1 pace  2… the lists of all windows
-- ARGV 1 now (µs, 0 = Redis's)  2 w of the loss  3 until when the process knows all that was granted (µs)  4 life that it knows
--      5 shape  6 how long after its slot a call is written, at most (µs)  7 spacing (µs)  8 tolerance (µs)  9 the dearest
--      job's cost that it knows of  10 number of windows; then for each window units N and µs R until a permit is ready again; then for each
--      window that is charged: number of pairs, edge, units, edge, units, …, oldest first
-- Returns 1 if Redis knows more now; 0 if it knew as much, or another loss came.
-- What was known before is replaced, not added to, so that two that tell never count twice; what was granted after the moment
-- that the process knows of is charged with the most that it can be. So any process's news is safe, and the latest is the best.
local call = redis.call
local w, till, K = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[10])
local fields = {'g', 'o', 'u', 'w', 'charges'}
local FIXED = #fields
for k = 1, K do fields[FIXED + k] = 'n' .. k end
local pace = call('HMGET', KEYS[1], unpack(fields))
local life, id = pool_numbers(pace[2])
local units, before, since, dearest = pool_numbers(pace[3])
local mark, told, only, span = pool_numbers(pace[4])
if mark ~= w or pace[1] ~= ARGV[5] or till <= told then return 0 end
if only > 0 and tonumber(ARGV[4]) >= only then return 0 end

local N, R, charges = {}, {}, pace[5]
for k = 1, K do N[k], R[k] = tonumber(ARGV[9 + 2 * k]), tonumber(ARGV[10 + 2 * k]) end
local now, ttl, at = now_us(ARGV[1]), call('PTTL', KEYS[1]), 11 + 2 * K
local gap = loss_gap(math.max(w - tonumber(ARGV[6]) - till, 0), span)
local missing = loss_most(gap, N[1], R[1], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]))
local set = {'o', int(life) .. ' ' .. int(math.max(now, id + 1)), 'w', string.format('%.0f %.0f %.0f %.0f', mark, till, only, span),
  'u', string.format('%.0f %.0f %.0f %.0f', units, before, since, math.max(dearest, tonumber(ARGV[9])))}
for k = loss_first(R[1]), K do
  local list, p, more = KEYS[1 + k], {}, 0
  for i = at + 1, at + 2 * tonumber(ARGV[at]), 2 do
    local edge, count = math.min(tonumber(ARGV[i]), w), tonumber(ARGV[i + 1])
    if edge + R[k] > now then
      p[#p + 1], p[#p + 2], more = edge, count, more + count
    end
  end
  at = at + 1 + 2 * tonumber(ARGV[at])
  local charge = math.min(missing, N[k])
  p[#p + 1], p[#p + 2] = w, charge
  more = more + charge - loss_take(list, w)
  loss_put(list, p)
  if ttl > 0 then call('PEXPIRE', list, ttl) end
  set[#set + 1], set[#set + 2] = 'n' .. k, int((tonumber(pace[FIXED + k]) or 0) + more)
  charges = loss_charged(charges, k, w, charge, w)
end
set[#set + 1], set[#set + 2] = 'charges', charges
call('HSET', KEYS[1], unpack(set))
return 1
