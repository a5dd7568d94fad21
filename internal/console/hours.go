package console

import (
	"fmt"
	"net/http"
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
