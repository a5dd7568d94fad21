package demo

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/job"
)

// View is the state at one moment.
type View struct {
	Since    time.Duration // since the start
	Jobs     int           // accepted
	Done     int
	Refused  int // parked as refused
	Expired  int
	Rejected int // parked because there was no room; they go in by themselves
	Waiting  int // queued, scheduled, or waiting out a back-off
	InFlight int
	Calls    int
	TooMany  int
	Now      int // calls in the window that ends now
	Worst    int // the most calls in any window
	Allowed  int // calls in a window
	Limit    string
}

// look returns the present view.
func (s *stage) look(ctx context.Context, jobs int) (View, error) {
	at, err := s.books.Look(ctx)
	if err != nil {
		return View{}, err
	}
	seen := s.strict.Stats()
	v := View{Since: time.Since(s.begun), Jobs: jobs, Done: int(at.Done), Refused: int(at.Parked[job.Refused]),
		Expired: int(at.Parked[job.Expired]), Rejected: int(at.Parked[job.Rejected]),
		Waiting: int(at.Queued + at.Scheduled + at.Retrying + at.Pending), InFlight: int(at.InFlight),
		Calls: seen.Calls, TooMany: seen.TooMany, Worst: seen.MaxInWindow[0], Allowed: s.p.Limit.N, Limit: s.p.Limit.String()}
	from := time.Now().Add(-s.p.Limit.Window).UnixMicro()
	calls := s.strict.Calls()
	for i := len(calls) - 1; i >= 0 && calls[i].At > from; i-- {
		v.Now++
	}
	return v, nil
}

// Screen is a Watcher for people. On a terminal it redraws a few lines in place; elsewhere it writes a line every two seconds.
// Text that is written to it, such as a log, appears above these lines. It is safe for concurrent use.
type Screen struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	lines int // lines on the terminal that the next view replaces
	shown time.Duration
}

// NewScreen returns a screen on out.
func NewScreen(out io.Writer, terminal bool) *Screen {
	return &Screen{out: out, terminal: terminal, shown: -lineEvery}
}

// lineEvery is the time between two lines if the output is no terminal.
const lineEvery = 2 * time.Second

// Tell writes a text above the lines.
func (s *Screen) Tell(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprintln(s.out, what)
	s.shown = -lineEvery
}

// Write implements io.Writer: it writes the text above the lines.
func (s *Screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	return s.out.Write(text)
}

// Show redraws the lines. Off a terminal it writes a line if the last one is two seconds old, or if all jobs are over.
func (s *Screen) Show(v View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		text := v.lines()
		s.wipe()
		fmt.Fprint(s.out, text)
		s.lines = strings.Count(text, "\n")
		return
	}
	if v.Since-s.shown >= lineEvery || v.Waiting+v.Rejected+v.InFlight == 0 {
		s.shown = v.Since
		fmt.Fprintln(s.out, v.line())
	}
}

// Close removes the lines from the terminal.
func (s *Screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
}

func (s *Screen) wipe() {
	if s.lines > 0 {
		fmt.Fprintf(s.out, "\r\x1b[%dA\x1b[J", s.lines)
	}
	s.lines = 0
}

func (v View) line() string {
	return fmt.Sprintf("%5.1fs  done %d  queued %d  waiting for room %d  in flight %d  parked: refused %d, expired %d  calls %d  in the last window %d/%d  429s %d",
		v.Since.Seconds(), v.Done, v.Waiting, v.Rejected, v.InFlight, v.Refused, v.Expired, v.Calls, v.Now, v.Allowed, v.TooMany)
}

const barWidth = 40

func (v View) lines() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	row("done", "%s %s of %s  %.1fs", bar(v.Done, v.Jobs), number(v.Done), number(v.Jobs), v.Since.Seconds())
	row("calls/"+window(v.Limit), "%s %d of %d, at most %d", bar(v.Now, v.Allowed), v.Now, v.Allowed, v.Worst)
	row("waiting", "%s in the queue, %d in flight, %s waiting for room", number(v.Waiting), v.InFlight, number(v.Rejected))
	row("parked", "%d refused, %d expired", v.Refused, v.Expired)
	row("provider", "%s calls, %d answered 429", number(v.Calls), v.TooMany)
	return b.String()
}

func window(limit string) string {
	_, w, _ := strings.Cut(limit, "/")
	return w
}

func bar(n, of int) string {
	full := 0
	if of > 0 {
		full = min(n*barWidth/of, barWidth)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

// number formats a number with commas between thousands: 2,400.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
