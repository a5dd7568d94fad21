package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/feed"
)

// Feed returns one gateway's outcome feed; nil if none is configured.
func Feed(c redis.UniversalClient, g config.Gateway) *feed.Feed {
	if g.Outcomes == nil {
		return nil
	}
	o := g.Outcomes
	return feed.New(c, feed.Config{Gateway: g.Name, Readers: o.Readers, Keep: o.Keep, MaxBehind: o.MaxBehind, Drop: o.Then == config.OutcomesDrop})
}

// lookAtFeed returns the state of a gateway's outcome feed; nil if it has none.
func lookAtFeed(ctx context.Context, c redis.UniversalClient, g config.Gateway) (*feed.Standing, error) {
	f := Feed(c, g)
	if f == nil {
		return nil, nil
	}
	s, err := f.Look(ctx)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// untold says why a gateway whose outcomes are not read is not called.
func untold(g config.Gateway, s feed.Standing) string {
	behind := int64(0)
	for _, r := range s.Readers {
		if r.Reader == s.WaitsFor {
			behind = r.Behind
		}
	}
	return fmt.Sprintf("the reader %s is %d outcomes behind, and may be %d behind (outcomes.max_behind): calls go on by themselves when it has caught up", s.WaitsFor, behind,
		g.Outcomes.MaxBehind)
}

// told says whether a gateway is held because a reader of its outcomes is too far behind. The zero told: it is
// not held. It is safe for concurrent use.
type told struct {
	mu   sync.Mutex
	free chan struct{} // closed when the hold ends; nil: no hold
}

func (t *told) held() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free != nil
}

// set sets whether it is held, and reports whether that changed.
func (t *told) set(held bool) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case held == (t.free != nil):
		return false
	case held:
		t.free = make(chan struct{})
	default:
		close(t.free)
		t.free = nil
	}
	return true
}

// wait waits until it is not held.
func (t *told) wait(ctx context.Context) error {
	t.mu.Lock()
	free := t.free
	t.mu.Unlock()
	if free == nil {
		return nil
	}
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	tellSoon = time.Second      // how often the feed of an active gateway is checked
	tellLate = 10 * time.Second // how often that of an idle one is
)

// tell drops outcomes that all readers have read, and holds the gateway while one of them is too far behind.
func (u *unit) tell(ctx context.Context) time.Duration {
	g := u.now().cfg
	f := Feed(u.redis, g)
	if f == nil {
		u.goOn(config.Gateway{}, feed.Standing{})
		return -1
	}
	s, err := f.Tend(ctx)
	if err != nil {
		u.complain(ctx, "outcome feed not looked at, trying again", err)
		return loopBackoff
	}
	u.goOn(g, s)
	if u.told.held() {
		return tellSoon
	}
	return tellLate // the pulse of an active gateway nudges it earlier
}

// tellIfDue has the feed of an active gateway checked if that is due.
func (u *unit) tellIfDue() {
	if u.now().cfg.Outcomes != nil && time.Since(u.toldAt) >= tellSoon {
		u.toldAt = time.Now()
		u.teller.nudge()
	}
}

// goOn holds or releases the gateway, depending on the feed.
func (u *unit) goOn(g config.Gateway, s feed.Standing) {
	held := !s.Held.IsZero()
	if !u.told.set(held) {
		return
	}
	if held {
		u.log.Warn("no calls: " + untold(g, s))
		u.pacer.Wake()
		return
	}
	u.log.Info("the readers of outcomes have caught up: calls go on")
	u.pacer.Wake()
}
