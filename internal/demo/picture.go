package demo

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"spillway/internal/provider"
)

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
