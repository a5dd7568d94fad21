package dispatch

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/feed"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// read reads all outcomes after a cursor, and returns their ids and the last cursor.
func (r *rig) outcomes(f *feed.Feed, after feed.Cursor) (ids []string, last feed.Cursor) {
	r.t.Helper()
	for {
		page, err := f.Read(r.t.Context(), after, 1000)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(page) == 0 {
			return ids, after
		}
		for _, o := range page {
			ids = append(ids, o.ID+" "+o.State)
		}
		if after, err = feed.ParseCursor(page[len(page)-1].Cursor); err != nil {
			r.t.Fatal(err)
		}
	}
}

// A reader of outcomes that is too far behind holds the gateway: no calls are made, no attempts are spent, and every view says why. Calls continue when the reader
// has caught up.
func TestAReaderOfOutcomesHoldsTheGateway(t *testing.T) {
	t.Parallel()
	r := setup(t, "leak: {limits: [40/s]}\noutcomes: {readers: [ledger], max_behind: 20}")
	g := r.cfg.Gateways[0]
	log := &testkit.Log{}
	r.put(0, 200)
	r.serveWith(slog.New(slog.NewTextHandler(log, nil)))
	f := Feed(r.db.Client, g)
	held := func() bool {
		v, err := Look(t.Context(), r.db.Client, g)
		return err == nil && v.Hold.Paused && v.Hold.Barred
	}
	var all []string
	var last feed.Cursor
	for len(all) < 60 {
		testkit.Eventually(t, 30*time.Second, "the gateway to be held", held)
		n := -1
		testkit.EventuallyEvery(t, 1500*time.Millisecond, 30*time.Second, "nobody to be called", func() bool { was := n; n = r.count(); return n == was })
		v, err := Look(t.Context(), r.db.Client, g)
		if err != nil || !strings.Contains(v.Stopped, "the reader ledger is ") || v.Outcomes.Readers[0].Behind <= 20 || v.ETA >= 0 || v.Since.IsZero() {
			t.Fatalf("%+v %v", v, err)
		}
		waits, _, err := Books(r.db.Client, g).Find(t.Context(), "j0199")
		if err != nil || waits.Spent != 0 {
			t.Fatalf("%+v %v", waits, err)
		}
		if why, err := WhyNot(t.Context(), r.db.Client, g, waits); err != nil || !strings.Contains(why, "calls go on by themselves when it has caught up") {
			t.Errorf("job says %q %v", why, err)
		}
		var ids []string
		ids, last = r.outcomes(f, last)
		all = append(all, ids...)
		if _, err := f.Ack(t.Context(), "ledger", last); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, time.Minute, "all jobs to be done", func() bool {
		var ids []string
		ids, last = r.outcomes(f, last)
		all = append(all, ids...)
		_, _ = f.Ack(t.Context(), "ledger", last)
		return len(all) >= 200
	})
	slices.Sort(all)
	for i, told := range all {
		if told != fmt.Sprintf("j%04d done", i) {
			t.Fatalf("outcome %d of %d is of %s", i, len(all), told)
		}
	}
	if r.count() != 200 {
		t.Errorf("%d calls of 200 jobs", r.count())
	}
	for _, words := range []string{"no calls: the reader ledger is", "calls go on"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("the log lacks %q", words)
		}
	}
}

// A reader gets an outcome only when the replica that wait_replicas requires has it.
func TestAnOutcomeIsToldWhenAReplicaHasIt(t *testing.T) {
	t.Parallel()
	r, replica := guarded(t)
	g := r.cfg.Gateways[0]
	g.Outcomes = &config.Outcomes{}
	r.cfg.Gateways[0] = g
	r.put(0, 1)
	g.Outcomes.Keep = time.Hour
	f := Feed(r.db.Client, g)
	store := Store(r.db.Client, g)
	if err := store.ParkUnreadable(t.Context(), "first", []byte("x"), "foreign"); err != nil {
		t.Fatal(err)
	}
	ids, last := r.outcomes(f, feed.Cursor{})
	if fmt.Sprint(ids) != "[first parked]" {
		t.Fatal(ids)
	}
	replica.Pause()
	defer replica.Continue()
	if err := store.ParkUnreadable(t.Context(), "second", []byte("y"), "foreign"); err != nil && !redisdb.Away(err) {
		t.Fatal(err)
	}
	if page, err := f.Read(t.Context(), last, 10); !redisdb.Away(err) || len(page) > 0 {
		t.Fatalf("without the replica it tells %+v, %v", page, err)
	}
	replica.Continue()
	testkit.Eventually(t, 30*time.Second, "the outcome to be told", func() bool {
		page, err := f.Read(t.Context(), last, 10)
		return err == nil && len(page) == 1 && page[0].ID == "second"
	})
}
