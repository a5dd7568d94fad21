package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	strict "spillway/internal/provider"
)

// gateways answer every call at once and note when each was called, as the kernel stamps it: a busy machine delays what notes it.
type gateways struct {
	url string
	// heard, where it is set, gets the stamp of each call. What is in refusals has the next call answered 429 with Retry-After: refusedFor, and hears when that was sent.
	heard    chan time.Time
	refusals chan chan<- time.Time

	mu    sync.Mutex
	calls map[string][]time.Time
}

// newGateways serves until ctx is done.
func newGateways(ctx context.Context) (*gateways, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gateways{url: "http://" + ln.Addr().String(), calls: map[string][]time.Time{}}
	go func() { _ = strict.Serve(ctx, ln, http.HandlerFunc(g.answer)) }()
	return g, nil
}

func (g *gateways) answer(w http.ResponseWriter, r *http.Request) {
	at, done := strict.Arrival(r)
	defer done()
	_, _ = io.Copy(io.Discard, r.Body)
	g.mu.Lock()
	g.calls[r.URL.Path] = append(g.calls[r.URL.Path], at)
	g.mu.Unlock()
	if g.heard != nil {
		g.heard <- at
	}
	w.Header().Set("Content-Type", "application/json")
	select {
	case sent := <-g.refusals:
		refuse(w)
		sent <- time.Now()
		return
	default:
	}
	_, _ = w.Write([]byte(`{"id":"pay_1"}`))
}

// refusedFor is for how long a 429 asks for no call.
const refusedFor = 2 * time.Second

// refuse answers 429 and hands the answer to the kernel.
func refuse(w http.ResponseWriter) {
	text := `{"error":"too many"}`
	w.Header().Set("Retry-After", strconv.Itoa(int(refusedFor.Seconds())))
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// between returns the stamps of all calls after one moment and before another, in order.
func (g *gateways) between(from, to time.Time) (all []time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, calls := range g.calls {
		for _, at := range calls {
			if at.After(from) && at.Before(to) {
				all = append(all, at)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// seen returns the calls a second between two moments, and the most of one gateway within any second.
func (g *gateways) seen(from, to time.Time) (rate float64, fullest int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, calls := range g.calls {
		slices.SortFunc(calls, time.Time.Compare)
		first := 0
		for i, at := range calls {
			if at.After(from) && at.Before(to) {
				n++
			}
			for at.Sub(calls[first]) >= time.Second {
				first++
			}
			fullest = max(fullest, i-first+1)
		}
	}
	return float64(n) / to.Sub(from).Seconds(), fullest
}
