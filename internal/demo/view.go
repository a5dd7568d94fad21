package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/job"
	"spillway/internal/provider"
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

// The dimensions of the picture, in its own units. Its two panels share the time axis.
const (
	pictureWidth, pictureHeight = 860, 360
	left, right                 = 60, 20
	upperTop, upperBottom       = 50, 210
	lowerTop, lowerBottom       = 250, 320
	bucket                      = 100 * time.Millisecond
	sampleEvery                 = 20 * time.Millisecond
)

// panel maps values to the picture.
type panel struct {
	top, bottom float64
	most        float64       // the value at the top
	span        time.Duration // of the time axis
}

func (p panel) x(t time.Duration) float64 {
	return left + float64(t)/float64(p.span)*(pictureWidth-left-right)
}

func (p panel) y(v float64) float64 { return p.bottom - v/p.most*(p.bottom-p.top) }

// Picture draws the calls that reached the provider, as an SVG document. The upper panel has the calls in the rolling window, and
// the limit. The lower panel has the calls in each tenth of a second.
func Picture(o Outcome) []byte {
	times := sinceFirst(o.Calls)
	span := bucket
	if len(times) > 0 {
		span = times[len(times)-1] + bucket
	}
	tenths := perBucket(times, span)
	upper := panel{upperTop, upperBottom, 1.05 * float64(o.Limit.N), span}
	lower := panel{lowerTop, lowerBottom, float64(largest(tenths)), span}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n", pictureWidth, pictureHeight)
	fmt.Fprintf(&b, `<title>%d calls at the provider: never more than %d in any window of %s</title>`+"\n", len(times), rollingMost(times, o.Limit.Window), o.Limit.Window)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", pictureWidth, pictureHeight)
	label(&b, left, upperTop-20, fmt.Sprintf("calls that reached the provider in the last %s, at every moment (limit %s)", o.Limit.Window, o.Limit))
	upper.axis(&b, 0, float64(o.Limit.N)/2, float64(o.Limit.N))
	fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#c0392b" stroke-dasharray="6 4"/>`+"\n",
		left, pictureWidth-right, upper.y(float64(o.Limit.N)), upper.y(float64(o.Limit.N)))
	fmt.Fprintf(&b, `<polyline fill="none" stroke="#1f5fa8" stroke-width="1.5" points="%s"/>`+"\n", upper.line(rolling(times, o.Limit, span)))
	label(&b, left, lowerTop-12, "calls in each tenth of a second")
	lower.axis(&b, 0, float64(largest(tenths)))
	lower.bars(&b, tenths)
	lower.seconds(&b)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func sinceFirst(calls []provider.CallLine) []time.Duration {
	times := make([]time.Duration, len(calls))
	for i, c := range calls {
		times[i] = time.Duration(c.At-calls[0].At) * time.Microsecond
	}
	return times
}

func perBucket(times []time.Duration, span time.Duration) []int {
	counts := make([]int, span/bucket+1)
	for _, t := range times {
		counts[t/bucket]++
	}
	return counts
}

// rolling counts, at every sample, the calls in the window that ends there.
func rolling(times []time.Duration, l provider.Limit, span time.Duration) []int {
	var counts []int
	from, to := 0, 0
	for at := time.Duration(0); at <= span; at += sampleEvery {
		for to < len(times) && times[to] <= at {
			to++
		}
		for from < to && times[from] <= at-l.Window {
			from++
		}
		counts = append(counts, to-from)
	}
	return counts
}

func rollingMost(times []time.Duration, window time.Duration) int {
	most, from := 0, 0
	for i, t := range times {
		for t-times[from] >= window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

func largest(counts []int) int {
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	return most
}

func label(b *bytes.Buffer, x, y float64, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="#333333">%s</text>`+"\n", x, y, text)
}

// axis draws a line for each value, and the value at the side.
func (p panel) axis(b *bytes.Buffer, values ...float64) {
	for _, v := range values {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#e0e0e0"/>`, left, pictureWidth-right, p.y(v), p.y(v))
		fmt.Fprintf(b, `<text x="%d" y="%.1f" fill="#333333" text-anchor="end">%.0f</text>`+"\n", left-8, p.y(v)+4, v)
	}
}

func (p panel) line(counts []int) string {
	points := make([]string, len(counts))
	for i, n := range counts {
		points[i] = fmt.Sprintf("%.1f,%.1f", p.x(time.Duration(i)*sampleEvery), p.y(float64(n)))
	}
	return strings.Join(points, " ")
}

func (p panel) bars(b *bytes.Buffer, counts []int) {
	width := (p.x(bucket) - p.x(0)) * 0.8
	b.WriteString(`<path fill="#7fa8d4" d="`)
	for i, n := range counts {
		if n > 0 {
			top := p.y(float64(n))
			fmt.Fprintf(b, "M%.1f %.1fv%.1fh%.1fv%.1fz", p.x(time.Duration(i)*bucket), p.bottom, top-p.bottom, width, p.bottom-top)
		}
	}
	b.WriteString(`"/>` + "\n")
}

// seconds labels the time axis, in steps that leave room for the numbers.
func (p panel) seconds(b *bytes.Buffer) {
	step := max(1, math.Ceil(p.span.Seconds()/15))
	for at := 0.0; at <= p.span.Seconds(); at += step {
		x := p.x(time.Duration(at * float64(time.Second)))
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="#333333" text-anchor="middle">%.0f s</text>`+"\n", x, p.bottom+18, at)
	}
}
