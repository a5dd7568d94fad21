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

// Feed returns one gateway's outcome feed; nil where the configuration has none.
func Feed(c redis.UniversalClient, g config.Gateway) *feed.Feed {
	if g.Outcomes == nil {
		return nil
	}
	o := g.Outcomes
	return feed.New(c, feed.Config{Gateway: g.Name, Readers: o.Readers, Keep: o.Keep, MaxBehind: o.MaxBehind, Drop: o.Then == config.OutcomesDrop})
}

// lookAtFeed returns how a gateway's outcome feed stands; nil where it has none.
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

// untold says why nobody calls a gateway whose outcomes nobody reads.
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

// told says whether a gateway is held since a reader of its outcomes is too far behind. The zero told: it is not. Safe for concurrent use.
type told struct {
	mu   sync.Mutex
	free chan struct{} // closes when it is not held any more; nil: it is not
}

func (t *told) held() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free != nil
}

// set says how it is now, and returns whether it was otherwise.
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
	tellSoon = time.Second      // how often the feed of a gateway at work is looked at
	tellLate = 10 * time.Second // and that of an idle one
)

// tell lets go of the outcomes that all readers have, and holds the gateway while one of them is too far behind.
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
	return tellLate // the pulse of a gateway at work nudges it before
}

// tellIfDue has the feed of a gateway looked at that is at work.
func (u *unit) tellIfDue() {
	if u.now().cfg.Outcomes != nil && time.Since(u.toldAt) >= tellSoon {
		u.toldAt = time.Now()
		u.teller.nudge()
	}
}

// goOn holds the gateway, or lets it go on, as the feed says.
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
