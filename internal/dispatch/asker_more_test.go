package dispatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// paged is asked with a list of up to five pages.
var paged = strings.Replace(asked, `match: {reference: "{id}"}}`, `match: {reference: "{id}"}, next: next, parameter: page, pages: 5}`, 1)

// A look-up reads the pages of a list, with a slot for each page, and extends its claim for each page.
func TestALookUpReadsAListToTheEnd(t *testing.T) {
	t.Parallel()
	c := newCashier()
	var r *rig
	var claims []time.Time
	c.ask = func(w http.ResponseWriter, id string) bool {
		claims = append(claims, r.find(id).NextLook)
		if len(claims) < 3 {
			fmt.Fprintf(w, `{"data":[{"reference":"another"}],"next":"p%d"}`, len(claims)+1)
			return true
		}
		return false
	}
	r = before(t, c, paged)
	r.take("lost-1")
	r.serve()
	r.until("done", func(s record.Standing) bool { return s.Done == 1 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(claims) != 3 || !claims[1].After(claims[0]) || !claims[2].After(claims[1]) || time.Until(claims[0]) < pageWithin/2 {
		t.Errorf("the claims held until %v", claims)
	}
}

// If the gateway is paused between two pages, the look-up waits. If another process has taken the claim, the look-up ends.
func TestALookUpLetsGoBetweenPages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		between func(c redis.UniversalClient, k redisdb.Keys) error
		goesOn  func(c redis.UniversalClient, k redisdb.Keys) error
	}{
		"paused": {func(c redis.UniversalClient, k redisdb.Keys) error {
			return c.HSet(t.Context(), k.Hold(), "paused", "1").Err()
		},
			func(c redis.UniversalClient, k redisdb.Keys) error {
				return c.HDel(t.Context(), k.Hold(), "paused").Err()
			}},
		"another one's": {func(c redis.UniversalClient, k redisdb.Keys) error {
			return c.HSet(t.Context(), k.Job("lost-1"), record.Short("ask_owner"), "other").Err()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCashier()
			var r *rig
			var broken error
			pages := 0
			c.ask = func(w http.ResponseWriter, id string) bool {
				if pages++; pages > 1 {
					return false
				}
				broken = tc.between(r.db.Client, redisdb.NewKeys(r.cfg.Gateways[0].Name))
				fmt.Fprint(w, `{"data":[],"next":"p2"}`)
				return true
			}
			r = before(t, c, paged)
			r.take("lost-1")
			u := r.serve().units()[0]
			seen := func() int { c.mu.Lock(); defer c.mu.Unlock(); return pages }
			testkit.Eventually(t, time.Minute, "the first page", func() bool { return seen() == 1 })
			await(t.Context(), 1500*time.Millisecond)
			if n := seen(); n != 1 || broken != nil {
				t.Fatalf("%d pages were read, %v", n, broken)
			}
			if tc.goesOn == nil {
				testkit.Eventually(t, 20*time.Second, "it to let go", func() bool { u.askers.mu.Lock(); defer u.askers.mu.Unlock(); return u.askers.at == 0 })
				if rec := r.find("lost-1"); rec.State != job.Pending || rec.Looks != 0 {
					t.Errorf("it is %s after %d look-ups", rec.State, rec.Looks)
				}
				return
			}
			if err := tc.goesOn(r.db.Client, redisdb.NewKeys(r.cfg.Gateways[0].Name)); err != nil {
				t.Fatal(err)
			}
			r.until("done", func(s record.Standing) bool { return s.Done == 1 })
			if n := seen(); n != 2 {
				t.Errorf("%d pages were read", n)
			}
		})
	}
}

// The outcome of a look-up is recorded even if Redis is full, whatever the outcome. No look-up begins while Redis is full, and they continue when there is room.
func TestLookUpsInAFullRedis(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		id   string
		says string // empty: as things are
		is   func(job.Record) bool
	}{
		"done":     {"lost-1", "", func(r job.Record) bool { return r.State == job.Done }},
		"refused":  {"no-1", "", func(r job.Record) bool { return r.Reason == job.Refused }},
		"not done": {"cut-1", "", func(r job.Record) bool { return r.State == job.Queued && r.Generation > 1 }},
		"later":    {"lost-1", `{"data":[{"reference":"lost-1","status":"open"}]}`, func(r job.Record) bool { return r.Looks == 1 }},
		"failed":   {"lost-1", `{"data":`, func(r job.Record) bool { return !r.LookFailing.IsZero() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := testkit.Server(t), newCashier()
			memory := func(most string) {
				t.Helper()
				if err := server.Client().ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
					t.Error(err)
				}
			}
			filled := false
			settings := strings.ReplaceAll(asked, "200ms", "0s")
			c.ask = func(w http.ResponseWriter, id string) bool {
				if name == "not done" && len(c.looks) == 1 { // it takes two
					return false
				}
				if !filled {
					memory("1")
					filled = true
				}
				if tc.says != "" {
					fmt.Fprint(w, tc.says)
				}
				return tc.says != ""
			}
			r := before(t, c, settings)
			r.on(server)
			r.take(tc.id)
			r.serve()
			t.Cleanup(func() { server.Client().ConfigSet(t.Context(), "maxmemory", "0") })
			testkit.Eventually(t, 30*time.Second, "the outcome to be written down", func() bool { return tc.is(r.find(tc.id)) })
			c.mu.Lock()
			looks, calls := len(c.looks), c.calls[tc.id]
			c.mu.Unlock()
			await(t.Context(), 500*time.Millisecond)
			c.mu.Lock()
			if len(c.looks) != looks || c.calls[tc.id] != calls {
				t.Errorf("in a full Redis %d look-ups and %d calls began", len(c.looks)-looks, c.calls[tc.id]-calls)
			}
			c.ask = nil
			c.mu.Unlock()
			memory("0")
			s := r.until("settled", func(s record.Standing) bool { return s.Done+s.Parked[job.Refused] == 1 })
			if c.paid[tc.id] != int(s.Done) || s.Missing() != 0 {
				t.Errorf("charged %d times, and stands as %+v", c.paid[tc.id], s)
			}
		})
	}
}

// Redis is killed during a look-up and restarts with its data from disk: the finding of the look-up is recorded.
func TestALookUpOutlivesItsRedis(t *testing.T) {
	t.Parallel()
	server, c := testkit.Server(t, "--appendonly", "yes", "--appendfsync", "always"), newCashier()
	var r *rig
	killed, asks := false, map[string]int{}
	c.ask = func(w http.ResponseWriter, id string) bool {
		if asks[id]++; !killed && r.standing(0).Pending == 3 {
			killed = true
			server.Kill()
			time.AfterFunc(time.Second, server.Restart)
		}
		if !killed {
			asks[id] = 0
			fmt.Fprint(w, `{"data":`)
		}
		return !killed
	}
	r = before(t, c, asked)
	r.on(server)
	ids := []string{"lost-1", "lost-2", "cut-1"}
	r.take(ids...)
	r.serve()
	var s record.Standing
	testkit.Eventually(t, 2*time.Minute, "all to be done", func() bool {
		var err error
		s, err = Books(r.db.Client, r.cfg.Gateways[0]).Look(t.Context())
		return err == nil && s.Done == 3
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.paid[id] != 1 {
			t.Errorf("%s was charged %d times", id, c.paid[id])
		}
	}
	if s.Missing() != 0 || asks["lost-1"] != 1 || asks["lost-2"] != 1 {
		t.Errorf("they stand %+v after look-ups %v", s, asks)
	}
}

// A reload removes the look-up from the file. Jobs stay pending while another process makes look-ups, are parked when none does, and are looked up again when the file has it again.
func TestALookupIsTakenOutOfTheFile(t *testing.T) {
	t.Parallel()
	c := newCashier()
	open := true
	c.ask = func(w http.ResponseWriter, id string) bool {
		if open {
			fmt.Fprintf(w, `{"data":[{"reference":%q,"status":"open"}]}`, id)
		}
		return open
	}
	r := before(t, c, strings.Replace(asked, "100ms, 100ms, 100ms, 1h", "1s, 1h, 1h", 1))
	r.take("lost-1")
	d := r.serve()
	r.until("asked about once", func(record.Standing) bool { return r.find("lost-1").Looks == 1 })
	reload := func(lookup *config.Lookup) {
		t.Helper()
		g := r.cfg.Gateways[0]
		g.Lookup = lookup
		if out, err := d.Reload(t.Context(), []config.Gateway{g}); err != nil || len(out.Kept) > 0 {
			t.Fatalf("%v, kept: %v", err, out.Kept)
		}
	}
	reload(nil)
	await(t.Context(), 2*time.Second)
	if rec := r.find("lost-1"); rec.State != job.Pending {
		t.Fatalf("somebody may still ask, and it is %s %s", rec.State, rec.Reason)
	}
	looks := redisdb.NewKeys(r.cfg.Gateways[0].Name).Looks()
	if err := r.db.Client.HSet(t.Context(), looks, "beat", time.Now().Add(-unaskedLong).UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	d.units()[0].asker.nudge()
	r.until("parked", func(s record.Standing) bool { return s.Parked[job.UnknownOutcome] == 1 })
	if rec := r.find("lost-1"); !strings.Contains(rec.Error, "no look-up") || !strings.Contains(rec.Error, "open") {
		t.Errorf("it says %q", rec.Error)
	}
	c.mu.Lock()
	open = false
	c.mu.Unlock()
	reload(r.cfg.Gateways[0].Lookup)
	rec := r.find("lost-1")
	if taken, err := Books(r.db.Client, r.cfg.Gateways[0]).AskAgain(t.Context(), []job.Return{{ID: "lost-1", Generation: rec.Generation}}); err != nil || !taken[0] {
		t.Fatal(taken, err)
	}
	r.until("done", func(s record.Standing) bool { return s.Done == 1 })
	if c.paid["lost-1"] != 1 {
		t.Errorf("charged %d times", c.paid["lost-1"])
	}
}

// unaskedLong is longer than any process waits for another one that makes look-ups.
const unaskedLong = 2 * time.Minute

// Two processes together keep their look-ups within the share while jobs wait, and within the limit of look-ups afterwards.
func TestTwoProcessesKeepTheLimitsOfLookUps(t *testing.T) {
	t.Parallel()
	const lost, each, share, own = 300, 4, 20, 60
	c := newCashier()
	settings := strings.Replace(asked, "lookup:", fmt.Sprintf("admission: {limits: [100000/s], burst: 100000}\nlookup:\n  share: 10%%\n  limits: [%d/s]", own), 1)
	beforeVirtually(t, c, settings, func(t *testing.T, r *rig) {
		var ids []string
		for i := range lost * each {
			ids = append(ids, fmt.Sprint(map[bool]string{true: "lost-", false: "well-"}[i%each == 0], i))
		}
		r.take(ids...)
		r.serve()
		r.serve()
		r.until("done", func(s record.Standing) bool { return s.Done == int64(len(ids)) })
		c.mu.Lock()
		defer c.mu.Unlock()
		waiting, after := 0, 0
		for i, from := range c.looks {
			n := 0
			for ; i+n < len(c.looks) && c.looks[i+n].Before(from.Add(time.Second)); n++ {
			}
			if from.Add(time.Second).Before(c.last) {
				waiting = max(waiting, n)
			}
			after = max(after, n)
		}
		t.Logf("at most %d look-ups in a second while jobs wait, and %d in any", waiting, after)
		if waiting > share || waiting < share/2 || after > own || after <= share {
			t.Errorf("at most %d look-ups in a second while jobs wait, want %d; and %d in any, want %d", waiting, share, after, own)
		}
		if len(c.looks) != lost {
			t.Errorf("%d look-ups of %d jobs", len(c.looks), lost)
		}
	})
}
