package demo

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/provider"
)

// short returns parameters with so few jobs that a test can wait for the end.
func short() Params {
	p := Default()
	p.Jobs, p.Expiring, p.ExpireAfter, p.Patience = 240, 4, 300*time.Millisecond, 10*time.Minute
	p.Room, p.Service, p.DeclineEvery = 60, 5*time.Millisecond, 4 // with so many refused jobs, reading them takes a long pipeline
	return p
}

// audience keeps all that Tell and Show get, and calls first at the first view.
type audience struct {
	mu    sync.Mutex
	told  []string
	seen  []View
	first func()
}

func (a *audience) Tell(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, what)
}

func (a *audience) Show(v View) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen = append(a.seen, v); len(a.seen) == 1 && a.first != nil {
		a.first()
	}
}

func TestTheReckoningHolds(t *testing.T) {
	t.Parallel()
	p, a := short(), &audience{}
	o, err := Run(t.Context(), p, a)
	if err != nil {
		t.Fatal(err)
	}
	r := o.Reckoning
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	want := Reckoning{Lines: 252, Jobs: 240, Duplicate: duplicates, Invalid: len(spoiled), Done: 236, Refused: 59, Replayed: 59, Charged: 236}
	got := Reckoning{Lines: r.Lines, Jobs: r.Jobs, Duplicate: r.Duplicate, Invalid: r.Invalid, Done: r.Done,
		Refused: r.Refused, Replayed: r.Replayed, Charged: r.Charged}
	if got.faultless() != want.faultless() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if r.Parked["expired"] != 4 || len(r.Parked) != 1 {
		t.Errorf("parked at the end: %v, want the 4 that expired", r.Parked)
	}
	if r.Enqueued < p.Room || r.NoRoom == 0 || r.Enqueued+r.NoRoom != r.Jobs {
		t.Errorf("%d enqueued at once and %d parked, want room for some %d of %d", r.Enqueued, r.NoRoom, p.Room, r.Jobs)
	}
	if r.Calls != r.Done+r.Refused+r.Failed || len(o.Calls) != r.Calls {
		t.Errorf("%d calls and %d arrivals: want one a job done, one a refusal, and %d failed", r.Calls, len(o.Calls), r.Failed)
	}
	if len(a.told) != 3 || len(a.seen) < 3 {
		t.Errorf("told %q and showed %d views", a.told, len(a.seen))
	}
}

// faultless returns the totals that the test compares.
func (r Reckoning) faultless() [8]int {
	return [8]int{r.Lines, r.Jobs, r.Duplicate, r.Invalid, r.Done, r.Refused, r.Replayed, r.Charged}
}

func TestInterruptedItStopsInOrder(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	_, err := Run(ctx, short(), &audience{first: interrupt})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was interrupted", err)
	}
}

func TestItDoesNotGoOnForEver(t *testing.T) {
	t.Parallel()
	p := short()
	p.Patience = 50 * time.Millisecond
	_, err := Run(t.Context(), p, &audience{})
	if err == nil || !strings.Contains(err.Error(), "did not end within 50ms") {
		t.Errorf("got %v, want that it took too long", err)
	}
}

// sound returns a reckoning without faults.
func sound() Reckoning {
	return Reckoning{Lines: 12, Jobs: 10, Duplicate: 1, Invalid: 1, Done: 8, Parked: map[string]int{"expired": 2}, Refused: 3, Replayed: 3,
		Charged: 8, MaxInWindow: 100, Limit: "100/s", allows: 100}
}

func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	if r := sound(); len(r.faults()) != 0 {
		t.Fatalf("a sound reckoning has %q", r.faults())
	}
	for want, spoil := range map[string]func(*Reckoning){
		"of 12 lines 11 were accounted for":          func(r *Reckoning) { r.Invalid = 0 },
		"of 10 jobs 9 are done or parked":            func(r *Reckoning) { r.Parked["expired"] = 1 },
		"1 jobs still wait":                          func(r *Reckoning) { r.Waiting = 1 },
		"8 jobs are done and 9 were charged":         func(r *Reckoning) { r.Charged = 9 },
		"1 jobs were charged twice":                  func(r *Reckoning) { r.ChargedTwice = 1 },
		"the provider answered 429 2 times":          func(r *Reckoning) { r.TooMany = 2 },
		"a window saw 101 calls: the limit is 100/s": func(r *Reckoning) { r.MaxInWindow = 101 },
		"of 3 refused jobs 2 were replayed":          func(r *Reckoning) { r.Replayed = 2 },
		"2 jobs are refused again":                   func(r *Reckoning) { r.Parked = map[string]int{"refused": 2} },
	} {
		r := sound()
		spoil(&r)
		r.Faults = r.faults()
		if !slices.Contains(r.Faults, want) {
			t.Errorf("faults %q: want %q", r.Faults, want)
		}
		var text strings.Builder
		if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "WHICH DOES NOT HOLD") || job.CodeOf(r.Err()) != job.CodeFailed {
			t.Errorf("%q is not said: %v, %v\n%s", want, err, r.Err(), text.String())
		}
	}
}

func TestTheTextOfTheReckoning(t *testing.T) {
	t.Parallel()
	r := sound()
	r.Lines, r.Enqueued, r.NoRoom, r.Calls, r.Failed = 2412, 600, 1800, 2450, 24
	r.Rate, r.Utilisation, r.Seconds = 98.7, 99.3, 26.4
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2,412 = 10 jobs + 1 duplicates", "10 = 8 done + 2 parked (2 as expired), and that holds", "room for 600 at once; 1,800 had to wait for room",
		"2,450, of which 24 failed", "100 calls; the limit is 100/s", "98.7/s; over the middle 80 %: 99.3 % of the limit", "26.4"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}

func view(since time.Duration) View {
	return View{Since: since, Jobs: 2400, Done: 1140, Refused: 57, Expired: 12, Rejected: 600, Waiting: 590, InFlight: 3, Calls: 1201,
		Now: 99, Worst: 100, Allowed: 100, Limit: "100/s"}
}

func TestOffATerminalALineNowAndThen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := NewScreen(&out, false)
	s.Tell("It begins.")
	for since := time.Duration(0); since < 5*time.Second; since += lookEvery {
		s.Show(view(since))
	}
	last := view(5 * time.Second)
	last.Waiting, last.InFlight, last.Rejected = 0, 0, 0
	s.Show(last)
	s.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || strings.Contains(out.String(), "\x1b") {
		t.Fatalf("want what was told and lines at 0, 2, 4 and 5 s, got\n%s", out.String())
	}
	if want := "  2.0s  done 1140  queued 590  waiting for room 600  in flight 3  parked: refused 57, expired 12  calls 1201  in the last window 99/100  429s 0"; lines[2] != want {
		t.Errorf("got  %q\nwant %q", lines[2], want)
	}
}

func TestOnATerminalItIsDrawnOver(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := NewScreen(&out, true)
	s.Show(view(time.Second))
	if got := strings.Count(out.String(), "\n"); got != 5 {
		t.Fatalf("%d lines, want 5:\n%s", got, out.String())
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if n := len([]rune(line)); n > 79 {
			t.Errorf("%d characters are too many for a terminal: %s", n, line)
		}
	}
	const up = "\r\x1b[5A\x1b[J"
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"a second view", func() { s.Show(view(2 * time.Second)) }},
		{"a log line", func() { slog.New(slog.NewTextHandler(s, nil)).Warn("late"); s.Show(view(3 * time.Second)) }},
		{"a chapter", func() { s.Tell("Now this."); s.Show(view(4 * time.Second)) }},
		{"the end", func() { s.Close() }},
	} {
		out.Reset()
		c.do()
		if !strings.HasPrefix(out.String(), up) || strings.Count(out.String(), up) != 1 {
			t.Errorf("%s does not draw over what was there once:\n%q", c.what, out.String())
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 2400: "2,400", 1234567: "1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestThePictureIsWellFormed(t *testing.T) {
	t.Parallel()
	o := Outcome{Limit: provider.Limit{N: 10, Window: time.Second}}
	for _, calls := range []int{0, 1, 40} {
		o.Calls = nil
		for n := range calls {
			o.Calls = append(o.Calls, provider.CallLine{At: 1_700_000_000_000_000 + int64(n)*101_000})
		}
		svg := string(Picture(o))
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%d calls: %v", calls, err)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%d calls: the picture has places that are none", calls)
		}
	}
	if svg := string(Picture(o)); !strings.Contains(svg, "40 calls at the provider: never more than 10 in any window of 1s") {
		t.Error("the picture does not say what it shows")
	}
}
