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

// feedHeld says why a gateway whose outcomes are not read is not called.
func feedHeld(g config.Gateway, s feed.Standing) string {
	behind := int64(0)
	for _, r := range s.Readers {
		if r.Reader == s.WaitsFor {
			behind = r.Behind
		}
	}
	return fmt.Sprintf("the reader %s is %d outcomes behind, and may be %d behind (outcomes.max_behind): calls go on by themselves when it has caught up", s.WaitsFor, behind,
		g.Outcomes.MaxBehind)
}

// feedHold says whether a gateway is held because a reader of its outcomes is too far behind. The zero feedHold: it is
// not held. It is safe for concurrent use.
type feedHold struct {
	mu   sync.Mutex
	free chan struct{} // closed when the hold ends; nil: no hold
}

func (h *feedHold) held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.free != nil
}

// set sets whether it is held, and reports whether that changed.
func (h *feedHold) set(held bool) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case held == (h.free != nil):
		return false
	case held:
		h.free = make(chan struct{})
	default:
		close(h.free)
		h.free = nil
	}
	return true
}

// wait waits until it is not held.
func (h *feedHold) wait(ctx context.Context) error {
	h.mu.Lock()
	free := h.free
	h.mu.Unlock()
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
	tendSoon = time.Second      // how often the feed of an active gateway is checked
	tendLate = 10 * time.Second // how often that of an idle one is
)

// tendFeed drops outcomes that all readers have read, and holds the gateway while one of them is too far behind.
func (u *unit) tendFeed(ctx context.Context) time.Duration {
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
	if u.feedHold.held() {
		return tendSoon
	}
	return tendLate // the pulse of an active gateway nudges it earlier
}

// tendFeedIfDue has the feed of an active gateway checked if that is due.
func (u *unit) tendFeedIfDue() {
	if u.now().cfg.Outcomes != nil && time.Since(u.tendedAt) >= tendSoon {
		u.tendedAt = time.Now()
		u.feedMinder.nudge()
	}
}

// goOn holds or releases the gateway, depending on the feed.
func (u *unit) goOn(g config.Gateway, s feed.Standing) {
	held := !s.Held.IsZero()
	if !u.feedHold.set(held) {
		return
	}
	if held {
		u.log.Warn("no calls: " + feedHeld(g, s))
		u.pacer.Wake()
		return
	}
	u.log.Info("the readers of outcomes have caught up: calls go on")
	u.pacer.Wake()
}
