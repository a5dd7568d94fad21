// Package double plays real payment gateways, each as its own documents say: strictly, not kindly. A gateway is one YAML table in
// tables/; the code knows none by name. What a double does is written from the provider's documents, apart from the code that
// judges answers, so that each can be held against the other.
//
// Keys die at exactly the published minimum, limits hold in every rolling window, and where no document says what happens a
// double plays each of several answers in turn.
package double

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/clock"
)

// Options says how a double is run. The zero Options is the machine's clock at its own pace, without fates.
type Options struct {
	// Clock tells the time and waits. Nil is the machine's.
	Clock clock.Clock
	// TimeScale makes the double's time run faster than the clock's: the life of keys, windows, delays and lags. 0 is 1. At 1000 a day
	// takes 86.4 s, and a limit of 25/s lets 25 calls through in each millisecond.
	TimeScale float64
	// Service is how long each execution takes, by the clock: the scale does not shorten it. 0 answers at once.
	Service time.Duration
	// KeyLife is how long all keys live, by the double's time. 0 is as long as the table says.
	KeyLife time.Duration
	// Lag is how long searches and lists don't find a new payment, by the double's time. 0 is as long as the table says.
	Lag time.Duration
	// TokenLife is how long OAuth tokens live, by the double's time. 0 is as long as the table says. It is an error where the gateway has
	// no token endpoint, and so is Client.
	TokenLife time.Duration
	// Client is the only one that gets tokens, as ID:SECRET. "" gives one to whoever sends both.
	Client string
	// Fates are armed from the start, in this order.
	Fates []Fate
	// Choose fixes what is otherwise taken in turn: "running" for what a repeat gets while the first call runs, "2xx", "4xx" and
	// "5xx" for what is saved. The value is one of the table's.
	Choose map[string]string
}

// Double is one gateway. Its methods may be called from several goroutines.
type Double struct {
	table   *Table
	clock   clock.Clock
	scale   float64
	service time.Duration
	keyLife time.Duration
	lag     time.Duration
	choose  map[string]string
	began   time.Time

	nameless atomic.Int64 // payments without a reference and a key

	mu       sync.Mutex
	armed    []*armedFate
	keys     map[string]*record
	payments []*payment
	byID     map[string]*payment
	ledger   []*booking
	byJob    map[string][]*booking
	calls    []*Call
	windows  map[subject]*window
	flying   map[subject]int
	turns    map[string]int
	tokens   tokens
	sums     map[string]instant // the last charge of each content, for gateways that guess doubles by it
	working  []*execution
}

// New returns a double that behaves as the table says. It fails where a fate is none of the table's, a choice is
// none, or a time is negative.
func New(t *Table, o Options) (*Double, error) {
	d := &Double{table: t, clock: o.Clock, scale: o.TimeScale, service: o.Service, keyLife: o.KeyLife, lag: o.Lag, choose: o.Choose,
		keys: map[string]*record{}, byID: map[string]*payment{}, byJob: map[string][]*booking{}, windows: map[subject]*window{}, flying: map[subject]int{},
		turns: map[string]int{}, sums: map[string]instant{}}
	if d.clock == nil {
		d.clock = clock.Real{}
	}
	if d.scale == 0 {
		d.scale = 1
	}
	if d.scale < 0 || d.service < 0 || d.keyLife < 0 || d.lag < 0 || o.TokenLife < 0 {
		return nil, errors.New("a time scale, the time that a call takes, the lives of keys and tokens and the lag of look-ups are not negative")
	}
	var err error
	if d.tokens, err = t.tokens(o); err != nil {
		return nil, err
	}
	d.began = d.clock.Now()
	if err := t.checkChoices(o.Choose); err != nil {
		return nil, err
	}
	if err := d.Arm(o.Fates...); err != nil {
		return nil, err
	}
	return d, nil
}

// Table returns what the double plays.
func (d *Double) Table() *Table { return d.table }

// instant is a moment of the double's own time, counted from its start.
type instant = time.Duration

// at returns the double's moment for one of the clock's.
func (d *Double) at(t time.Time) instant { return d.scaled(t.Sub(d.began)) }

func (d *Double) now() instant { return d.at(d.clock.Now()) }

// date returns a moment as the double's calendar shows it.
func (d *Double) date(i instant) time.Time { return d.began.Add(i).Round(0) }

// real returns how long a time of the double takes by the clock, rounded up to a nanosecond.
func (d *Double) real(i instant) time.Duration {
	if d.scale == 1 {
		return i
	}
	return time.Duration(float64(i)/d.scale) + 1
}

// until waits for a moment. It returns early, with ctx.Err(), when ctx ends.
func (d *Double) until(ctx context.Context, moment instant) error {
	for {
		left := moment - d.now()
		if left <= 0 {
			return nil
		}
		select {
		case <-d.clock.After(d.real(left)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type arrivalKey struct{}

// WithArrival returns a context that says when its request came in, by the machine's clock, where the server knows it better than
// the handler. Limits go by it.
func WithArrival(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, arrivalKey{}, at)
}

func (d *Double) arrival(ctx context.Context) instant {
	if at, ok := ctx.Value(arrivalKey{}).(time.Time); ok {
		return d.at(at)
	}
	return d.now()
}

// turn takes the next of several names, or the one that was chosen for the occasion.
func (d *Double) turn(occasion string, of names) string {
	if len(of) == 0 {
		return ""
	}
	if chosen, ok := d.choose[occasion]; ok {
		return chosen
	}
	n := d.turns[occasion]
	d.turns[occasion] = n + 1
	return of[n%len(of)]
}

// scaled returns how much of the double's time a time by the clock is.
func (d *Double) scaled(real time.Duration) instant {
	if d.scale == 1 {
		return real
	}
	return instant(float64(real) * d.scale)
}
