-- slots.lua: a part of reserve.lua that takes the next slots, for whatever jobs will be pulled at them.

local slots, hint, earliest, at, sum = {}, 0, math.max(now + lead, quiet), {}, {}
for i = 1, want do
  local cost, slot = cost_of(i), math.max(earliest, last, tat - tolerance)
  for k = 1, K do slot, at[k], sum[k] = ready(k, cost, slot) end
  if slot - now > horizon then
    if slot == math.huge and i == 1 then return amnesia() end
    if slot < math.huge then hint = slot - now - horizon end
    break
  end
  for k = 1, K do
    cursor[k], used[k] = at[k], sum[k] + cost
    charge(k, slot, cost)
  end
  tally(slot, cost)
  last, tat = slot, math.max(tat, slot) + T * cost
  slots[#slots + 1] = {slot, cost}
end
if #slots == 0 then
  if news > NEWS and pace[1] then call('HSET', KEYS[1], 'y', tell) end
  return answer('horizon', hint)
end

