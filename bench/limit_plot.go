package main

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	strict "spillway/internal/provider"
)

// The picture's measures, in its own units. The panels stand one below the other, on the same axes.
const (
	limitWidth, limitLeft, limitRight = 860, 44, 12
	limitTop                          = 34 // of the first panel's title
	limitTitle, limitHeight, limitGap = 18, 62, 14
	limitPoints                       = 600          // of a line over the whole time
	limitMost                         = 2.5 * limitN // calls at the top of a panel; what is above is cut off
	limitWindow                       = time.Second  // of the provider
	acceptedColour, refusedColour     = "#5b8fc9", "#d9534f"
)

// limitPanel maps a panel's values to the picture.
type limitPanel struct {
	top, span float64 // span is the seconds of the time axis
}

func (p limitPanel) x(seconds float64) float64 {
	return limitLeft + seconds/p.span*(limitWidth-limitLeft-limitRight)
}

func (p limitPanel) y(calls float64) float64 {
	return p.top + limitTitle + limitHeight*(1-min(calls, limitMost)/limitMost)
}

// plotLimit draws for every contender, at every moment, the calls that reached the provider in the last second: those that it accepted,
// and on top of them those that it answered 429.
func plotLimit(all []finish) []byte {
	var b bytes.Buffer
	span := 1.0
	for _, f := range all {
		span = max(span, sinceFirst(f.calls, len(f.calls)-1)+limitWindow.Seconds())
	}
	height := limitTop + len(all)*(limitTitle+limitHeight+limitGap) + 12
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#333333" role="img">`+"\n", limitWidth, height)
	fmt.Fprintf(&b, "<title>calls that reached the provider in the last second, for every way to keep its limit</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", limitWidth, height)
	limitLegend(&b)
	for i, f := range all {
		p := limitPanel{top: float64(limitTop + i*(limitTitle+limitHeight+limitGap)), span: span}
		p.draw(&b, f)
		if i == len(all)-1 {
			p.seconds(&b)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func limitLegend(b *bytes.Buffer) {
	fmt.Fprintf(b, `<text x="%d" y="18">calls that reached the provider in the last second:</text>`, limitLeft)
	fmt.Fprintf(b, `<rect x="340" y="8" width="12" height="12" fill="%s"/><text x="357" y="18">accepted</text>`, acceptedColour)
	fmt.Fprintf(b, `<rect x="430" y="8" width="12" height="12" fill="%s"/><text x="447" y="18">answered 429</text>`, refusedColour)
	fmt.Fprintf(b, `<path d="M545 14h24" stroke="#333333" stroke-dasharray="4 3"/><text x="575" y="18">the limit, %d</text>`+"\n", limitN)
}

// draw draws one panel.
func (p limitPanel) draw(b *bytes.Buffer, f finish) {
	weight := ""
	if f.ours {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(b, `<text x="%d" y="%.0f"%s>%s</text>`, limitLeft, p.top+12, weight, f.name)
	fmt.Fprintf(b, `<text x="%d" y="%.0f" text-anchor="end"%s>%.1f %% of the allowed rate, %d × 429, fullest second %d</text>`+"\n",
		limitWidth-limitRight, p.top+12, weight, f.share(), f.stats.TooMany, f.fullest())
	step := p.span / limitPoints
	accepted, arrived := lastSecond(f.calls, step)
	p.area(b, arrived, step, refusedColour)
	p.area(b, accepted, step, acceptedColour)
	p.axis(b)
}

// axis draws the base line, the limit and the marks of the time axis.
func (p limitPanel) axis(b *bytes.Buffer) {
	right := limitWidth - limitRight
	for at := 0.0; at <= p.span; at += p.tick() {
		fmt.Fprintf(b, `<path d="M%.1f %.1fv4" stroke="#999999"/>`, p.x(at), p.y(0))
	}
	fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#999999"/>`, limitLeft, p.y(0), right)
	fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#333333" stroke-dasharray="4 3"/>`, limitLeft, p.y(limitN), right)
	for _, calls := range []float64{0, limitN, 2 * limitN} {
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`, limitLeft-6, p.y(calls)+4, calls)
	}
	b.WriteString("\n")
}

// area fills what is below the counts, up to the last moment at which there was a call.
func (p limitPanel) area(b *bytes.Buffer, counts []int, step float64, colour string) {
	var d strings.Builder
	fmt.Fprintf(&d, "M%d %.1f", limitLeft, p.y(0))
	for i, n := range counts {
		fmt.Fprintf(&d, "L%.1f %.1f", p.x(float64(i)*step), p.y(float64(n)))
	}
	fmt.Fprintf(&d, "V%.1fz", p.y(0))
	fmt.Fprintf(b, `<path fill="%s" d="%s"/>`+"\n", colour, d.String())
}

// tick is the seconds from one number below the time axis to the next, which leave room for them.
func (p limitPanel) tick() float64 { return 10 * max(1, math.Ceil(p.span/150)) }

// seconds labels the time axis below the panel.
func (p limitPanel) seconds(b *bytes.Buffer) {
	for at := 0.0; at <= p.span; at += p.tick() {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%.0f s</text>`, p.x(at), p.y(0)+16, at)
	}
	b.WriteString("\n")
}

// sinceFirst is the moment of a call, in seconds after the first one.
func sinceFirst(calls []strict.CallLine, i int) float64 {
	if len(calls) == 0 {
		return 0
	}
	return float64(calls[i].At-calls[0].At) / 1e6
}

// lastSecond counts at every step the calls of the second before, those that were accepted and all that arrived.
func lastSecond(calls []strict.CallLine, step float64) (accepted, arrived []int) {
	from, to, good := 0, 0, 0
	ok := func(i int) int {
		if calls[i].Status == http.StatusTooManyRequests {
			return 0
		}
		return 1
	}
	for at := 0.0; from < len(calls); at += step {
		for ; to < len(calls) && sinceFirst(calls, to) <= at; to++ {
			good += ok(to)
		}
		for ; from < to && sinceFirst(calls, from) <= at-limitWindow.Seconds(); from++ {
			good -= ok(from)
		}
		accepted, arrived = append(accepted, good), append(arrived, to-from)
	}
	return accepted, arrived
}
