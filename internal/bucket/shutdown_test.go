package bucket

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// disk is a Redis with an append-only file, and processes that take slots from it.
type disk struct {
	*world
	server *testkit.RedisServer
}

func newDisk(t *testing.T, persist ...string) *disk {
	t.Helper()
	server := testkit.Server(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, persist...)...)
	return &disk{newWorld(t, server.Client(), 3), server}
}

// back starts Redis again after a time.
func (d *disk) back(after time.Duration, survivors ...*Pacer) {
	d.t.Helper()
	d.server.Restart()
	d.client = d.server.Client()
	testkit.Eventually(d.t, time.Minute, "Redis to have read its file", func() bool { return d.client.Ping(d.t.Context()).Err() == nil })
	for _, p := range survivors {
		p.client = noRetry{d.client}
	}
	d.pass(after)
}

// forgets makes Redis lose everything that happens in f, like the last moments before a power cut.
func (d *disk) forgets(f func()) {
	d.t.Helper()
	from, kept := filepath.Join(d.server.Dir(), "appendonlydir"), filepath.Join(d.t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(from)); err != nil {
		d.t.Fatal(err)
	}
	f()
	d.server.Kill()
	if err := os.RemoveAll(from); err != nil {
		d.t.Fatal(err)
	}
	if err := os.CopyFS(from, os.DirFS(kept)); err != nil {
		d.t.Fatal(err)
	}
}

var tenMinutes = PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 600, Window: 10 * time.Minute}}, Burst: 20, Jitter: 5 * time.Millisecond}

// The time in which Redis was down, in order or not, is charged to no window: an append-only file lacks at most the last seconds before that.
func TestTheTimeThatRedisIsAwayIsNotCharged(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, end := range map[string]func(*testkit.RedisServer){"shut down": (*testkit.RedisServer).Stop, "killed": (*testkit.RedisServer).Kill} {
		for who, lives := range map[string]bool{"a dispatcher lives on": true, "nobody lives on": false} {
			t.Run(name+", "+who, func(t *testing.T) {
				t.Parallel()
				d := newDisk(t)
				p := d.pacer(tenMinutes)
				var out ran
				d.spend(p, &out, 3*time.Second)
				d.pass(500 * time.Millisecond)
				d.reserve(p, wish{cost: 1}) // it knows that nothing was granted meanwhile, and will say so
				before := len(out.slot)
				end(d.server)
				d.back(200*time.Second, p)
				if !lives {
					p = d.pacer(tenMinutes)
				}
				d.expect(d.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
				d.spend(p, &out, 15*time.Second)
				if n := len(out.slot) - before; n < 255 {
					t.Errorf("%d calls in the 15 s after Redis came back, want nearly 280", n)
				}
				if l := p.Losses(); len(l) != 1 || l[0].Charged > 100 || l[0].Why != newLoss(0, 3).Why {
					t.Errorf("%+v, want what a few seconds can have used", l)
				}
			})
		}
	}
}

// What the last seconds before a power cut can have used is charged, whichever process asks first, and however long Redis is away.
func TestWhatAPowerCutLosesIsCharged(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, knows := range map[string]int{"nobody knew": 0, "who knew of some lives": 1, "who knew of all lives": 2} {
		for _, away := range []time.Duration{50 * time.Millisecond, 20 * time.Second} {
			t.Run(name+", "+away.String(), func(t *testing.T) {
				t.Parallel()
				d := newDisk(t)
				cfg := tenMinutes
				cfg.Limits = []job.Limit{{N: 20, Window: time.Second}, {N: 150, Window: 30 * time.Second}}
				all, some := d.pacer(cfg), d.pacer(cfg)
				var out ran
				d.spend(all, &out, 1900*time.Millisecond)
				d.reserve(some, wish{cost: 1})
				d.forgets(func() {
					d.spend(all, &out, 300*time.Millisecond)
					d.reserve(some, wish{cost: 1})
					d.spend(all, &out, 1600*time.Millisecond)
				})
				d.back(away, all, some)
				next := []*Pacer{d.pacer(cfg), some, all}[knows]
				d.reserve(d.pacer(cfg), wish{want: 16, cost: 1})
				d.spend(next, &out, time.Minute)
				for _, l := range cfg.Limits {
					if most := mostInWindow(out.slot, nil, l.Window.Microseconds()); most > l.N {
						t.Errorf("%d slots within %s, the limit is %s", most, l.Window, l)
					}
				}
			})
		}
	}
}

// Restoring an old file loses more than a power cut. A process that knows of more slots says so, or else an operator. Then everything that the time
// since the file can have used is charged.
func TestAnOldAppendOnlyFileIsNoPowerCut(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for _, name := range []string{"who knew of all lives", "who knew of some lives", "a stranger asks first", "an operator says so"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t)
			cfg := tenMinutes
			cfg.Limits = []job.Limit{{N: 20, Window: time.Second}, {N: 600, Window: time.Minute}}
			p, some := d.pacer(cfg), d.pacer(cfg)
			var out ran
			d.spend(p, &out, 2*time.Second)
			snapshot := d.now
			d.forgets(func() {
				d.spend(p, &out, 6*time.Second)
				d.reserve(some, wish{cost: 1})
				d.spend(p, &out, 19*time.Second)
			})
			d.back(time.Second, p, some)
			switch name {
			case "who knew of some lives":
				p = some
			case "a stranger asks first":
				d.expect(d.reserve(d.pacer(cfg), wish{want: 1, cost: 1}), stateLost, 0)
			case "an operator says so":
				p = d.pacer(cfg)
				d.reserve(p, wish{want: 1, cost: 1}) // a process asks before the doubt is noticed
				d.client.HSet(t.Context(), d.keys.Pace(), "r", fmt.Sprintf("restored %d", snapshot))
			}
			d.spend(p, &out, 2*time.Minute)
			if most := mostInWindow(out.slot, nil, time.Minute.Microseconds()); most > 600 {
				t.Errorf("%d slots within a minute, the limit is 600", most)
			}
		})
	}
}

// A Redis that was a replica when its primary failed may lack more than a few seconds, whatever files it keeps.
func TestAFailOverIsNoPowerCut(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	d := newDisk(t)
	p := d.pacer(tenMinutes)
	var out ran
	d.spend(p, &out, time.Second)
	replica := testkit.Server(t, "--appendonly", "yes", "--replicaof", "127.0.0.1 "+d.server.Addr()[len("127.0.0.1:"):])
	testkit.Eventually(t, time.Minute, "the replica to have all", func() bool {
		return replica.Client().HGet(t.Context(), d.keys.Pace(), "s").Val() == d.client.HGet(t.Context(), d.keys.Pace(), "s").Val()
	})
	if err := replica.Client().ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	d.client = replica.Client()
	d.pass(40 * time.Second)
	fresh := d.pacer(tenMinutes)
	d.expect(d.reserve(fresh, wish{want: 1, cost: 1}), stateLost, 0)
	if n := sum(d.client.LRange(t.Context(), d.keys.PaceWindow(2), 0, -1).Val()); n < 600 {
		t.Errorf("%d units are counted, want all that 40 s can have used", n)
	}
}

// A loss of reports of lateness, perhaps without the loss of a slot, makes no permit ready too early.
func TestALostReportOfLatenessBreaksNoLimit(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	two := PacerConfig{Limits: []job.Limit{{N: 5, Window: time.Second}, {N: 10, Window: 3 * time.Second}}, Burst: 5}
	for name, c := range map[string]struct {
		cfg   PacerConfig
		calls []int         // before the loss, 200 ms apart
		late  time.Duration // all that wait are written so long after the last one's slot, and it is reported
		lost  int           // slots given out then; the snapshot is 10 ms older than the writes
		then  time.Duration
	}{
		"one long window, no slot lost": {PacerConfig{Limits: []job.Limit{{N: 600, Window: 2 * time.Minute}}}, []int{600}, 10 * time.Millisecond, 0, 4 * time.Minute},
		"two windows, slots lost":       {two, []int{3, 2}, 40 * time.Millisecond, 3, 9 * time.Second},
		"two windows, no slot lost":     {two, []int{3, 2}, 40 * time.Millisecond, 0, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.Server(t)
			w := newWorld(t, server.Client(), 3)
			p := w.pacer(c.cfg)
			var slots []int64
			for _, n := range c.calls {
				w.pass(200 * time.Millisecond)
				slots = append(slots, w.exactly(p, n)...)
			}
			written := slots[len(slots)-1] + c.late.Microseconds()
			w.now = written - 10_000
			w.save()
			w.now = written
			var at []int64
			var late []lateCall
			for _, s := range slots {
				if s > written-p.plan.Load().tooLate {
					late = append(late, wasLate(p, job.Slot{At: s, Cost: 1}, written))
					s = written
				}
				at = append(at, s)
			}
			p.reportLate(late)
			at = append(at, w.exactly(p, c.lost)...)
			w.crash(server)
			var out ran
			w.spend(w.pacer(c.cfg), &out, c.then)
			at = append(at, out.slot...)
			for _, l := range c.cfg.Limits {
				if most := mostInWindow(at, nil, l.Window.Microseconds()); most > l.N {
					t.Errorf("%d calls within a window of %s; %d were late", most, l, len(late))
				}
			}
		})
	}
}

// exactly takes n slots as they come, until the moment of the last one.
func (w *world) exactly(p *Pacer, n int) (slots []int64) {
	for len(slots) < n {
		g := w.reserve(p, wish{want: min(int64(n-len(slots)), 16), cost: 1})
		for _, s := range g.slots {
			slots = append(slots, s.At)
		}
		if len(g.slots) == 0 {
			w.now += w.pause(g)
		}
	}
	if n > 0 {
		w.now = max(w.now, slots[n-1])
	}
	return slots
}
