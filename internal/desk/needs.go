package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	units "github.com/docker/go-units"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// NeedKind says what an operator is needed for.
type NeedKind string

// The kinds of needs. The reasons for parking that an operator has to settle are kinds, too.
const (
	NeedStopped  NeedKind = "stopped"       // the gateway's data in Redis, or its limits, are in doubt
	NeedDenied   NeedKind = "denied"        // the gateway denies access
	NeedReader   NeedKind = "outcomes_held" // a reader of the gateway's outcomes is too far behind
	NeedCircuit  NeedKind = "circuit_open"  // the gateway has failed for openLong or more
	NeedUnserved NeedKind = "unserved"      // jobs wait, and no dispatcher serves the gateway
	NeedPaused   NeedKind = "paused"        // jobs wait, and the gateway has been paused for pausedLong or more
	NeedBatch    NeedKind = "batch_stopped"
	NeedUnlisted NeedKind = "unlisted" // jobs of a gateway that is not configured
	NeedRoom     NeedKind = "parked_most"
	NeedBytes    NeedKind = "parked_bytes"
	NeedLookups  NeedKind = "lookups_fail" // the look-ups of a pending job have failed for FailingLong or more
	NeedOverload NeedKind = "overloaded"   // a dispatcher is too slow for its gateways' limits
)

// NeedKinds returns all kinds, most urgent first.
func NeedKinds() []NeedKind {
	kinds := []NeedKind{NeedKind(job.UnknownOutcome), NeedStopped, NeedDenied, NeedReader, NeedCircuit, NeedUnserved, NeedBatch, NeedLookups, NeedUnlisted, NeedOverload, NeedRoom, NeedBytes,
		NeedKind(job.Unreadable), NeedKind(job.Exhausted), NeedKind(job.Refused)}
	for _, r := range job.Reasons() {
		if kind := NeedKind(r); r.About().Needs != "" && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return append(kinds, NeedPaused)
}

const (
	openLong   = 2 * time.Minute // the same as the alert SpillwayCircuitOpen
	pausedLong = time.Hour       // the same as the alert SpillwayPaused
	// FailingLong is how long look-ups must fail before an operator is needed: the same as the alert
	// SpillwayLookupsFail.
	FailingLong = 15 * time.Minute
	// mostPriced is how many held gateways are read for the money of waiting jobs: each takes two round trips.
	mostPriced = 50
)

// Need is a situation that lasts until an operator acts.
type Need struct {
	Kind    NeedKind `json:"kind"`
	Gateway string   `json:"gateway"`
	Batch   string   `json:"batch,omitempty"` // the batch that stopped itself
	// What says in a sentence what is wrong.
	What string `json:"what"`
	// Since is when it began; nil if unknown.
	Since *time.Time `json:"since"`
	// Totals are the jobs that wait for it, with their money as far as it is known.
	job.Totals
	// NoWrites says that Redis takes no writes, and that no dispatcher is missing.
	NoWrites bool `json:"no_writes,omitempty"`
	// Do is the command to type.
	Do string `json:"do"`
	// Runbook is the section of docs/runbook.md that explains it.
	Runbook string `json:"runbook"`
}

// Text returns the need as one line, for a terminal.
func (n Need) Text() string {
	text := n.Gateway + ": " + n.What
	if n.namesItself() {
		text = n.What
	} else if n.Jobs > 0 {
		text += "; " + n.Totals.String()
	}
	if n.Since != nil {
		text += ", since " + job.Moment(*n.Since)
	}
	return text
}

// namesItself reports whether What names the gateway and its jobs, or all gateways of the process.
func (n Need) namesItself() bool { return n.Kind == NeedUnlisted || n.Kind == NeedOverload }

// Needs returns what operators have to do, most urgent first, given the gateways' statuses and the gateways
// that are not configured. Within a kind, the longest-lasting need comes first. Needs that can't be determined
// because a gateway's data is damaged are missing, and damaged says so.
func (d *Desk) Needs(ctx context.Context, all []Status, unlisted []Unlisted) (needs []Need, damaged, err error) {
	needs = []Need{}
	for _, s := range all {
		needs = append(needs, s.needs()...)
	}
	for _, u := range unlisted {
		if n, is := u.need(); is {
			needs = append(needs, n)
		}
	}
	for _, o := range overloads(all) {
		needs = append(needs, o.need())
	}
	stopped, damaged, err := d.stoppedNeeds(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	needs = append(needs, stopped...)
	kinds := map[NeedKind]int{}
	for i, kind := range NeedKinds() {
		kinds[kind] = i
	}
	slices.SortFunc(needs, func(a, b Need) int {
		return cmp.Or(cmp.Compare(kinds[a.Kind], kinds[b.Kind]), earlier(a.Since, b.Since), strings.Compare(a.Gateway, b.Gateway), strings.Compare(a.Batch, b.Batch))
	})
	unpriced, err := d.price(ctx, needs)
	return needs, AlsoDamaged(damaged, unpriced), err
}

// earlier orders the earlier time first, and nil last.
func earlier(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

func (s Status) need(kind NeedKind, what string, since time.Time, jobs job.Totals, do string) Need {
	return Need{Kind: kind, Gateway: s.Gateway, What: what, Since: when(since), Totals: jobs, Do: do, Runbook: kind.Runbook()}
}

// needs returns the gateway's needs.
func (s Status) needs() (all []Need) {
	for _, r := range job.Reasons() {
		if n, about := s.Glance.Parked[r], r.About(); n > 0 && about.Needs != "" {
			jobs := s.Money[r]
			jobs.Jobs = n
			all = append(all, s.need(NeedKind(r), about.Needs, s.Glance.Oldest[r], jobs, fmt.Sprintf(about.Do, s.Gateway)))
		}
	}
	if n, is := s.heldNeed(); is {
		all = append(all, n)
	}
	if n, is := s.lookupsNeed(); is {
		all = append(all, n)
	}
	parked := job.Totals{Jobs: s.Glance.AllParked(), Amount: s.Amount, NoAmount: s.NoAmount}
	decide := fmt.Sprintf("dispatcher dlq stats -g %s; replay, resolve or discard what is parked, or raise the bound", s.Gateway)
	if s.ParkedMost > 0 {
		all = append(all, s.need(NeedRoom, fmt.Sprintf("parked.most is %d: once so many jobs are parked, newcomers that find no room are turned away", s.ParkedMost),
			time.Time{}, parked, decide))
	}
	if s.BytesMost > 0 {
		all = append(all, s.need(NeedBytes, fmt.Sprintf("parked.bytes is %s: once so much is parked, newcomers that find no room are turned away", units.BytesSize(float64(s.BytesMost))),
			time.Time{}, parked, decide))
	}
	return all
}

// heldNeed returns the need for what holds the gateway's calls back, if only an operator can end it.
func (s Status) heldNeed() (Need, bool) {
	v := s.Glance
	waiting := job.Totals{Jobs: v.Queued + v.InFlight + v.Scheduled + v.Retrying + v.Pending + v.ForRoom()}
	if v.ForRoom() > 0 {
		room := s.Money[job.Rejected]
		waiting.Add(job.Totals{Amount: room.Amount, NoAmount: room.NoAmount})
	}
	lasts := v.Now.Sub(v.Since)
	switch s.Word() {
	case Stopped:
		if o := s.Outcomes; o != nil && o.HeldSince != nil && !v.Hold.Since.IsZero() { // it is unknown since when data has been in doubt
			return s.need(NeedReader, v.Hold.PauseWhy, *o.HeldSince, waiting, fmt.Sprintf("see why %[1]s does not read: dispatcher outcomes -g %[2]s --reader %[1]s --limit 1", o.WaitsFor, s.Gateway)), true
		}
		return s.need(NeedStopped, v.Hold.PauseWhy, v.Since, waiting, "see the runbook: resume does not end it"), true
	case Denied:
		return s.need(NeedDenied, dispatch.Cause(v.Hold), v.Since, waiting, "put the right credential into its file and send SIGHUP, or into the environment and restart the dispatchers"), true
	case Open:
		return s.need(NeedCircuit, v.Hold.Reason, v.Since, waiting, "see the gateway's status page, and: dispatcher doctor"), lasts >= openLong
	case Unserved:
		if v.Refuses != "" {
			n := s.need(NeedUnserved, v.Stopped, v.Since, waiting, "see what is wrong with Redis: dispatcher doctor")
			n.NoWrites, n.Runbook = true, runbook+"spillwaybooksunread"
			return n, waiting.Jobs > 0
		}
		return s.need(NeedUnserved, v.Stopped, v.Since, waiting, fmt.Sprintf("dispatcher run -g %s", s.Gateway)), waiting.Jobs > 0
	case Paused:
		return s.need(NeedPaused, "paused: "+v.Hold.PauseWhy, v.Since, waiting, fmt.Sprintf("dispatcher resume -g %s", s.Gateway)), waiting.Jobs > 0 && lasts >= pausedLong
	}
	return Need{}, false
}

// lookupsNeed returns the need for look-ups that have failed for long. Pending jobs alone need no operator.
func (s Status) lookupsNeed() (Need, bool) {
	a := s.Glance.Asking
	if a.Failing.IsZero() || s.Glance.Now.Sub(a.Failing) < FailingLong {
		return Need{}, false
	}
	return s.need(NeedLookups, "look-ups of pending jobs fail, such as that of "+a.FailingJob+": "+a.FailingWhy, a.Failing, job.Totals{Jobs: s.Pending},
		"check lookup of the gateway in the file, and its credentials: dispatcher job "+dispatch.ShellWord(a.FailingJob)), true
}

// need returns the need of a gateway that is not configured, unless another dispatcher serves it.
func (u Unlisted) need() (Need, bool) {
	n := Need{Kind: NeedUnlisted, Gateway: u.Gateway, What: u.Text(), Since: u.LastServed, Totals: u.Totals, Do: u.Hint(), Runbook: NeedUnlisted.Runbook()}
	return n, u.NeedsPerson()
}

// stoppedNeeds returns the needs of batches that stopped themselves.
func (d *Desk) stoppedNeeds(ctx context.Context, all []Status) (needs []Need, damaged, err error) {
	parked := map[string]bool{}
	for _, s := range all {
		parked[s.Gateway] = len(s.Parked) > 0
	}
	some := &Desk{Gateways: slices.DeleteFunc(slices.Clone(d.Gateways), func(g *Gateway) bool { return !parked[g.Name] })}
	found, errs := abreast(ctx, some, func(ctx context.Context, g *Gateway) ([]Need, error) { return g.stoppedNeeds(ctx) })
	damaged, err = some.damaged(errs)
	return slices.Concat(found...), damaged, err
}

// mostStopped is how many such batches of a gateway are named.
const mostStopped = 10

func (g *Gateway) stoppedNeeds(ctx context.Context) (needs []Need, err error) {
	names, err := g.Books.Braked(ctx)
	for _, name := range names[:min(mostStopped, len(names))] {
		b, _, err := g.Books.Batch(ctx, name)
		if err != nil {
			return nil, err
		}
		n := Need{Kind: NeedBatch, Gateway: g.Name, Batch: name, What: fmt.Sprintf("batch %s has stopped itself: %s", name, b.Why), Since: when(b.Paused), Do: dispatch.GoOn(name, b),
			Totals: b.Sum(func(p record.Place) bool { return ledger.Waits(p) || p.State == job.Parked }), Runbook: NeedBatch.Runbook()}
		if more := len(names) - mostStopped; more > 0 {
			n.What += fmt.Sprintf("; so have %d more", more)
		}
		needs = append(needs, n)
	}
	return needs, err
}

// price adds the money, as far as known, of the jobs in the queues of held gateways, for at most mostPriced of
// them. That of jobs that wait for room is there already.
func (d *Desk) price(ctx context.Context, needs []Need) (damaged, err error) {
	waiting := map[string]*Need{}
	for i, n := range needs {
		switch n.Kind {
		case NeedStopped, NeedDenied, NeedReader, NeedCircuit, NeedUnserved, NeedPaused:
			if n.Jobs > 0 && len(waiting) < mostPriced {
				waiting[n.Gateway] = &needs[i]
			}
		}
	}
	some := &Desk{Gateways: slices.DeleteFunc(slices.Clone(d.Gateways), func(g *Gateway) bool { return waiting[g.Name] == nil || g.Amount.Field == "" })}
	sums, errs := abreast(ctx, some, func(ctx context.Context, g *Gateway) (job.Totals, error) {
		return g.Books.WaitingMoney(ctx, mostBatches)
	})
	for i, g := range some.Gateways {
		waiting[g.Name].Amount.AddAll(sums[i].Amount)
	}
	return some.damaged(errs)
}

// fewAlike is the number of similar needs up to which they are not grouped.
const fewAlike = 3

// NeedGroup is one need, or similar needs of several gateways: of the same kind, for the same reason.
type NeedGroup struct {
	Need              // of one gateway; of several: the earliest since, all jobs, and their money if all of it is known
	Gateways []string // in the order of the needs
}

// Several reports whether it covers more than one gateway.
func (g NeedGroup) Several() bool { return len(g.Gateways) > 1 }

// Names names the gateways, or the first of many. It is empty if What names them.
func (g NeedGroup) Names() string {
	if g.namesItself() {
		return ""
	}
	return firstNames(g.Gateways)
}

// gatewaysNamed is how many of many gateways are named.
const gatewaysNamed = 3

func firstNames(gateways []string) string {
	names := strings.Join(gateways[:min(gatewaysNamed, len(gateways))], ", ")
	if more := len(gateways) - gatewaysNamed; more > 0 {
		names += fmt.Sprintf(" and %s more", job.CountText(int64(more)))
	}
	return names
}

// Text returns the group as one line, for a terminal.
func (g NeedGroup) Text() string {
	if !g.Several() {
		return g.Need.Text()
	}
	one := g.Need
	one.Gateway = g.Names()
	return one.Text()
}

// GroupNeeds groups similar needs, so that the needs of thousands of gateways do not hide that of one. The
// order stays: a group is at the place of its first need.
func GroupNeeds(all []Need) []NeedGroup {
	alike := map[string][]Need{}
	for _, n := range all {
		alike[n.likeness()] = append(alike[n.likeness()], n)
	}
	var groups []NeedGroup
	for _, n := range all {
		same := alike[n.likeness()]
		switch {
		case len(same) <= fewAlike || n.Kind == NeedBatch || n.Kind == NeedUnlisted || n.Kind == NeedOverload:
			groups = append(groups, NeedGroup{n, []string{n.Gateway}})
		case n.Gateway == same[0].Gateway:
			groups = append(groups, groupOf(same))
		}
	}
	return groups
}

// likeness returns a key that is equal for similar needs. Since when a gateway is not served makes no
// difference.
func (n Need) likeness() string {
	if n.Kind == NeedUnserved && !n.NoWrites {
		return string(n.Kind)
	}
	return string(n.Kind) + " " + n.What
}

func groupOf(same []Need) NeedGroup {
	g := NeedGroup{Need: same[0]}
	g.Totals = job.Totals{}
	for _, n := range same {
		g.Gateways = append(g.Gateways, n.Gateway)
		g.Totals.Add(n.Totals)
		if earlier(n.Since, g.Since) < 0 {
			g.Since = n.Since
		}
	}
	switch g.Kind {
	case NeedStopped, NeedDenied, NeedReader, NeedCircuit, NeedPaused:
		g.Amount, g.NoAmount = nil, 0 // known only for the first of them
	case NeedUnserved:
		g.Amount, g.NoAmount = nil, 0
		if !g.NoWrites {
			g.What, g.Do = "no dispatcher serves these gateways", "dispatcher run"
		}
	}
	if !slices.ContainsFunc(same, func(n Need) bool { return n.Do != same[0].Do }) || g.Kind == NeedUnserved {
		return g
	}
	g.Do = "for each of them: " + same[0].Do
	return g
}
