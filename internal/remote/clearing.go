package remote

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// Clearing is an act on parked jobs.
type Clearing struct {
	Filter
	// Action is replay, ask, done, not-done or discard.
	Action string `json:"action"`
	// Rate and Share limit the pace of a replay: 50/s, or 20% of the gateway's limits. Empty: as fast as there is
	// room.
	Rate  string `json:"rate,omitempty"`
	Share string `json:"share,omitempty"`
	// Canary is how many jobs of each gateway go first; 0: all go at once.
	Canary int `json:"canary,omitempty"`
	// ExpiredKeys permits replaying jobs whose idempotency key the gateway has forgotten.
	ExpiredKeys bool `json:"expired_keys,omitempty"`
	// MayBeCharged permits discarding jobs that may have been charged.
	MayBeCharged bool `json:"may_be_charged,omitempty"`
	// Reference is the gateway's own name for the payment, if a single job is resolved as done.
	Reference string `json:"reference,omitempty"`
	// Priority is the new class of replayed jobs. Empty: each keeps its own.
	Priority string `json:"priority,omitempty"`
}

// options parses the action and its options.
func (c Clearing) options() (a desk.Action, o desk.Options, err error) {
	a, known := desk.ActionOf(c.Action)
	switch {
	case !known:
		return a, o, usage("write replay, ask, done, not-done or discard", fmt.Sprintf("there is no action %.40q", c.Action))
	case c.Rate != "" && c.Share != "":
		return a, o, usage("give one of the two", "rate and share both say how fast the jobs go in")
	case c.Canary < 0:
		return a, o, usage("give at least 1, or leave it out to send all at once", "canary is too few")
	case c.Reference != "" && (c.Action != desk.Done.Name || len(c.IDs) != 1):
		return a, o, usage("name the job in ids, with the action done", "reference is of the payment of one job that is done")
	case c.Reference != "" && !desk.GoodReference(c.Reference):
		return a, o, usage("copy it from the gateway: ch_3K…", fmt.Sprintf("reference must be 1 to %d visible ASCII characters without a space", desk.MostReference))
	}
	o = desk.Options{ExpiredKeys: c.ExpiredKeys, MayBeCharged: c.MayBeCharged, Reference: c.Reference, Priority: c.Priority}
	if o.Canary = c.Canary; c.Rate != "" {
		err = o.SetRate(c.Rate, "rate")
	}
	if c.Share != "" {
		err = o.SetShare(c.Share, "share")
	}
	return a, o, err
}

// Preview is what an act on parked jobs would do.
type Preview struct {
	// Token identifies what was previewed: pass it to the act.
	Token  string `json:"token"`
	Action string `json:"action"`
	// Priority is the new class of the jobs. Empty: each keeps its own.
	Priority string `json:"priority,omitempty"`
	job.Totals
	// Would is the jobs that it would take.
	Would job.Totals    `json:"would"`
	Parts []PreviewPart `json:"parts"` // of the gateways with selected jobs
	// Gateways are all gateways selected.
	Gateways []string `json:"gateways"`
	LeftOut

	plan *desk.Plan // set if it was made in this process
}

// PreviewPart is the jobs of one gateway.
type PreviewPart struct {
	*desk.Tally
	PreviewOf
}

// PreviewOf is what an act would do with the jobs of one gateway.
type PreviewOf struct {
	Would job.Totals     `json:"would"`
	Held  map[string]int `json:"held_back_why"`
	// Often is how many of these were replayed often without success.
	Often int `json:"replayed_3_times_or_more"`
	// Halt is why a replay would stop at once; empty if it would not.
	Halt string `json:"would_stop,omitempty"`
	// Second reports whether a second person has to approve it.
	Second bool `json:"needs_approval,omitempty"`
}

// PreviewShown is the JSON form of a PreviewPart, because its Tally has one of its own.
type PreviewShown struct {
	desk.TallyShown
	PreviewOf
}

// Shown returns the JSON form.
func (p PreviewPart) Shown() PreviewShown { return PreviewShown{p.Tally.Shown(), p.PreviewOf} }

// MarshalJSON implements json.Marshaler.
func (p PreviewPart) MarshalJSON() ([]byte, error) { return json.Marshal(p.Shown()) }

// UnmarshalJSON implements json.Unmarshaler.
func (p *PreviewPart) UnmarshalJSON(text []byte) error {
	var s PreviewShown
	err := json.Unmarshal(text, &s)
	*p = PreviewPart{s.Tally(), s.PreviewOf}
	return err
}

// Previewed returns what an act on parked jobs would do, and changes nothing.
var Previewed = &Op[Clearing, None, Preview]{About{Name: "previewDeadLetters", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/dead-letters/preview",
	Commands: []string{"dlq replay", "dlq discard", "dlq resolve"}},
	func(ctx context.Context, h *Here, q Clearing, _ Out[None]) (v Preview, err error) {
		s, err := q.selected(ctx, h, "")
		if err != nil {
			return v, err
		}
		if v, err = q.preview(ctx, s); err == nil {
			v.LeftOut, err = leftOut(ctx, s, v.plan.Missing)
		}
		for _, g := range s.Gateways {
			v.Gateways = append(v.Gateways, g.Name)
		}
		return v, err
	}}

func (c Clearing) preview(ctx context.Context, s *desk.Selection) (v Preview, err error) {
	a, o, err := c.options()
	if err != nil {
		return v, err
	}
	plan, err := s.Plan(ctx, a, o)
	if err != nil {
		return v, err
	}
	v = Preview{Action: a.Name, Priority: o.Priority, Totals: plan.Meant(), Would: plan.Would(), Parts: make([]PreviewPart, len(plan.Parts)), plan: plan}
	for i, b := range plan.Parts {
		v.Parts[i] = PreviewPart{b.Meant, PreviewOf{b.Would, heldBy(b), b.Often, b.Halt, b.NeedsSecond()}}
	}
	if c.Reference != "" && v.Jobs > 1 {
		return v, usage("choose one with -g", fmt.Sprintf("several gateways have parked a job %q", c.IDs[0]))
	}
	v.Token, err = c.token(v)
	return v, err
}

// mark is the content of a token: until when the previewed jobs were parked, by gateway in microseconds, and what
// they and their money were.
type mark struct {
	Until map[string]int64 `json:"u"`
	Sum   string           `json:"s"`
}

func (c Clearing) token(v Preview) (string, error) {
	m := mark{Until: map[string]int64{}}
	for _, b := range v.plan.Parts {
		m.Until[b.Name] = b.Until().UnixMicro()
	}
	what, err := Encode(struct {
		Clearing
		Parts []PreviewPart
	}{c, v.Parts})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(what)
	m.Sum = hex.EncodeToString(sum[:16])
	text, err := Encode(m)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// ClearOf is an act on parked jobs that was previewed.
type ClearOf struct {
	Clearing
	Token string `json:"token"`
	// IfChanged is stop, the default: nothing is done if the jobs have changed since the preview. With go_on, those
	// that have not changed are taken.
	IfChanged string `json:"if_changed,omitempty"`
	Actor

	plan *desk.Plan // set if it was previewed in this process
}

// After returns the act that does what was previewed.
func (c Clearing) After(v Preview, by desk.By) ClearOf {
	return ClearOf{Clearing: c, Token: v.Token, IfChanged: "go_on", Actor: ActorOf(by), plan: v.plan}
}

// Canary is the state of the jobs sent ahead.
type Canary struct {
	Sent    int      `json:"sent"`
	Done    int      `json:"done"`
	Waiting int      `json:"waiting"`
	Later   int      `json:"later"`
	Failed  []string `json:"failed"`
}

// ClearedPart is the progress of an act at one gateway.
type ClearedPart struct {
	Gateway  string         `json:"gateway"`
	Taken    int            `json:"taken"` // replayed, discarded or resolved
	HeldBack int            `json:"held_back"`
	Gone     int            `json:"gone"` // no longer parked in their turn
	Unsure   int            `json:"unsure"`
	Amount   job.Amounts    `json:"amount"`
	NoAmount int64          `json:"without_amount"`
	Held     map[string]int `json:"held_back_why"`
	Canary   *Canary        `json:"canary,omitempty"`
	// Request is the request that was stored instead of acting, because a second person has to approve. Nil if no
	// approval is needed.
	Request *desk.Request `json:"request,omitempty"`
	// Stopped says that it stopped itself: the gateway is held or paused, or one of the jobs sent ahead failed.
	Stopped bool `json:"stopped,omitempty"`
	// Problem is why it stopped early; nil if it did not, or not yet.
	Problem *Fault `json:"problem,omitempty"`
}

// Took returns the jobs taken, with their money.
func (p ClearedPart) Took() job.Totals {
	return job.Totals{Jobs: int64(p.Taken), Amount: p.Amount, NoAmount: p.NoAmount}
}

// Cleared is the result of an act on parked jobs.
type Cleared struct {
	Jobs     int64         `json:"jobs"` // jobs selected
	Taken    int           `json:"taken"`
	HeldBack int           `json:"held_back"`
	Gone     int           `json:"gone"`
	Unsure   int           `json:"unsure"`
	Amount   job.Amounts   `json:"amount"`
	NoAmount int64         `json:"without_amount"`
	Parts    []ClearedPart `json:"parts"`
}

// Unfinished reports that it failed before it took any job: repeating it starts over. If jobs were taken, they are
// no longer as previewed, and this answer says which.
func (v Cleared) Unfinished() bool {
	return v.Taken == 0 && slices.ContainsFunc(v.Parts, func(p ClearedPart) bool { return p.Problem != nil && !p.Stopped && p.Request == nil })
}

// Clear carries out what was previewed.
var Clear = &Op[ClearOf, ClearedPart, Cleared]{About{Name: "clearDeadLetters", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/dead-letters/run", Kind: Long, Act: true,
	Commands: []string{"dlq replay", "dlq discard", "dlq resolve"}}, clearJobs}

func clearJobs(ctx context.Context, h *Here, q ClearOf, out Out[ClearedPart]) (v Cleared, err error) {
	a, _, err := q.options()
	if err != nil {
		return v, err
	}
	verb := ""
	if a.NeedsWhy {
		verb = a.Noun()
	}
	by, err := q.acts(h, verb)
	if err != nil {
		return v, err
	}
	plan := q.plan
	if plan == nil {
		if plan, err = q.again(ctx, h); err != nil {
			return v, err
		}
	}
	errs := plan.Run(ctx, by, h.Traces, func(b *desk.Bulk) { _ = out.line(clearedPart(ctx, b, nil)) }) // if the client has gone, ctx has ended
	v = Cleared{Jobs: plan.Meant().Jobs, Parts: make([]ClearedPart, len(plan.Parts))}
	var took job.Totals
	for i, b := range plan.Parts {
		p := clearedPart(ctx, b, errs[i])
		v.Parts[i] = p
		v.Taken, v.HeldBack, v.Gone, v.Unsure = v.Taken+p.Taken, v.HeldBack+p.HeldBack, v.Gone+p.Gone, v.Unsure+p.Unsure
		took.Add(p.Took())
	}
	v.Amount, v.NoAmount = took.Amount, took.NoAmount
	return v, nil
}

// heldBy returns how many jobs are held back, by reason.
func heldBy(b *desk.Bulk) map[string]int {
	if held := b.Held(); held != nil {
		return held
	}
	return map[string]int{}
}

func clearedPart(ctx context.Context, b *desk.Bulk, err error) ClearedPart {
	far := b.Now()
	p := ClearedPart{Gateway: b.Name, Taken: far.Taken, HeldBack: far.HeldBack, Gone: far.Gone, Unsure: far.Unsure, Amount: far.Took.Amount, NoAmount: far.Took.NoAmount,
		Held: heldBy(b), Request: asked(err), Stopped: desk.Halted(err), Problem: faultOf(ctx, err)}
	if c := far.Canary; c != nil {
		p.Canary = &Canary{c.Sent, c.Done, c.Waiting, c.Later, append([]string{}, c.Failed...)}
	}
	if p.Stopped && !desk.CanaryFailed(err) {
		p.Problem.Kind = job.CodeUnavailable
	}
	return p
}

// Filter selects parked jobs. Times are absolute, or 24h for that long ago.
type Filter struct {
	At
	Reasons []string `json:"reasons,omitempty" query:"reason"`
	Batch   string   `json:"batch,omitempty"`
	Lane    string   `json:"lane,omitempty"`
	Route   string   `json:"route,omitempty"`
	Since   string   `json:"since,omitempty"`
	Until   string   `json:"until,omitempty"`
	IDs     []string `json:"ids,omitempty" query:"id"`
	Match   string   `json:"match,omitempty"`
	// Limit is the most jobs selected; 0: all, or a page.
	Limit int `json:"limit,omitempty"`
}

// FilterOf returns a filter in the form of requests.
func FilterOf(gateways []string, f deadletter.Filter) Filter {
	q := desk.FilterValues(f)
	return Filter{At: At{gateways}, Reasons: q["reason"], Batch: q.Get("batch"), Lane: f.Lane, Route: f.Route, Since: q.Get("since"), Until: q.Get("until"), IDs: q["id"], Match: q.Get("match"), Limit: f.Limit}
}

// filter parses it.
func (f Filter) filter() (deadletter.Filter, error) {
	to, err := desk.ParseFilter(url.Values{"reason": f.Reasons, "batch": {f.Batch}, "lane": {f.Lane}, "route": {f.Route}, "since": {f.Since}, "until": {f.Until}, "id": f.IDs, "match": {f.Match}}, time.Now().UTC(),
		func(field string) string { return field })
	if to.Limit = f.Limit; err == nil && f.Limit < 0 {
		err = usage("give at least 1, or leave it out for all", "limit is too few")
	}
	return to, err
}

// selected returns the selected jobs after a cursor.
func (f Filter) selected(ctx context.Context, h *Here, after string) (*desk.Selection, error) {
	to, err := f.filter()
	if err != nil {
		return nil, err
	}
	d, err := h.At(ctx, f.Gateways)
	if err != nil {
		return nil, err
	}
	s, err := d.Select(ctx, to, after)
	if f.Batch != "" && job.CodeOf(err) == job.CodeNotFound && err != nil {
		err = &coded{err, unknownBatch}
	}
	return s, err
}

// LeftOut is what a filter names but does not select.
type LeftOut struct {
	// Missing are the filter's ids whose jobs are not parked, and MissingWhy says where they are instead.
	Missing    []string `json:"missing,omitempty"`
	MissingWhy string   `json:"missing_why,omitempty"`
}

func leftOut(ctx context.Context, s *desk.Selection, missing []string) (l LeftOut, err error) {
	if len(missing) == 0 {
		return l, nil
	}
	why := s.NotParked(ctx, missing)
	if job.CodeOf(why) != job.CodeNotFound {
		return l, why
	}
	return LeftOut{missing, why.Error()}, nil
}
