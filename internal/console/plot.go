package console

import (
	"fmt"
	"math"
	"strings"
	"time"

	"spillway/internal/config"
)

// The plot's size in its own units; the stylesheet says how large it is drawn.
const (
	plotWide = 240
	plotHigh = 48
)

// plot is the rate of the last minutes as a small picture.
type plot struct {
	Wide, High int
	Line       string  // points of the line
	Area       string  // points of the area under it
	LimitAt    float64 // height of the line of the limit
	Limit      string  // what the limits allow in the long run
	Most       string  // the highest rate seen
	Minutes    string
}

// newPlot draws how many calls ended in each span, oldest first. The limits' line stands at four fifths of the height, unless more
// calls than that were made.
func newPlot(calls []int64, span time.Duration, limits []config.Limit) plot {
	allowed := perSecond(limits)
	rates, most := make([]float64, len(calls)), 0.0
	for i, n := range calls {
		rates[i] = float64(n) / span.Seconds()
		most = max(most, rates[i])
	}
	top := max(allowed, most) * 1.25
	height := func(rate float64) float64 { return plotHigh * (1 - rate/top) }
	var line strings.Builder
	step := float64(plotWide) / float64(max(len(rates)-1, 1))
	for i, rate := range rates {
		fmt.Fprintf(&line, "%.1f,%.1f ", float64(i)*step, height(rate))
	}
	p := plot{Wide: plotWide, High: plotHigh, Line: strings.TrimSpace(line.String()), LimitAt: height(allowed),
		Limit: rateText(allowed), Most: rateText(most), Minutes: short(time.Duration(len(calls)) * span)}
	p.Area = fmt.Sprintf("0,%d %s %d,%d", plotHigh, p.Line, plotWide, plotHigh)
	return p
}

// rateText is a rate a second, or a minute, an hour or a day where that is easier to read.
func rateText(perSecond float64) string {
	for _, in := range []struct {
		unit    string
		seconds float64
	}{{"s", 1}, {"min", 60}, {"h", 3600}} {
		if n := perSecond * in.seconds; n >= 1 || perSecond == 0 {
			return trimmed(n) + "/" + in.unit
		}
	}
	return trimmed(perSecond*86400) + "/d"
}

func trimmed(n float64) string {
	if n >= 100 {
		return grouped(fmt.Sprintf("%.0f", n))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0")
}

// perSecond is the most that limits allow in the long run, in calls a second.
func perSecond(limits []config.Limit) float64 {
	rate := math.Inf(1)
	for _, l := range limits {
		rate = min(rate, float64(l.N)/l.Window.Seconds())
	}
	return rate
}
