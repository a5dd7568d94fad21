package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
)

// hoursPlot is a small chart of the calls of each hour.
type hoursPlot struct {
	Wide, High int
	Bars       []hourBar
	Says       string
}

// hourBar is one hour: successful calls below the others.
type hourBar struct {
	At, Wide              float64
	Top, Mid, Done, Other float64 // top of the bar for other calls, top of the one for successful calls, and their heights
	Title                 string
}

// newHoursPlot draws the hours in order.
func newHoursPlot(h desk.CallHistory) hoursPlot {
	p := hoursPlot{Wide: plotWide, High: plotHigh}
	var most int64
	for _, r := range h.Rows {
		most = max(most, r.Calls)
	}
	step := float64(plotWide) / float64(max(len(h.Rows), 1))
	for i, r := range h.Rows {
		b := hourBar{At: float64(i)*step + step*0.1, Wide: step * 0.8, Top: plotHigh, Mid: plotHigh, Title: job.Clock(*r.Hour) + ": " + callsText(r)}
		if most > 0 {
			unit := float64(plotHigh) / float64(most)
			b.Done, b.Other = float64(r.Done())*unit, float64(r.Calls-r.Done())*unit
			b.Mid = plotHigh - b.Done
			b.Top = b.Mid - b.Other
		}
		p.Bars = append(p.Bars, b)
	}
	p.Says = fmt.Sprintf("Calls by the hour since %s: %s; %s in the busiest hour", job.Clock(h.Since), callsText(h.All), job.CountText(most))
	return p
}

func callsText(r desk.CallsRow) string {
	return fmt.Sprintf("%s calls, %s of them done", job.CountText(r.Calls), job.CountText(r.Done()))
}

// hourly is the calls of the last hours for display.
type hourly struct {
	History desk.CallHistory
	Hours   hoursPlot
}

// Recent returns the hours with calls, newest first.
func (h hourly) Recent() (rows []desk.CallsRow) {
	for i := len(h.History.Rows) - 1; i >= 0; i-- {
		if h.History.Rows[i].Calls > 0 {
			rows = append(rows, h.History.Rows[i])
		}
	}
	return rows
}

// calledShown is how many gateways the page of hours lists.
const calledShown = 50

type hoursView struct {
	base
	hourly
	Called []desk.CallsRow // the gateways called most
	More   int             // number of others called
}

func (c *Console) hours(w http.ResponseWriter, r *http.Request) error {
	d, ctx := c.desk(r.Context()), r.Context()
	by, err := d.CallHistory(ctx, time.Time{}, desk.ByGateway)
	if err != nil {
		return err
	}
	v := &hoursView{base: base{Title: "Hours", Live: true}, Called: by.Rows}
	if v.More = len(by.Rows) - calledShown; v.More > 0 {
		v.Called = by.Rows[:calledShown]
	}
	if v.hourly, err = hoursOf(r, d); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "hours.html", v)
	return nil
}

// hoursOf returns the hours of a desk's gateways together.
func hoursOf(r *http.Request, d *desk.Desk) (hourly, error) {
	h, err := d.CallHistory(r.Context(), time.Time{}, desk.ByHour)
	return hourly{h, newHoursPlot(h)}, err
}

// The plot's size in its own units; the stylesheet says how large it is drawn.
const (
	plotWide = 240
	plotHigh = 48
)

// plot is a small chart of the rate of the last minutes.
type plot struct {
	Wide, High int
	Line       string  // points of the line
	Area       string  // points of the area under it
	LimitAt    float64 // height of the line of the limit
	Limit      string  // the limit that binds, in words
	Most       string  // the highest rate seen
	Still      bool    // there were no calls
	Minutes    string
}

// newPlot draws how many calls ended in each span, oldest first. The line is the limit that binds, at four
// fifths of the height unless more calls than that were made.
func newPlot(calls []int64, span time.Duration, limits []job.Limit) plot {
	bound := binding(calls, span, limits)
	allowed := bound.PerSecond()
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
		Limit: bound.String(), Most: rateText(most), Still: most == 0, Minutes: short(time.Duration(len(calls)) * span)}
	p.Area = fmt.Sprintf("0,%d %s %d,%d", plotHigh, p.Line, plotWide, plotHigh)
	return p
}

// rateText formats a rate a second, or a minute, hour or day if that is easier to read.
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

// binding returns the limit that determines the next calls: the tightest of those within a span, until the
// calls have used up a longer one. A window longer than the chart is ignored, unless there is no other.
func binding(calls []int64, span time.Duration, limits []job.Limit) job.Limit {
	bound := slices.MinFunc(limits, func(a, b job.Limit) int { return cmp.Compare(a.Window, b.Window) })
	for _, l := range limits {
		spans := int(l.Window / span)
		full := spans <= len(calls) && sum(calls[max(len(calls)-spans, 0):])*100 >= l.N*usedUp
		if l.PerSecond() < bound.PerSecond() && (l.Window <= span || full) {
			bound = l
		}
	}
	return bound
}

// usedUp is the percentage of a limit at which it counts as used up: the current span is not counted yet.
const usedUp = 95

func sum(all []int64) (n int64) {
	for _, one := range all {
		n += one
	}
	return n
}
