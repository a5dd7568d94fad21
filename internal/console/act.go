package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// patience is how long an answer waits for a deed to end. A longer one goes on, and its page says how far it is.
const patience = 2 * time.Second

// actsKept is how many acts of this process are remembered. The trail in Redis has all of them.
const actsKept = 50

// saying is who did something and why.
type saying struct{ who, why, from string }

// act is a deed that this process has done, or is at.
type act struct {
	ID      string
	Gateway string
	Past    string // "replayed"
	over    chan struct{}

	mu   sync.Mutex
	done deadletter.Cleared
	took *pile
	held map[string]int
	err  error
}

// acts are the last acts of this process.
type acts struct {
	mu  sync.Mutex
	all []*act
}

func (s *acts) add(a *act) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, a); len(s.all) > actsKept {
		s.all = s.all[1:]
	}
}

// find returns an act of the gateway; nil if this process knows none of that id.
func (s *acts) find(id, gateway string) *act {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		if a.ID == id && a.Gateway == gateway {
			return a
		}
	}
	return nil
}

// wait returns when the act is over, but no later than after d.
func (a *act) wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-a.over:
	case <-ctx.Done():
	}
}

// actNow is an act as it stands.
type actNow struct {
	Past  string
	Jobs  int
	Money string
	Gone  int
	Held  []heldBack
	Over  bool
	Error string
}

// Now returns how far the act got.
func (a *act) Now() actNow {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := actNow{Past: a.Past, Jobs: a.took.Jobs, Money: a.took.Money(), Gone: a.done.Gone, Held: sorted(a.held)}
	select {
	case <-a.over:
		v.Over = true
	default:
	}
	if halt, ok := errors.AsType[*deadletter.Halt](a.err); ok {
		v.Error = "It stopped by itself: " + halt.Why + ". What is left is still parked: do it again when that is over."
	} else if a.err != nil {
		v.Error = "It ended before all was done. What is left is still parked: do it again, that is safe."
	}
	return v
}

// begin starts a deed that goes on after its request.
func (c *Console) begin(u unit, d deed, f filter, by saying) *act {
	a := &act{ID: rand.Text(), Gateway: u.g.Name, Past: d.past, over: make(chan struct{}), took: newPile(), held: map[string]int{}}
	c.acts.add(a)
	c.running.Go(func() {
		defer close(a.over)
		err := c.do(a, u, d, f, by)
		a.mu.Lock()
		a.err = err
		a.mu.Unlock()
		c.cfg.Log.Info("dead letters were changed at the console", "gateway", u.g.Name, "what", d.what, "jobs", a.Now().Jobs,
			"who", by.who, "why", by.why, "from", by.from, "error", err)
	})
	return a
}

// noteEvery is how often a long act brings its entry in the trail up to date.
const noteEvery = time.Second

// noteTime bounds writing the entry down.
const noteTime = 5 * time.Second

// do runs a deed and keeps its entry in the trail, which is there before the first job is touched.
func (c *Console) do(a *act, u unit, d deed, f filter, by saying) error {
	store := dispatch.Store(c.cfg.Redis, u.g)
	entry := store.Entry(deadletter.Act{At: u.rules.Now, Who: by.who + " (console)", What: d.what, Why: by.why, Filter: strings.TrimSpace(f.text() + u.pace.flags)})
	u.admit = c.cfg.Traces.Replays(u.g.Name, dispatch.Books(c.cfg.Redis, u.g).For(entry.Place)) // what is taken is counted in the step that takes it
	f.means.ToCount(u.g.Amount.Field != "")
	noted := time.Now()
	done, err := d.run(c.ctx, deadletter.Clearing{
		Store: store.For(entry), Filter: f.means, Clock: clock.Real{},
		Watch:    c.watch(u, d),
		Canary:   u.pace.canary,
		Begin:    func(ctx context.Context) error { return bounded(ctx, entry.Begin) },
		Taken:    func(rec job.Record) { a.take(rec, u) },
		HeldBack: func(_ job.Record, why string) { a.holdBack(why) },
		Progress: func(done deadletter.Cleared) {
			a.progress(done)
			if time.Since(noted) < noteEvery {
				return
			}
			noted = time.Now()
			_ = bounded(c.ctx, func(ctx context.Context) error { return entry.Note(ctx, a.deed()) }) // its end tells
		},
	}, u)
	a.progress(done)
	if endErr := bounded(c.ctx, func(ctx context.Context) error { return entry.End(ctx, a.deed()) }); endErr != nil {
		return dispatch.Coded(endErr)
	}
	return dispatch.Coded(err)
}

// watch ends a replay while the gateway's calls are kept back: what goes in then would only wait in the queue.
func (c *Console) watch(u unit, d deed) func(context.Context) (deadletter.Leave, error) {
	if !d.heeds {
		return nil
	}
	return func(ctx context.Context) (deadletter.Leave, error) {
		now, err := dispatch.Look(ctx, c.cfg.Redis, u.g)
		leave := deadletter.Leave{Stop: stopped(now), Rate: u.pace.rate}
		if u.pace.share > 0 && err == nil {
			leave.Rate = u.pace.share * config.PerSecond(now.Limits)
		}
		return leave, err
	}
}

// stopped says why a replay has to wait; empty if it need not. The one call that goes first after a hold is no reason, unless other
// jobs can bring it.
func stopped(v dispatch.Glance) string {
	switch s := v.Hold; {
	case s.Paused:
		return "the gateway is paused: " + s.PauseWhy
	case !s.HeldUntil.IsZero():
		return "the gateway is held until " + s.HeldUntil.UTC().Format(time.RFC3339) + ": " + s.Reason
	case s.Circuit && v.Queued+v.InFlight+v.Retrying > 0:
		return "the gateway's circuit is open: " + s.Reason
	}
	return ""
}

// bounded writes something down, also at a stop.
func bounded(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	return write(ctx)
}

func (a *act) take(rec job.Record, u unit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took.add(rec, u.g.Amount)
}

func (a *act) holdBack(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[why]++
}

func (a *act) progress(done deadletter.Cleared) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = done
}

func (a *act) deed() deadletter.Deed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return deadletter.Deed{Jobs: a.took.Jobs, Amount: a.took.money, Bare: a.took.bare}
}

const whoCookie = "spillway_who"

// remember keeps a person's name for the next form.
func remember(w http.ResponseWriter, r *http.Request, who string) {
	const year = 365 * 24 * 60 * 60
	http.SetCookie(w, &http.Cookie{Name: whoCookie, Value: url.QueryEscape(who), Path: "/", MaxAge: year, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"})
}

// whoBefore is the name that was typed in last; empty if none was.
func whoBefore(r *http.Request) string {
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
