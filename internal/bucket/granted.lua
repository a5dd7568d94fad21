-- granted.lua: the end of reserve.lua. It writes down what was granted.

-- digits is int for numbers that occur often: slots are in every window's list and in the reply.
local texts = {}
local function digits(x)
  texts[x] = texts[x] or int(x)
  return texts[x]
end

-- append adds pairs to an exact list, each behind those that count no later. So a call that counts late delays none that counts
-- earlier. It reports whether it has rewritten the whole list.
local function append(list, p)
  local first, reach = tonumber(p[1]), 2
  local v
  repeat
    v = call('LRANGE', list, -reach, -1)
    reach = reach * 8
  until #v < reach / 8 or tonumber(v[1]) <= first
  local at, i = 1, 1
  while at <= #v and tonumber(v[at]) <= first do at = at + 2 end
  if at > #v then
    call('RPUSH', list, unpack(p))
    return false
  end
  local all, stay = {}, call('LLEN', list) - (#v + 1 - at)
  while at <= #v or i <= #p do
    if i > #p or at <= #v and tonumber(v[at]) <= tonumber(p[i]) then
      all[#all + 1], all[#all + 2], at = v[at], v[at + 1], at + 2
    else
      all[#all + 1], all[#all + 2], i = p[i], p[i + 1], i + 2
    end
  end
  if stay > 0 then call('LTRIM', list, 0, stay - 1) else call('DEL', list) end
  for n = 1, #all, POOL_REACH do call('RPUSH', list, unpack(all, n, math.min(n + POOL_REACH - 1, #all))) end
  return stay == 0
end

if not pace[1] then forget_lists() end
local set = state_fields()
if pace[15] ~= present then set[#set + 1], set[#set + 2] = 'p', present end
local renew, ttl = keep(set, false)
if renew then call('PEXPIRE', KEYS[1], ttl) end
for k = 1, K do
  local list, p, first, anew = KEYS[9 + k], push[k], 1, before[k] == 0
  if open[k] then
    if touched[k] then call('LSET', list, -1, int(p[2])) end
    first = 3
  end
  for i = first, #p do p[i] = digits(p[i]) end
  if width[k] == 0 then
    anew = append(list, p) or anew
  elseif #p >= first then
    call('RPUSH', list, unpack(p, first))
  end
  if cursor[k] > 0 then call('LPOP', list, cursor[k]) end
  if renew or anew then call('PEXPIRE', list, ttl) end
end
for _, c in ipairs(closed) do kept_add(c[1], c[2]) end
local out = answer('ok', hint)
for i, s in ipairs(slots) do
  out[#out + 1], out[#out + 2] = digits(s[1]), digits(s[2])
  if cap > 0 then call('ZADD', KEYS[3], int(s[1] + outlives), ARGV[12] .. ':' .. i) end
end
if need == 1 then call('HSET', KEYS[2], 'probe', int(slots[1][1] + PROBE_EVERY), 'slot', int(slots[1][1])) end
return out
