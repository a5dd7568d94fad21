package feed_test

import (
	"errors"
	"testing"

	"spillway/internal/feed"
)

// After Redis was restored from an old snapshot, a reader misses no new outcome, whatever it has read before.
func TestAReaderMissesNothingAfterARestore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{})
	r.park(5)
	back := r.dump()
	r.now += 1000
	r.park(5)
	_, last := r.read(f, feed.Cursor{}, 100)
	back()
	r.now += 1000
	got, at := r.read(f, last, 100)
	r.same(got, nil)
	r.park(2) // before anybody has noticed
	got, _ = r.read(f, at, 100)
	r.same(got, ids(11, 12))
}

// The same holds if the reader has read outcomes of an epoch that the snapshot does not know.
func TestAReaderMissesNothingOfAnEpochThatIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{})
	r.park(5)
	back := r.dump()
	r.c.HIncrBy(t.Context(), r.keys.Feed(), "epoch", 1)
	r.now += 1000
	r.park(5)
	_, last := r.read(f, feed.Cursor{}, 100)
	back()
	r.now += 1000
	got, _ := r.read(f, last, 100)
	r.same(got, nil)
	r.park(2)
	got, last = r.read(f, last, 100)
	r.same(got, ids(11, 12))
	got, _ = r.read(f, last, 100)
	r.same(got, nil)
}

// After a restore, an acknowledgement of an epoch that the snapshot does not know removes no outcome that was written since.
func TestAnAcknowledgementOfALostEpochLetsGoOfNothingThatIsNew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{Readers: []string{"ledger"}})
	r.park(5)
	back := r.dump()
	r.c.HIncrBy(t.Context(), r.keys.Feed(), "epoch", 1)
	r.now += 1000
	r.park(5)
	_, last := r.read(f, feed.Cursor{}, 100)
	back()
	r.now += 1000
	r.park(2)
	if a, err := f.Ack(t.Context(), "ledger", last); err != nil || a.Behind != 2 {
		t.Errorf("%+v %v", a, err)
	}
	got, _ := r.read(f, last, 100)
	r.same(got, ids(11, 12))
}

// If the clock is behind, a cursor of a future time is refused, until the restore is confirmed, which begins a new epoch.
func TestACursorOfATimeToComeIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.feed(feed.Config{})
	r.park(5)
	back := r.dump()
	r.now += 60_000_000
	r.park(5)
	_, last := r.read(f, feed.Cursor{}, 100)
	back()
	r.now -= 30_000_000
	r.park(2)
	if _, err := f.Read(t.Context(), last, 100); !errors.Is(err, feed.ErrAhead) {
		t.Fatalf("the error is %v", err)
	}
	r.c.HIncrBy(t.Context(), r.keys.Feed(), "epoch", 1) // as doubt.lua does
	r.park(2)
	got, _ := r.read(f, last, 100)
	r.same(got, ids(13, 14))
}

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "1", "1-", "-1", "1-2-3", "1 -2", "0x1-2", "1-20000000000000000", "+1-2", "1--2"} {
		if c, err := feed.ParseCursor(text); err == nil {
			t.Errorf("%q is read as %v", text, c)
		}
	}
	c, err := feed.ParseCursor("1700000000-1700000000000001")
	if err != nil || c.String() != "1700000000-1700000000000001" || (feed.Cursor{}).String() != "" {
		t.Errorf("%v %v", c, err)
	}
	if (feed.Cursor{Epoch: 1, Time: 9}).Compare(feed.Cursor{Epoch: 2, Time: 1}) >= 0 || c.Compare(c) != 0 {
		t.Error("cursors are not in order")
	}
}
