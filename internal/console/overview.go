package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// glance is one gateway as its row and the head of its page show it.
type glance struct {
	desk.Status
	Name   string
	Limits string
	// Door is admission's limits, where they are the bottleneck; empty else.
	Door    string
	Plot    plot
	Reasons []reasonCount
	Dead    job.Totals // of Reasons
	Sums    string     // of the dead letters, in words; empty where no money is known of
	State   state
	ETA     time.Duration
	HasETA  bool
}

// reasonCount is how many dead letters there are for one reason.
type reasonCount struct {
	Reason job.Reason
	Jobs   int64
}

// state is what a gateway does, in a word, with the why.
type state struct {
	Word string // running, idle, unserved, paused, stopped, held, probing, denied or down
	Why  string
	// Until is when a hold ends; zero if nobody knows, or nothing is held.
	Until time.Time
	// Tried is when a call goes ahead to see whether a hold is over whose end nobody knows; zero else.
	Tried time.Time
}

func newGlance(s desk.Status, calls []int64) glance {
	v := glance{Status: s, Name: s.Gateway, Limits: strings.Join(s.Limits, " "), Dead: s.Dead(),
		State: stateOf(s), ETA: s.Glance.ETA, HasETA: s.ETASeconds != nil}
	if s.Bottleneck == dispatch.BottleneckAdmission {
		v.Door = strings.Join(s.Admission, " ")
	}
	v.Plot = newPlot(calls, ledger.CallSpan, s.Glance.Limits)
	v.Sums = v.Dead.Money()
	for _, r := range job.DeadReasons() {
		if n := s.Parked[string(r)]; n > 0 {
			v.Reasons = append(v.Reasons, reasonCount{r, n})
		}
	}
	return v
}

func stateOf(s desk.Status) state {
	h := s.Glance.Hold
	switch word := s.Word(); word {
	case desk.Stopped, desk.Paused:
		return state{Word: word, Why: h.PauseWhy}
	case desk.Denied:
		return state{Word: word, Why: dispatch.Cause(h), Tried: h.HeldUntil}
	case desk.Open:
		return state{Word: "down", Why: h.Reason, Tried: h.HeldUntil}
	case desk.Held:
		if h.Endless {
			return state{Word: word, Why: h.Reason, Tried: h.HeldUntil}
		}
		return state{Word: word, Why: h.Reason, Until: h.HeldUntil}
	case desk.Probing:
		return state{Word: word, Why: h.Reason}
	case desk.Unserved:
		return state{Word: word, Why: s.Glance.Stopped}
	}
	if s.Queued+s.InFlight == 0 && s.Rate1m == 0 {
		return state{Word: "idle"}
	}
	return state{Word: "running"}
}

type overviewView struct {
	base
	Rows []glance
	// Unlisted are the gateways with jobs that the file does not have.
	Unlisted []desk.Unlisted
	Now      time.Time
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request) error {
	all, err := c.desk().Watch(r.Context())
	if err != nil {
		return err
	}
	rows := make([]glance, len(all))
	for i, one := range all {
		rows[i] = newGlance(one.Status, one.Calls)
	}
	unlisted, err := c.unlisted(r.Context())
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "overview.html", &overviewView{base: base{Title: "Gateways", Live: true}, Rows: rows, Unlisted: unlisted, Now: time.Now()})
	return nil
}

// unlisted returns the gateways with jobs that the file does not have.
func (c *Console) unlisted(ctx context.Context) ([]desk.Unlisted, error) {
	if c.cfg.Listed == nil {
		return nil, nil
	}
	return desk.UnlistedOf(ctx, c.cfg.Redis, c.cfg.Listed())
}
