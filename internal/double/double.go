// Package double plays real payment gateways, strictly as their own documents say. A gateway is one YAML table in
// tables/; the code has no names of gateways. The doubles were written from the providers' documents, independently of the code that
// judges answers, so that each can be compared with the other.
//
// Keys expire at exactly the published minimum, and limits hold in every rolling window. Where no document says what happens, a
// double plays each of several answers in turn.
package double

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/clock"
)

// Options say how a double runs. The zero Options use the machine's clock at its own pace, without fates.
type Options struct {
	// Clock tells the time and waits. Nil is the machine's clock.
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
	// TokenLife is how long OAuth tokens live, by the double's time. 0 is as long as the table says. If the gateway has
	// no token endpoint, TokenLife and Client are errors.
	TokenLife time.Duration
	// Client is the only client that gets tokens, as ID:SECRET. With "" any client with an id and a secret gets one.
	Client string
	// Fates are armed from the start, in this order.
	Fates []Fate
	// Choose fixes a choice that is otherwise taken in turn: "running" for what a repeat gets while the first call runs, "2xx", "4xx" and
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
	sums     map[string]instant // the last charge of each content, for gateways that guess duplicates by it
	working  []*execution
}

// New returns a double that behaves as the table says. It fails if the table does not have a fate or a choice,
// or if a time is negative.
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

// Table returns the table that the double plays.
func (d *Double) Table() *Table { return d.table }

// instant is a moment of the double's own time, counted from its start.
type instant = time.Duration

// at returns the moment of the double for a moment of the clock.
func (d *Double) at(t time.Time) instant { return d.scaled(t.Sub(d.began)) }

func (d *Double) now() instant { return d.at(d.clock.Now()) }

// date returns a moment as the double's calendar shows it.
func (d *Double) date(i instant) time.Time { return d.began.Add(i).Round(0) }

// real converts a time of the double to one of the clock, rounded up to a nanosecond.
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

// WithArrival returns a context with the arrival time of its request, by the machine's clock, for a server that knows it better than
// the handler. Limits use it.
func WithArrival(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, arrivalKey{}, at)
}

func (d *Double) arrival(ctx context.Context) instant {
	if at, ok := ctx.Value(arrivalKey{}).(time.Time); ok {
		return d.at(at)
	}
	return d.now()
}

// turn returns the next of several names, or the one that Choose has fixed.
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

// scaled converts a time of the clock to one of the double.
func (d *Double) scaled(real time.Duration) instant {
	if d.scale == 1 {
		return real
	}
	return instant(float64(real) * d.scale)
}

// control serves what no gateway has: the ledger, the log of calls, the tokens and the fates.
func (d *Double) control(w http.ResponseWriter, r *http.Request, what string) {
	switch r.Method + " " + what {
	case "GET ledger":
		writeLines(w, d.Ledger())
	case "GET calls":
		writeLines(w, d.Calls())
	case "GET lookups":
		writeLines(w, slices.DeleteFunc(d.Calls(), func(c Call) bool { return c.Look == "" }))
	case "GET tokens":
		writeLines(w, []TokenStats{d.Tokens()})
	case "DELETE tokens":
		d.RevokeTokens()
		w.WriteHeader(http.StatusNoContent)
	case "GET fates":
		writeLines(w, d.armedNow())
	case "POST fates":
		fates, err := readFates(json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)))
		if err == nil {
			err = d.Arm(fates...)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeLines(w, d.armedNow())
	case "DELETE fates":
		d.Disarm()
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "there are GET /_double/ledger, GET /_double/calls, GET /_double/lookups, GET and DELETE /_double/tokens, and GET, POST and DELETE /_double/fates", http.StatusNotFound)
	}
}

func writeLines[T any](w http.ResponseWriter, all []T) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	for _, one := range all {
		if enc.Encode(one) != nil {
			return // the reader has gone
		}
	}
}

// ArmedFate is a fate in force, as GET /_double/fates shows it.
type ArmedFate struct {
	Fate  string  `json:"fate"`
	Job   string  `json:"job,omitempty"`
	Key   string  `json:"key,omitempty"`
	Share float64 `json:"share,omitempty"`
	// Jobs and Calls have met it.
	Jobs  int `json:"jobs"`
	Calls int `json:"calls"`
}

func (d *Double) armedNow() []ArmedFate {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []ArmedFate{}
	for _, f := range d.armed {
		one := ArmedFate{Fate: f.Name, Job: f.Job, Key: f.Key, Share: f.Share, Jobs: len(f.met)}
		for _, n := range f.met {
			one.Calls += n
		}
		all = append(all, one)
	}
	return all
}

// readFates reads one fate or a list: {"fate":"saved-500","share":"5%","charge":true}.
func readFates(from *json.Decoder) ([]Fate, error) {
	from.UseNumber()
	var v any
	if err := from.Decode(&v); err != nil {
		return nil, fmt.Errorf(`no JSON: %w; write {"fate":"saved-500","share":"5%%"} or a list of them`, err)
	}
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	var fates []Fate
	for _, one := range list {
		words, ok := one.(map[string]any)
		if !ok {
			return nil, fmt.Errorf(`%v is not a fate: write {"fate":"saved-500","share":"5%%"}`, one)
		}
		f := Fate{Name: fmt.Sprint(words["fate"])}
		for word, value := range words {
			if word == "fate" {
				continue
			}
			if err := f.put(word, fmt.Sprint(value)); err != nil {
				return nil, fmt.Errorf("%s: %w", word, err)
			}
		}
		fates = append(fates, f)
	}
	return fates, nil
}
