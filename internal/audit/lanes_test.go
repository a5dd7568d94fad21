package audit_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/audit"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// flowing is a bench whose gateway has lanes with jobs: two in lane x, which may be called, one in lane y, which may not be called yet, and one in x on route r; and three jobs
// of lane z that are parked because there was no room.
func flowing(t *testing.T) *bench {
	t.Helper()
	b := setup(t, 8)
	b.cfg.Lanes = b.keys.WaitingLanes(nil, []string{"r"})
	b.on(b.c)
	b.accept("park", job.Job{ID: "x1", Lane: "x"}, job.Job{ID: "x2", Lane: "x"}, job.Job{ID: "y1", Lane: "y"}, job.Job{ID: "r1", Lane: "x", Route: "r"})
	b.accept("park", job.Job{ID: "z0", Lane: "z", Cost: 4}, job.Job{ID: "z1", Lane: "z"}, job.Job{ID: "z2", Lane: "z"}, job.Job{ID: "z3", Lane: "z"})
	b.must(b.c.Del(b.ctx, b.keys.Pending()).Err())
	for task, line := range map[string]string{"x1~1": b.keys.FlowLines("", "", "x")[1], "x2~1": b.keys.FlowLines("", "", "x")[2], "y1~1": b.keys.FlowLines("", "", "y")[1],
		"r1~1": b.keys.FlowLines("", "r", "x")[3], "z0~1": b.keys.FlowLines("", "", "z")[0]} {
		b.must(b.c.LPush(b.ctx, line, task).Err())
	}
	b.must(b.c.HSet(b.ctx, b.keys.Classes(), "#lanes", 0).Err())
	b.must(b.c.HSet(b.ctx, b.keys.Lanes(), "on", ": :r ", "tasks", 5, "busy", 3, "n:", 4, "n:r", 1).Err())
	for lane, packed := range map[string]string{"x": `0, '', {}, ':', 1, 6, ':r', 1, 24`, "y": `9, '', {}, ':', 1, 2`, "z": `0, '', {}, ':', 2, 1`} {
		b.must(b.c.Eval(b.ctx, `return redis.call('SET', KEYS[1], cmsgpack.pack({`+packed+`}))`, []string{b.laneKey(lane)}).Err())
	}
	b.must(b.c.ZAdd(b.ctx, b.keys.Ready(":"), redis.Z{Score: 1, Member: "x"}, redis.Z{Score: 2, Member: "z"}).Err())
	b.must(b.c.ZAdd(b.ctx, b.keys.Ready(":r"), redis.Z{Score: 1, Member: "x"}).Err())
	b.must(b.c.ZAdd(b.ctx, b.keys.Throttled(), redis.Z{Score: 9, Member: "y"}).Err())
	b.now++
	return b
}

func (b *bench) laneKey(lane string) string { return "spillway:{" + b.name + "}:lane:" + lane }

// A lane with jobs that is not where it belongs would never be called, or twice. A job that waits for room without a turn would wait for ever. An audit reports both, and repairs
// them.
func TestAnAuditFindsLanesAndTurnsThatAreLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		breaks func(b *bench)
		say    string
	}{
		"nothing": {func(*bench) {}, ""},
		"a lane in no set": {func(b *bench) { b.c.ZRem(b.ctx, b.keys.Throttled(), "y") },
			"y1: queued, but its lane stands neither among those that may be called nor among those that wait"},
		"a lane without a record": {func(b *bench) { b.c.Del(b.ctx, b.laneKey("y")) },
			"lane \"y\" has no jobs that its record knows of\ny1: queued, but its lane stands neither among those that may be called nor among those that wait"},
		"a lane whose record is no such": {func(b *bench) { b.c.Set(b.ctx, b.laneKey("y"), "\xc1", 0) },
			"lane \"y\" has no jobs that its record knows of\ny1: queued, but its lane stands neither among those that may be called nor among those that wait"},
		"a lane whose record is of another type": {func(b *bench) {
			b.c.Del(b.ctx, b.laneKey("y"))
			b.c.LPush(b.ctx, b.laneKey("y"), "x")
		}, "lane \"y\" has no jobs that its record knows of\ny1: queued, but its lane stands neither among those that may be called nor among those that wait"},
		"a lane whose record lacks a route": {func(b *bench) {
			b.c.Eval(b.ctx, `return redis.call('SET', KEYS[1], cmsgpack.pack({0, '', {}, ':', 1, 6}))`, []string{b.laneKey("x")})
		}, "lane \"x\" stands in ready::r without jobs of it\nr1: queued, but its lane stands neither among those that may be called nor among those that wait"},
		"a lane in two places": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Throttled(), redis.Z{Score: 1, Member: "z"}) },
			`lane "z" stands in throttled and in ready::`},
		"a flow of a lane in no set": {func(b *bench) { b.c.ZRem(b.ctx, b.keys.Ready(":r"), "x") },
			`lane "x" stands in ready:: and not in ready::r`},
		"a lane in a set of which it has no jobs": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Ready(":r"), redis.Z{Score: 1, Member: "z"}) },
			`lane "z" stands in ready::r without jobs of it`},
		"jobs from before they were counted": {func(b *bench) { b.c.HDel(b.ctx, b.keys.Lanes(), "busy", "n:r") },
			"jobs in lanes of class \"\" and route \"r\" are said to be 0, and are 1\nlanes with jobs are said to be 0, and are 3"},
		"too many that are said to wait": {func(b *bench) { b.c.HSet(b.ctx, b.keys.Lanes(), "tasks", 6, "n:s", 1) },
			"accepted: 8, found: 9\njobs in lanes are said to be 6, and are 5\njobs in lanes of class \"\" and route \"s\" are said to be 1, and are 0"},
		"all that is known of lanes": {func(b *bench) { b.c.Del(b.ctx, b.keys.Lanes()) },
			"accepted: 8, found: 3\nnobody looks at the lanes in ready::\nnobody looks at the lanes in ready::r\n" + strayed("r1", "x1", "x2", "z0")},
		"which lanes are looked at": {func(b *bench) { b.c.HDel(b.ctx, b.keys.Lanes(), "on") },
			"nobody looks at the lanes in ready::\nnobody looks at the lanes in ready::r\n" + strayed("r1", "x1", "x2", "z0")},
		"a job without a turn": {func(b *bench) { b.c.ZRem(b.ctx, b.keys.Parked("rejected")+":f:::z", "z2") },
			"z2: parked, but not in parked:flows"},
		"a job with a turn that it must not have": {func(b *bench) { b.c.ZAdd(b.ctx, b.keys.Parked("rejected")+":f:::x", redis.Z{Score: 1, Member: "x1"}) },
			"x1: queued, but in parked:flows too"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := flowing(t)
			tc.breaks(b)
			a := b.audit(100)
			if got := said(a.Faults.List); got != tc.say {
				t.Errorf("faults:\n%s\nwant:\n%s", got, tc.say)
			}
			_, err := b.g.Audit(b.ctx, audit.Params{Most: 100, Patience: -1, Repair: true})
			b.must(err)
			b.clean("once repaired")
			if n := b.c.HGet(b.ctx, b.keys.Counters(), "flowed").Val(); n != "3" {
				t.Errorf("%s jobs are said to have a turn, and 3 have one", n)
			}
		})
	}
}

func strayed(ids ...string) string {
	for i, id := range ids {
		ids[i] = id + ": queued, but its lane stands neither among those that may be called nor among those that wait"
	}
	return strings.Join(ids, "\n")
}

// More lanes than one script can count are counted a few at a time, and wrong numbers are corrected. If jobs come and go meanwhile, the audit says that it could not count.
func TestManyLanesAreCounted(t *testing.T) {
	t.Parallel()
	b := flowing(t)
	b.must(b.c.HSet(b.ctx, b.keys.Lanes(), "tasks", 9, "busy", 7, "n:r", 4, "n:s", 2).Err())
	const say = "accepted: 8, found: 12\njobs in lanes are said to be 9, and are 5\njobs in lanes of class \"\" and route \"r\" are said to be 4, and are 1\n" +
		"jobs in lanes of class \"\" and route \"s\" are said to be 2, and are 0\nlanes with jobs are said to be 7, and are 3"
	for _, most := range []int{0, -1} {
		a, err := b.g.Audit(b.ctx, audit.Params{Most: 100, Patience: -1, Lanes: most})
		b.must(err)
		if got := said(a.Faults.List); got != say {
			t.Errorf("faults, with %d lanes in a script:\n%s\nwant:\n%s", most, got, say)
		}
	}
	_, err := b.g.Audit(b.ctx, audit.Params{Most: 100, Patience: -1, Lanes: -1, Repair: true})
	b.must(err)
	b.clean("once repaired")

	c := testkit.Client(t)
	c.AddHook(testkit.Around(func(_ []redis.Cmder, send func() error) error {
		b.c.HIncrBy(b.ctx, b.keys.Lanes(), "G", 1)
		return send()
	}))
	a, err := audit.New(c, b.name, b.books).Audit(b.ctx, audit.Params{Most: 100, Patience: -1, Lanes: -1})
	b.must(err)
	if a.Faults.Total > 0 || a.Notes.Total != 1 || a.Notes.List[0].What != audit.LanesUncounted {
		t.Errorf("while jobs come and go: faults %+v, notes %+v", a.Faults, a.Notes)
	}
}

// A mender that goes through the records repairs lanes, too.
func TestAMenderFindsLostLanes(t *testing.T) {
	t.Parallel()
	b := flowing(t)
	b.must(b.c.Del(b.ctx, b.keys.Throttled()).Err())
	b.must(b.c.ZAdd(b.ctx, b.keys.Ready(":r"), redis.Z{Score: 1, Member: "z"}).Err())
	b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", 1)
	b.mend(b.g.Mender())
	b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", -1)
	b.clean("once mended")
	if n := b.c.ZCard(b.ctx, b.keys.Throttled()).Val(); n != 2 {
		t.Errorf("%d lanes wait to be looked at, want y and z", n)
	}
}
