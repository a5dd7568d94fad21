package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
)

// patience is how long an answer waits for an action to end. A longer one continues in the background, and its
// page shows the progress.
const patience = 2 * time.Second

// actsKept is how many acts of this process are remembered. The audit trail in Redis has all of them.
const actsKept = 50

// act is an action that this process has carried out, or is carrying out.
type act struct {
	ID    string
	Past  string // "replayed"
	bulk  *desk.Bulk
	over  chan struct{}
	ended error // valid once over is closed
}

// acts are the last acts of this process, of one kind.
type acts[A any] struct {
	mu  sync.Mutex
	all []A
}

func (s *acts[A]) add(a A) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, a); len(s.all) > actsKept {
		s.all = s.all[1:]
	}
}

// find returns the matching act, or the zero value if this process knows none.
func (s *acts[A]) find(is func(A) bool) (none A) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		if is(a) {
			return a
		}
	}
	return none
}

// await returns when an act is over, but no later than after d.
func await(ctx context.Context, over <-chan struct{}, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// actNow is a snapshot of an act.
type actNow struct {
	Past  string
	Jobs  int64
	Money string
	Gone  int
	Held  []heldBack
	Over  bool
	Error string
}

// asked returns the request that was stored because a second person has to approve; nil if there is none, or
// none yet.
func (a *act) asked() *desk.Request {
	select {
	case <-a.over:
	default:
		return nil
	}
	if waits, is := errors.AsType[*desk.Awaits](a.ended); is {
		return &waits.Request
	}
	return nil
}

// Now returns the act's progress.
func (a *act) Now() actNow {
	far := a.bulk.Now()
	v := actNow{Past: a.Past, Jobs: far.Took.Jobs, Money: far.Took.Money(), Gone: far.Gone, Held: sorted(a.bulk.Held())}
	select {
	case <-a.over:
		v.Over = true
	default:
		return v
	}
	if asked := a.asked(); asked != nil {
		v.Error = "Nothing was done: " + requestNote(*asked) + "."
	} else if halt, ok := errors.AsType[*deadletter.Halt](a.ended); ok {
		v.Error = "It stopped by itself: " + halt.Why + ". What is left is still parked: do it again when that is over."
	} else if a.ended != nil {
		v.Error = "It ended before all was done. What is left is still parked: do it again, that is safe."
	}
	return v
}

// begin starts an action that continues after its request.
func (c *Console) begin(b *desk.Bulk, d deed, by saying) *act {
	a := &act{ID: rand.Text(), Past: d.Past, bulk: b, over: make(chan struct{})}
	c.acts.add(a)
	c.running.Go(func() {
		defer close(a.over)
		a.ended = b.Run(c.ctx, by.by(), c.cfg.Traces, nil)
		c.cfg.Log.Info("dead letters were changed at the console", "gateway", b.Name, "what", d.Name, "jobs", b.Now().Took.Jobs,
			"who", by.name(), "why", by.why, "from", by.from, "error", a.ended)
	})
	return a
}

const whoCookie = "spillway_who"

// remember stores a person's name for the next form.
func remember(w http.ResponseWriter, r *http.Request, who string) {
	const year = 365 * 24 * 60 * 60
	http.SetCookie(w, &http.Cookie{Name: whoCookie, Value: url.QueryEscape(who), Path: "/", MaxAge: year, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"})
}

// whoBefore returns the name of the logged-in user, or else the one last typed; empty if there is none.
func whoBefore(r *http.Request) string {
	if name := whoAsks(r.Context()).Name; name != "" {
		return name
	}
	cookie, err := r.Cookie(whoCookie)
	if err != nil {
		return ""
	}
	who, err := url.QueryUnescape(cookie.Value)
	if err != nil {
		return ""
	}
	return who
}
