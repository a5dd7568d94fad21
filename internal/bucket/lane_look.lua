-- lane_look.lua reads what is known of one lane, or of one route. Composed after NowLua, permits.lua and lanes.lua.
-- KEYS 1 pace
-- ARGV 1 now (µs, 0 = Redis's)  2 lane | route  3 its name  4 its windows as permits.limits takes them, as JSON
-- returns {now, throttled until (µs, 0 = it is not), 1 if only its next job is, which costs more than 1, when it has a permit (µs), the permits of each window that
-- are not ready again, flows}; each flow is {name, jobs in its lines, the next task of each line}
lanes.open(KEYS[1])
local now, name, limits = now_us(ARGV[1]), ARGV[3], permits.limits(cjson.decode(ARGV[4]))
local t, x, dear, flows = now + L.moved, 0, 0, {}
local logs
if ARGV[2] == 'route' then
  logs = lanes.logs_of(name)
else
  local r = lanes.record(name)
  logs, x, dear = r.logs, r.x, r.dear == '' and 0 or 1
  for flow, work in pairs(r.work) do
    local jobs, heads = 0, {}
    for line in pairs(LANES_LINES) do
      if bit.band(work, line) > 0 then
        local key = lanes.line(flow, line, name)
        local n = redis.call('LLEN', key)
        if n > 0 then
          jobs = jobs + n
          heads[#heads + 1] = redis.call('LINDEX', key, -1)
        end
      end
    end
    if jobs > 0 then flows[#flows + 1] = {flow, jobs, heads} end
  end
end
local used = {}
for k = 1, #limits do
  local sum, log = 0, permits.log(logs, limits[k].width)
  for i = 2, #log, 2 do
    if log[i] + limits[k].R > t then sum = sum + log[i + 1] end
  end
  used[k] = math.min(sum, limits[k].N)
end
local ready = permits.ready(logs, limits, 1, t, L.lost, false)
local function us(moment) return string.format('%.0f', math.max(moment, 0)) end
return {us(now), x > t and us(x - L.moved) or '0', dear, us(ready - L.moved), used, flows}
