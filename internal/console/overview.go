package console

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// glance is one gateway as its row and the head of its page show it.
type glance struct {
	dispatch.Glance
	Name   string
	Limits string
	// Door is admission's limits, where they are the bottleneck; empty else.
	Door   string
	Plot   plot
	Parked []heap
	Total  int64  // parked, for whatever reason
	Money  string // of all that is parked, in words; empty where none is known of
	Status status
	HasETA bool
}

// heap is the jobs parked for one reason.
type heap struct {
	Reason job.Reason
	Jobs   int64
}

// status is what a gateway does, in a word, with the why.
type status struct {
	Word string // running, idle, unserved, paused, stopped, held, probing, denied or down
	Why  string
	// Until is when a hold ends; zero if nobody knows, or nothing is held.
	Until time.Time
	// Tried is when a call goes ahead to see whether a hold is over whose end nobody knows; zero else.
	Tried time.Time
}

func newGlance(g config.Gateway, v dispatch.Glance, calls []int64, money map[job.Reason]ledger.Sums) glance {
	all := glance{Glance: v, Name: g.Name, Limits: limitText(v.Limits), HasETA: v.ETA >= 0, Status: statusOfGateway(v)}
	if v.Bottleneck() == dispatch.BottleneckAdmission {
		all.Door = limitText(v.Admission)
	}
	all.Plot = newPlot(calls, ledger.CallSpan, v.Limits)
	for _, r := range job.Reasons() {
		if n := v.Parked[r]; n > 0 {
			all.Parked = append(all.Parked, heap{r, n})
			all.Total += n
		}
	}
	var sums ledger.Sums
	for _, s := range money {
		sums.Add(s)
	}
	all.Money = job.MoneyText(sums.Money, int(sums.Unread))
	return all
}

func statusOfGateway(v dispatch.Glance) status {
	held := v.Hold.HeldUntil.After(v.Now)
	switch {
	case v.Hold.Barred:
		return status{Word: "stopped", Why: v.Hold.PauseWhy}
	case v.Hold.Paused:
		return status{Word: "paused", Why: v.Hold.PauseWhy}
	case v.Hold.Denied:
		return status{Word: "denied", Why: dispatch.Cause(v.Hold), Tried: v.Hold.HeldUntil}
	case v.Hold.Circuit:
		return status{Word: "down", Why: v.Hold.Reason, Tried: v.Hold.HeldUntil}
	case v.Hold.Endless:
		return status{Word: "held", Why: v.Hold.Reason, Tried: v.Hold.HeldUntil}
	case held:
		return status{Word: "held", Why: v.Hold.Reason, Until: v.Hold.HeldUntil}
	case v.Hold.Probing:
		return status{Word: "probing", Why: v.Hold.Reason}
	case v.Stopped != "":
		return status{Word: "unserved", Why: v.Stopped}
	case v.Queued+v.InFlight == 0 && v.Rate == 0:
		return status{Word: "idle"}
	}
	return status{Word: "running"}
}

func limitText(limits []config.Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, " ")
}

type overviewView struct {
	base
	Rows []glance
	Now  time.Time
}

// looksAtOnce bounds how many gateways one page asks about side by side.
const looksAtOnce = 8

func (c *Console) overview(w http.ResponseWriter, r *http.Request) error {
	gateways := c.gateways()
	rows := make([]glance, len(gateways))
	errs := make([]error, len(rows))
	turns := make(chan struct{}, looksAtOnce)
	var all sync.WaitGroup
	for i, g := range gateways {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			rows[i], errs[i] = c.look(r.Context(), g)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("look at %s: %w", gateways[i].Name, err)
		}
	}
	c.show(w, r, http.StatusOK, "overview.html", &overviewView{base: base{Title: "Gateways", Live: true}, Rows: rows, Now: time.Now()})
	return nil
}
