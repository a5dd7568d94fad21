package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// An outcome has what its record has, and never the payload.
func TestAnOutcomeSaysWhatBecameOfTheJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.now += 5_000_000
	r.park(1)
	r.accept(job.Job{ID: "refund-1", Route: "refund"}, job.Job{ID: "x-1", Route: "x", Lane: "a b"}, job.Job{ID: "x-2", Lane: "ü"})
	page, err := r.feed(feed.Config{}).Read(t.Context(), feed.Cursor{}, 10)
	if err != nil || len(page) != 4 {
		t.Fatal(page, err)
	}
	for i, want := range []feed.Outcome{{ID: "job-1"}, {ID: "refund-1", Route: "refund"}, {ID: "x-1", Route: "x", Lane: "a b"}, {ID: "x-2", Lane: "ü"}} {
		if o := page[i]; o.ID != want.ID || o.Route != want.Route || o.Lane != want.Lane {
			t.Errorf("got %+v, want %+v", o, want)
		}
	}
	text, err := json.Marshal(page[0])
	want := `{"cursor":"1700000005-1700000005000000","gateway":"` + r.name + `","id":"job-1","batch":"november","state":"parked","reason":"rejected","status":0,"reference":"","amount":4900,` +
		`"currency":"EUR","attempts":0,"accepted_at":"2023-11-14T22:13:25Z","at":"2023-11-14T22:13:25Z"}`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s, want\n%s", err, text, want)
	}
}

// Each outcome has its own cursor, however many a script writes. A reader gets each once and in order, whatever the size of its pages.
func TestEachOutcomeIsReadOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{})
	for _, n := range []int{1, 32, 33, 1, 100, 7} {
		r.park(n)
	}
	for _, limit := range []int{1, 7, 32, 1000} {
		got, _ := r.read(f, feed.Cursor{}, limit)
		r.same(got, ids(1, r.jobs))
	}
	got, last := r.read(f, feed.Cursor{}, 1000)
	r.same(got, ids(1, 174))
	r.now -= 1_000_000_000 // a clock that was set back
	r.park(3)
	got, _ = r.read(f, last, 2)
	r.same(got, ids(175, 177))
}

// A reader waits until there is a new outcome.
func TestAReaderWaitsForNews(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{})
	r.park(2)
	_, last := r.read(f, feed.Cursor{}, 10)
	begun := time.Now()
	if err := f.Wait(t.Context(), last, 300*time.Millisecond); err != nil || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("it waited for %s: %v", time.Since(begun), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Wait(ctx, last, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Wait(t.Context(), last, time.Minute) }()
	r.park(1)
	if err := <-done; err != nil || time.Since(begun) > 30*time.Second {
		t.Error(err)
	}
	got, _ := r.read(f, last, 10)
	r.same(got, ids(3, 3))
}

// A reader without a cursor, or with an old one, also waits if no outcome after its cursor is stored any more.
func TestAReaderWaitsWhereNothingIsLeftToRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{Readers: []string{"ledger"}})
	r.park(3)
	page, err := f.Read(t.Context(), feed.Cursor{}, 10)
	if err != nil || len(page) != 3 {
		t.Fatal(len(page), err)
	}
	first, _ := feed.ParseCursor(page[0].Cursor)
	last, _ := feed.ParseCursor(page[2].Cursor)
	if _, err := f.Ack(t.Context(), "ledger", last); err != nil {
		t.Fatal(err)
	}
	behind := []feed.Cursor{{}, first, {Epoch: last.Epoch + 1, Time: first.Time}}
	for _, after := range behind {
		got, _ := r.read(f, after, 10)
		r.same(got, nil)
		begun := time.Now()
		if err := f.Wait(t.Context(), after, 300*time.Millisecond); err != nil || time.Since(begun) < 300*time.Millisecond {
			t.Errorf("after %q it waited for %s: %v", after, time.Since(begun), err)
		}
	}
	r.now += 1000
	begun, done := time.Now(), make(chan error, len(behind))
	for _, after := range behind {
		go func() { done <- f.Wait(t.Context(), after, time.Minute) }()
	}
	r.park(1)
	for _, after := range behind {
		if err := <-done; err != nil || time.Since(begun) > 30*time.Second {
			t.Error(time.Since(begun), err)
		}
		got, _ := r.read(f, after, 10)
		r.same(got, ids(4, 4))
	}
}

// An outcome stays until each reader has acknowledged it. An acknowledgement never moves back, and counts only up to the last outcome.
func TestAnOutcomeStaysUntilEachReaderHasIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{Readers: []string{"ledger", "mailer"}, Keep: time.Second})
	r.park(40)
	r.park(10)
	page, err := f.Read(t.Context(), feed.Cursor{}, 50)
	if err != nil || len(page) != 50 {
		t.Fatal(len(page), err)
	}
	at := func(n int) feed.Cursor { c, _ := feed.ParseCursor(page[n-1].Cursor); return c }
	ack := func(reader string, c feed.Cursor, want feed.Acked) {
		t.Helper()
		want.Reader = reader
		if got, err := f.Ack(t.Context(), reader, c); err != nil || got != want {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
	}
	r.now += time.Minute.Microseconds()
	ack("ledger", at(45), feed.Acked{Cursor: page[44].Cursor, Behind: 5})
	got, _ := r.read(f, feed.Cursor{}, 100)
	r.same(got, ids(1, 50))
	ack("mailer", at(20), feed.Acked{Cursor: page[19].Cursor, Behind: 30})
	ack("mailer", at(10), feed.Acked{Cursor: page[19].Cursor, Behind: 30})
	got, _ = r.read(f, at(20), 100)
	r.same(got, ids(21, 50))
	ack("mailer", feed.Cursor{Epoch: 1 << 40, Time: 1 << 52}, feed.Acked{Cursor: page[49].Cursor})
	s, err := f.Look(t.Context())
	if err != nil || s.Told != 50 || s.Kept != 10 || s.Readers[0].Behind != 5 || !s.Readers[0].Since.Equal(page[45].At) || s.Readers[1].Behind != 0 || !s.Readers[1].Since.IsZero() {
		t.Errorf("%+v %v", s, err)
	}
	ack("ledger", at(50), feed.Acked{Cursor: page[49].Cursor})
	if n := r.c.XLen(t.Context(), r.keys.Outcomes()).Val(); n != 0 {
		t.Errorf("%d entries are kept that all readers have", n)
	}
	r.park(1) // and it goes on behind them
	got, _ = r.read(f, at(50), 100)
	r.same(got, ids(51, 51))
}

// Without readers, an outcome is kept for a time, whatever its epoch.
func TestWithoutAReaderAnOutcomeIsKeptForATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{Keep: time.Hour})
	r.park(2)
	r.now += (50 * time.Minute).Microseconds()
	r.park(2)
	r.c.HIncrBy(t.Context(), r.keys.Feed(), "epoch", 1)
	r.park(2)
	for _, c := range []struct{ minutes, first int }{{9, 1}, {2, 3}, {48, 3}, {2, 7}} {
		r.now += (time.Duration(c.minutes) * time.Minute).Microseconds()
		if _, err := f.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, _ := r.read(f, feed.Cursor{}, 100)
		r.same(got, ids(c.first, 6))
	}
}

// A reader that is too far behind holds the gateway until it has caught up.
func TestAReaderFarBehindHoldsTheGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{Readers: []string{"ledger", "mailer"}, MaxBehind: 100})
	held := func(want string) {
		t.Helper()
		for _, look := range []func(context.Context) (feed.Standing, error){f.Look, f.Tend, f.Look} {
			s, err := look(t.Context())
			if err != nil || s.WaitsFor != want || s.Held.IsZero() == (want != "") {
				t.Fatalf("%+v %v, want it to wait for %q", s, err, want)
			}
		}
	}
	r.park(100)
	held("")
	r.park(1)
	held("ledger")
	page, err := f.Read(t.Context(), feed.Cursor{}, 101)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reader string
		upto   int
		waits  string
	}{{"ledger", 50, "mailer"}, {"mailer", 10, "mailer"}, {"mailer", 11, ""}} {
		cursor, _ := feed.ParseCursor(page[c.upto-1].Cursor)
		if _, err := f.Ack(t.Context(), c.reader, cursor); err != nil {
			t.Fatal(err)
		}
		held(c.waits)
	}
	r.park(20)
	held("mailer")
	f = r.feed(feed.Config{Readers: []string{"ledger"}, MaxBehind: 100}) // a reader that is gone holds nobody
	held("")
}

// If outcomes may be dropped, the oldest are dropped first, and counted for each reader that has not read them.
func TestOutcomesAreDroppedWithACount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{Readers: []string{"ledger", "mailer"}, MaxBehind: 100, Drop: true})
	for range 300 {
		r.park(1)
	}
	page, err := f.Read(t.Context(), feed.Cursor{}, 150)
	if err != nil {
		t.Fatal(err)
	}
	cursor, _ := feed.ParseCursor(page[149].Cursor)
	s, err := f.Ack(t.Context(), "ledger", cursor)
	if err != nil || s.Behind != 150 {
		t.Fatalf("%+v %v", s, err)
	}
	for range 2 {
		v, err := f.Tend(t.Context())
		if err != nil || !v.Held.IsZero() || v.Kept != 100 || v.Readers[0].Dropped != 50 || v.Readers[1].Dropped != 200 || v.Readers[1].Behind != 100 {
			t.Fatalf("%+v %v", v, err)
		}
	}
	got, _ := r.read(f, cursor, 100)
	r.same(got, ids(201, 300))
}

// An unacknowledged outcome takes at most 160 bytes of Redis, alone in its script as together with others.
func TestAnOutcomeTakesLittleMemory(t *testing.T) {
	t.Parallel()
	for _, together := range []int{1, 50} {
		r := newRig(t)
		const all = 20_000
		for i := 0; i < all; i += together {
			r.now += 1000
			jobs := make([]job.Job, together)
			for k := range jobs {
				jobs[k] = job.Job{ID: fmt.Sprintf("inv-2026-11-%08d", i+k), Batch: "2026-11", Payload: json.RawMessage(`{"amount":490000,"currency":"EUR"}`)}
			}
			r.accept(jobs...)
		}
		bytes := r.c.MemoryUsage(t.Context(), r.keys.Outcomes(), 0).Val() + 28*all // as if each had a reference like pi_3PqK2eJx8uFZ1a2b0c3d4e5f
		each := float64(bytes) / all
		t.Logf("%d outcomes in a script: %.1f bytes each", together, each)
		if each < 50 || each > 160 {
			t.Errorf("%d outcomes in a script: %.1f bytes each, of 160 at most", together, each)
		}
	}
}

// If a script fails, the feed has the outcomes of the jobs that it changed before.
func TestWhatAFailedScriptHasDoneIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(3)
	r.c.Set(t.Context(), r.keys.Job("job-2"), "rubbish", 0)
	err := r.books.CancelBatch(t.Context(), "november", "me", "why", 0, func(ledger.Shelved) error { return nil })
	if err == nil {
		t.Fatal("a record of another type stopped nobody")
	}
	page, err := r.feed(feed.Config{}).Read(t.Context(), feed.Cursor{}, 10)
	if err != nil || len(page) != 4 || page[3].ID != "job-1" || *page[3].Reason != job.Cancelled {
		t.Errorf("%+v %v", page, err)
	}
}

// Outcomes are written even if the feed's keys contain rubbish.
func TestAnOutcomeIsToldIntoDamagedKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{})
	r.park(40)
	_, last := r.read(f, feed.Cursor{}, 100)
	r.c.Del(t.Context(), r.keys.Feed())
	r.now += 3_000_000
	r.park(2)
	got, last := r.read(f, last, 100)
	r.same(got, ids(41, 42))
	if s, err := f.Look(t.Context()); err != nil || s.Told != 42 || s.Kept != 42 {
		t.Errorf("%+v %v", s, err)
	}
	for i, key := range []string{r.keys.Outcomes(), r.keys.Feed()} {
		r.c.Set(t.Context(), key, "rubbish", 0)
		r.now += 3_000_000
		r.park(1)
		got, last = r.read(f, last, 100)
		r.same(got, ids(43+i, 43+i))
	}
	r.c.Del(t.Context(), r.keys.Feed())
	r.now -= 3_600_000_000 // and its clock is behind
	r.park(1)
	got, _ = r.read(f, last, 100)
	r.same(got, ids(45, 45))
	r.c.XAdd(t.Context(), &redis.XAddArgs{Stream: r.keys.Outcomes(), Values: []string{"told", "rubbish"}})
	if _, err := f.Read(t.Context(), feed.Cursor{}, 100); err == nil {
		t.Error("rubbish in the stream is read as an outcome")
	}
}
