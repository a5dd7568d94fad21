package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/doctor"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// glance is one gateway in its row and at the head of its page.
type glance struct {
	desk.Status
	Name   string
	Limits string
	// Door is admission's limits, if they are the bottleneck; else empty.
	Door    string
	Plot    plot
	Reasons []reasonCount
	Dead    job.Totals // of Reasons
	Sums    string     // of the dead letters, in words; empty if no money is known
	State   state
	ETA     time.Duration
	HasETA  bool
}

// reasonCount is the number of dead letters for one reason.
type reasonCount struct {
	Reason job.Reason
	Jobs   int64
}

// state is a gateway's state as a word, with the reason.
type state struct {
	Word string // running, idle, unserved, paused, stopped, held, probing, denied or down
	Why  string
	// Until is when a hold ends; zero if unknown, or if nothing is held.
	Until time.Time
	// Tried is when a probe is sent, for a hold with an unknown end; else zero.
	Tried time.Time
	// Runbook is the section of the runbook that says what to do; empty if nothing holds the calls back.
	Runbook string
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
	word, h := s.Word(), s.Glance.Hold
	v := state{Word: word, Why: h.Reason}
	switch word {
	case desk.Stopped, desk.Paused:
		v.Why = h.PauseWhy
	case desk.Denied:
		v.Why, v.Tried = dispatch.Cause(h), h.HeldUntil
	case desk.Open:
		v.Word, v.Tried = "down", h.HeldUntil
	case desk.Held:
		if v.Until = h.HeldUntil; h.Endless {
			v.Until, v.Tried = time.Time{}, h.HeldUntil
		}
	case desk.Unserved:
		v.Why = s.Glance.Stopped
	case "":
		if s.Queued+s.InFlight == 0 && s.Rate1m == 0 {
			return state{Word: "idle"}
		}
		return state{Word: "running"}
	}
	v.Runbook = runbookLink(desk.RunbookOf(word))
	return v
}

type overviewView struct {
	base
	Needs []needRow
	More  int // number of needs not shown
	gatewayList
	// Elsewhere are the gateways with jobs in another configuration: no action is needed.
	Elsewhere []desk.Unlisted
	// Damaged is what is wrong with gateways that can't be read; empty: nothing.
	Damaged string
}

// needRow is a need in its row.
type needRow struct {
	desk.NeedGroup
	Link  string // the page on which to act; empty: none
	Sums  string // the money, in words
	Since time.Time
}

// needsShown is how many needs the page starts with; the rest is shown on request.
const needsShown = 20

func (c *Console) overview(w http.ResponseWriter, r *http.Request) error {
	d, ctx, q := c.desk(r.Context()), r.Context(), r.URL.Query()
	var beside sync.WaitGroup
	var unlisted []desk.Unlisted
	var err, errRows error
	beside.Go(func() { unlisted, err = c.unlisted(ctx) })
	all, damaged := d.StatusOfWell(ctx)
	beside.Wait()
	if damaged != nil && len(all) == 0 {
		return damaged
	}
	if err != nil {
		return err
	}
	v := &overviewView{base: base{Title: "Gateways", Live: true}, gatewayList: listOf(all, q)}
	beside.Go(func() { v.Rows, errRows = glances(ctx, d, v.shown) })
	needs, unseen, err := d.Needs(ctx, all, unlisted)
	beside.Wait()
	if err = cmp.Or(err, errRows); err != nil {
		return err
	}
	if damaged = desk.AlsoDamaged(damaged, unseen); damaged != nil {
		v.Damaged = damaged.Error()
	}
	v.need(needs, q.Get("needs") == "all")
	for _, u := range unlisted {
		if !u.NeedsPerson() {
			v.Elsewhere = append(v.Elsewhere, u)
		}
	}
	c.show(w, r, http.StatusOK, "overview.html", v)
	return nil
}

func (v *overviewView) need(needs []desk.Need, all bool) {
	groups := desk.GroupNeeds(needs)
	if !all && len(groups) > needsShown {
		v.More = len(groups) - needsShown
		groups = groups[:needsShown]
	}
	for _, n := range groups {
		row := needRow{NeedGroup: n, Link: needLink(n.Need), Sums: n.Money()}
		if n.Several() {
			row.Link = groupLink(n.Kind)
		}
		if n.Since != nil {
			row.Since = *n.Since
		}
		v.Needs = append(v.Needs, row)
	}
}

// needLink returns the page on which to act; empty if there is none.
func needLink(n desk.Need) string {
	switch n.Kind {
	case desk.NeedUnlisted:
		return ""
	case desk.NeedBatch:
		return batchLink(n.Batch, nil)
	}
	if slices.Contains(job.DeadReasons(), job.Reason(n.Kind)) {
		return "/gateways/" + n.Gateway + "?reason=" + string(n.Kind) + "#letters"
	}
	return "/gateways/" + n.Gateway
}

// groupLink returns the list of the gateways with a need of that kind.
func groupLink(kind desk.NeedKind) string {
	switch kind {
	case desk.NeedStopped, desk.NeedDenied, desk.NeedUnserved, desk.NeedPaused:
		return "/?state=" + string(kind) + "#gateways"
	case desk.NeedReader:
		return "/?state=stopped#gateways"
	case desk.NeedCircuit:
		return "/?state=down#gateways"
	}
	return "/?sort=parked#gateways"
}

// glances returns the rows of some gateways, with their calls of the last minutes.
func glances(ctx context.Context, d *desk.Desk, some []desk.Status) ([]glance, error) {
	calls, err := d.Calls(ctx, some)
	if err != nil {
		return nil, err
	}
	rows := make([]glance, len(some))
	for i, s := range some {
		rows[i] = newGlance(s, calls[i])
	}
	return rows, nil
}

// unlisted returns the gateways with jobs that are not configured.
func (c *Console) unlisted(ctx context.Context) ([]desk.Unlisted, error) {
	if c.cfg.Listed == nil || whoAsks(ctx).Scoped() {
		return nil, nil
	}
	return desk.UnlistedOf(ctx, c.cfg.Redis, c.cfg.Listed())
}

// examineTime is how long the page waits for an examination. A longer one is shown the next time.
const examineTime = 4 * time.Second

type healthView struct {
	base
	desk.Processes
	// Nobody says that there are no checks.
	Nobody bool
	// Report is the last examination; nil: it is still running.
	Report       *doctor.Examined
	Fails, Warns []doctor.Shown
	Redis        []doctor.Check // passed checks of Redis and of the file as a whole
	Well         int            // number of passed checks of gateways
}

func (c *Console) health(w http.ResponseWriter, r *http.Request) (err error) {
	if err := forAll(r); err != nil {
		return err
	}
	v := &healthView{base: base{Title: "Health", Live: true}, Nobody: c.cfg.Examiner == nil}
	if v.Processes, err = desk.WhoServes(r.Context(), c.cfg.Redis); err != nil {
		return err
	}
	if !v.Nobody {
		ctx, cancel := context.WithTimeout(r.Context(), examineTime)
		defer cancel()
		if v.Report = c.cfg.Examiner.Last(ctx); v.Report != nil {
			v.sort(*v.Report)
		}
	}
	c.show(w, r, http.StatusOK, "health.html", v)
	return nil
}

// sort sorts the results into the sections of the page.
func (v *healthView) sort(of doctor.Examined) {
	v.Fails, v.Warns = doctor.Few(of.Findings(doctor.Fail)), doctor.Few(of.Findings(doctor.Warn))
	for _, ok := range of.Findings(doctor.OK) {
		if ok.Gateway == "" {
			v.Redis = append(v.Redis, ok)
		} else {
			v.Well++
		}
	}
}
