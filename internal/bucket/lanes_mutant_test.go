package bucket

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"

	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// hashOf is Redis's name of a script.
func hashOf(fragments []string) string {
	hash := sha1.Sum([]byte(redisdb.Compose(fragments...))) //nolint:gosec // Redis's name of a script
	return hex.EncodeToString(hash[:])
}

// laneScripts are the texts of all scripts of lanes, by their hashes.
func laneScripts() map[string]string {
	all := map[string]string{}
	for _, fragments := range [][]string{unbindText, movedText, overText, scopedText, scopedOKText} {
		all[hashOf(fragments)] = redisdb.Compose(fragments...)
	}
	all[hashOf(redisdb.WithConstants(pickText...))] = redisdb.Compose(pickText...)
	for _, text := range redisdb.Texts() {
		if strings.Contains(text, "'PEXPIRE', KEYS[1], ACTED") {
			all[hashOf([]string{text})] = text
		}
	}
	return all
}

// bent is a mutant of the scripts of lanes: pairs of a text and its replacement.
type bent []string

// texts returns the mutated scripts, by the hashes of the scripts that they replace.
func (b bent) texts(t testing.TB) map[string]string {
	out, met := map[string]string{}, 0
	for hash, text := range laneScripts() {
		is := text
		for i := 0; i < len(b); i += 2 {
			met += strings.Count(is, b[i])
			is = strings.ReplaceAll(is, b[i], b[i+1])
		}
		if is != text {
			out[hash] = is
		}
	}
	if met < len(b)/2 {
		t.Fatalf("the mutant changes nothing: %q", []string(b))
	}
	return out
}

// Each line that keeps limits, order, shares and floors is needed: without it some trial fails. The seed is that of a short one.
func TestMutantsOfLanes(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, m := range map[string]laneMutant{
		"no permits of the account":            {bent{"      charge(k, slot, cost)\n    end\n    tally", "      charge(k, slot - R[k], cost)\n    end\n    tally"}, 2, nil},
		"no permits of a route":                {bent{"permits.take(lanes.logs_of(name), routes[name],", "permits.take({}, routes[name],"}, 31, nil},
		"no permits of a lane":                 {bent{"permits.take(r.logs, r.kept,", "permits.take({}, r.kept,"}, 1, nil},
		"lanes count at once, not at the slot": {bent{"permits.take(r.logs, r.kept, cost, slot + L.moved, slot + allowance + L.moved,", "permits.take(r.logs, r.kept, cost, now, now,"}, 1, nil},
		"a permit too few is remembered":       {bent{"sum < limits.most)", "sum < limits.most - 1)"}, 31, nil},
		"lateness not moved in lanes":          {bent{"permits.move(r.logs,", "permits.move({},"}, 3, nil},
		"lateness not moved in routes":         {bent{"permits.move(lanes.logs_of(route),", "permits.move(({lanes.logs_of(route)})[2] or {},"}, 67, nil},
		"parts begin, not end":                 {bent{"math.ceil(at / width)", "math.floor(at / width)"}, 1, nil},
		"a lane keeps what is given back":      {bent{"permits.back(r.logs,", "permits.back({},"}, 13, nil},
		"a route keeps what is given back":     {bent{"permits.back(lanes.logs_of(route),", "permits.back(({lanes.logs_of(route)})[2] or {},"}, 13, nil},
		"a job given back goes to the tail":    {bent{"redis.call('RPUSH', lanes.line(", "redis.call('LPUSH', lanes.line("}, 0, nil},
		"what is given back wakes nobody":      {bent{"  lanes.look(lane, r)\nend\nlanes.save()\nreturn back", "end\nlanes.save()\nreturn back"}, 8, nil},
		"what is given back opens no route":    {bent{"  lanes.reopen(route)\n  if task", "  if task"}, 13, nil},
		"throttled lanes never come back":      {bent{"if due <= t then promote(t) end", ""}, 119, nil},
		"the next throttled lane is forgotten": {bent{"if next(r.work) then due = math.min(due, x) end", ""}, 77, nil},
		"other flows of a lane stay":           {bent{"for flow in pairs(r.work) do lanes.drop(lane, flow) end", "for flow in pairs(r.work) do\n    lanes.drop(lane, flow)\n    break\n  end"}, 1, nil},
		"a shut route ends the search":         {bent{"        when = math.min(when, till)", "        return {}, till"}, 4, nil},
		"new work of a throttled lane is lost": {bent{"  if idle then redis.call('ZADD', L.prefix .. 'throttled', int(r.x), lane) end", ""}, 1, nil},
		"the lowest class first":               {bent{"    for _, class in ipairs(order) do\n      if best[class] then return best[class] end", "    for i = #order, 1, -1 do\n      local class = order[i]\n      if best[class] then return best[class] end"}, 1, nil},
		"floors ignored":                       {bent{"if owed then return owed end", ""}, 1, nil},
		"floors saved up":                      {bent{"elseif every[class] > 0 and not b.able[class] then", "elseif false then"}, 11, nil},
		"a lane pays half":                     {bent{"local tag, open = b.tag + paid, {}", "local tag, open = b.tag + (b.lane == 'm1' and paid / 2 or paid), {}"}, 8, nil},
		"costs are ignored":                    {bent{"local paid = b.cost / r.weight", "local paid = 1 / r.weight"}, 38, nil},
		"who comes back starts at nothing":     {bent{"if not tag or tag < least then tag = least - LANES_NEW / math.max(1, r.weight) end", "tag = tag or 0"}, 8, nil},
		"a set that stood still is overtaken":  {bent{"return v[2] and tonumber(v[2]) < least - 2 * LANES_NEW and tonumber(v[2]) or least", "return least"}, 67, nil},
		"losses are not charged":               {bent{"lanes.set('lu', missing + (known and lanes.state('lu') or 0))", ""}, 104, drawLosses},
		"a flow's tasks are not counted down":  {bent{"for _, b in ipairs(bound) do lanes.count(b.flow, -1) end", "lanes.set('tasks', lanes.state('tasks') - #bound)"}, 2, nil},
		"what goes back is not counted":        {bent{"lanes.count(flow, 1)", ""}, 71, nil},
		"lanes stay busy":                      {bent{"(busy and 1 or -1)", "(busy and 1 or 0)"}, 21, nil},
		"called before goes first":             {bent{"bit.band(lines, LANES_TURN) > 0)", "false)"}, 0, nil},
		"a cap allows one more":                {bent{"redis.call('ZCARD', key) - most", "redis.call('ZCARD', key) - most - 1"}, 0, drawScopes},
		"a lane's cap is not looked at":        {bent{"scopes.room('l:', r.lane, r.most or lane_cap,", "scopes.room('l:', r.lane, 0,"}, 0, drawScopes},
		"a route's cap is not looked at":       {bent{"scopes.room('r:', name, route_caps[name] or 0,", "scopes.room('r:', name, 0,"}, 1, drawScopes},
		"a call's end frees no place":          {bent{"then redis.call('ZREM', L.prefix .. 'flight:' .. scope, lease) end", "then lease = nil end"}, 1, drawScopes},
		"a call's end wakes no lane":           {bent{"  waited = waited or next(r.work) ~= nil\n  lanes.look(lane, r)", "  waited = true"}, 4, drawScopes},
		"a call's end opens no route":          {bent{"local waited = lanes.state('B' .. route) > 0\nlanes.reopen(route)", "local waited = true"}, 1, drawScopes},
		"a process takes its places with it":   {bent{"slot + outlives + L.moved", "slot + 1000 * outlives + L.moved"}, 4, drawScopes},
		"a lane's hold is not looked at":       {bent{"return math.max(at, scopes.held('l:', r.lane, r.held, on_clock)) - L.moved", "return at - L.moved"}, 71, drawScopes},
		"a route's hold is not looked at":      {bent{"    x = route_held(name)\n", "    x = 0\n"}, 119, drawScopes},
		"all go when a hold is over":           {bent{"  return h.need and math.max(h.till, h.probe) or h.till", "  return h.till"}, 71, drawScopes},
		"nobody hears of a lane's hold":        {bent{"  r.held = known\n", ""}, 1, drawScopes},
		"nobody hears of a route's hold":       {bent{"    lanes.set('H' .. name, known)\n", ""}, 119, drawScopes},
		"a held lane stays in turn":            {bent{"if v[2] == '1' and held > now then lanes.throttle(name, r, held, '') else lanes.look(name, r) end", ""}, 1, drawScopes},
		"a call without news lets none go":     {bent{"then redis.call('HDEL', key, 'probe', 'slot') end\nend", "then key = nil end\nend"}, 7, drawScopes},
	} {
		t.Run(name, m.dies)
	}
}

type laneMutant struct {
	bent bent
	seed uint64
	draw func(uint64) laneTrial // nil: drawLanes
}

// dies checks that a mutant is found in one of the trials from its seed on.
func (m laneMutant) dies(t *testing.T) {
	t.Parallel()
	client, texts := testkit.Client(t), m.bent.texts(t)
	if m.draw == nil {
		m.draw = drawLanes
	}
	for i := range uint64(testkit.Often(10, 100)) {
		w := newLanesWorld(newWorld(t, client, m.seed+i), m.draw(m.seed+i))
		w.swaps = maps.Clone(texts)
		if wrong := w.play(); len(wrong) > 0 {
			t.Logf("seed %d: %s", m.seed+i, wrong[0])
			return
		}
	}
	t.Error("the mutant lives")
}

// Each line that makes the flows of a lane take turns is needed, too.
func TestMutantsOfTurns(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, m := range map[string]laneMutant{
		"who was called stays first":         {bent{"r.tag[flow], tag = tag - lanes.state('O' .. flow), tag + apart end", "r.tag[flow], tag = tag - lanes.state('O' .. flow), tag end"}, 0, drawTurns},
		"turns are lost in a throttled lane": {bent{"then tag = last[class] + lanes.apart(r, tag) end", "then tag = tag + 0 end"}, 3, drawTurns},
		"who comes back goes first":          {bent{"math.max(tag, lanes.behind(r, flow, least) or tag)", "tag"}, 3, drawTurns},
		"flows are not sorted":               {bent{"return x < y or x == y and a < b", "return a < b"}, 0, drawTurns},
		"other flows pay nothing":            {bent{"if lanes.tag(r, flow) <= behind then", "if false then"}, 0, drawTurns},
	} {
		t.Run(name, m.dies)
	}
}

// So is each line that handles what an operator sets live.
func TestMutantsOfLanesSetLive(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, m := range map[string]laneMutant{
		"limits of its own ignored":         {bent{"if L.limits and limits ~= '' then", "if false then"}, 0, drawLive},
		"weights ignored":                   {bent{"local paid = b.cost / r.weight", "local paid = b.cost"}, 1, drawShares},
		"a lane's weight ignored":           {bent{"r.paused, r.most = L.limits, L.limits, weight or L.weight, paused", "r.paused, r.most = L.limits, L.limits, L.weight, paused"}, 1, drawShares},
		"the weight of all lanes ignored":   {bent{"weight or L.weight, paused", "weight or 1, paused"}, 9, drawShares},
		"a pause of a lane ignored":         {bent{"if r.paused then return math.huge end", ""}, 104, drawLive},
		"a pause of a route ignored":        {bent{"  return L.paused[route]\n", "  return false\n"}, 0, drawLive},
		"what is set wakes nobody":          {bent{"lanes.look(ARGV[2], lanes.record(ARGV[2]))", ""}, 8, drawLive},
		"own windows without the jitter":    {bent{"math.ceil(length / 10000) + how.more +", "math.ceil(length / 10000) +"}, 1, drawLive},
		"an act upon a lane sets all of it": {bent{"ARGV[i + 2] == '=' and (was[i] or '') or ARGV[i + 2]", "ARGV[i + 2] == '=' and '' or ARGV[i + 2]"}, 0, drawLive},
	} {
		t.Run(name, m.dies)
	}
}

// atOnce makes a pick put flows to rest as soon as their routes have no permit, however few and for however short a time.
var atOnce = bent{"#resting >= REST_FLOWS", "#resting > 0", "x > now + REST_LEAST", "x > now"}

// Flows whose routes have no permit are not looked at, and that changes nothing about what is called.
func TestFlowsAtRestAgainstTheModel(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client, texts := testkit.Client(t), atOnce.texts(t)
	for name, of := range map[string]struct {
		draw  func(uint64) laneTrial
		seeds []uint64
	}{"all": {drawLanes, laneSeeds(300, 1, 13)}, "turns": {drawTurns, laneSeeds(300, 67)}, "scopes": {drawScopes, laneSeeds(300, 67)}, "set live": {drawLive, laneSeeds(300, 67)},
		"losses": {drawLosses, laneSeeds(300, 67)}} {
		for _, seed := range of.seeds {
			w := newLanesWorld(newWorld(t, client, seed), of.draw(seed))
			w.swaps = maps.Clone(texts)
			if wrong := w.play(); len(wrong) > 0 {
				t.Fatalf("%s, seed %d: %v", name, seed, wrong)
			}
		}
	}
}

// Each line that looks at them again is needed.
func TestMutantsOfFlowsAtRest(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, m := range map[string]laneMutant{
		"they rest for good":              {bent{"if L.again <= t + L.moved then", "if false then"}, 1, nil},
		"a permit given back wakes none":  {bent{"if L.rest ~= '' then lanes.set('shut', '') end", ""}, 13, nil},
		"those at rest are forgotten":     {bent{"lanes.set('on', on .. L.rest)", "lanes.set('on', on)"}, 1, nil},
		"the first to be back is ignored": {bent{"math.min(due, L.again - L.moved)", "due"}, 104, nil},
	} {
		m.bent = append(slices.Clone(atOnce), m.bent...)
		t.Run(name, m.dies)
	}
}
