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

// NeedKind names what a person is needed for.
type NeedKind string

// The kinds of needs. The reasons of parked jobs that a person has to settle are kinds, too.
const (
	NeedStopped  NeedKind = "stopped"       // the gateway's data in Redis is doubted, or its limits are
	NeedDenied   NeedKind = "denied"        // the gateway does not let calls in
	NeedReader   NeedKind = "outcomes_held" // a reader of the gateway's outcomes is too far behind
	NeedCircuit  NeedKind = "circuit_open"  // the gateway fails for openLong or more
	NeedUnserved NeedKind = "unserved"      // jobs wait, and no dispatcher serves the gateway
	NeedPaused   NeedKind = "paused"        // jobs wait, and the gateway is paused for pausedLong or more
	NeedBatch    NeedKind = "batch_stopped"
	NeedUnlisted NeedKind = "unlisted" // jobs of a gateway that the configuration does not have
	NeedRoom     NeedKind = "parked_most"
	NeedBytes    NeedKind = "parked_bytes"
	NeedLookups  NeedKind = "lookups_fail" // those of a pending job fail for FailingLong or more
	NeedOverload NeedKind = "overloaded"   // a dispatcher is too slow for the limits of its gateways
)

// NeedKinds returns all kinds, the most urgent first.
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
	openLong   = 2 * time.Minute // as long as the alert SpillwayCircuitOpen waits
	pausedLong = time.Hour       // as long as the alert SpillwayPaused waits
	// FailingLong is for how long look-ups fail until a person is needed: as long as the alert SpillwayLookupsFail waits.
	FailingLong = 15 * time.Minute
	// mostPriced is how many held gateways are looked at for the money of what waits: each takes two round trips.
	mostPriced = 50
)

// Need is something that stays as it is until a person acts.
type Need struct {
	Kind    NeedKind `json:"kind"`
	Gateway string   `json:"gateway"`
	Batch   string   `json:"batch,omitempty"` // of a batch that stopped itself
	// What says in a sentence what is wrong.
	What string `json:"what"`
	// Since is when it began; nil if nobody knows.
	Since *time.Time `json:"since"`
	// Totals are the jobs that wait for it, and what is known of their money.
	job.Totals
	// Do says what to type.
	Do string `json:"do"`
	// Runbook is the section of docs/runbook.md that explains it.
	Runbook string `json:"runbook"`
}

// Text is the need in a line, for a terminal.
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

// namesItself says that What names the gateway and its jobs, or all gateways of the process.
func (n Need) namesItself() bool { return n.Kind == NeedUnlisted || n.Kind == NeedOverload }

// Needs returns what a person has to do, the most urgent first, from how the gateways stand and from the gateways that the configuration does not have.
// Of one kind, what has lasted longest comes first. What can't be seen because the data of a gateway is damaged is missing, and damaged says so.
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

// earlier puts the earlier moment first, and no moment last.
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

// needs returns what the gateway needs a person for.
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

// heldNeed returns what keeps the gateway's calls back, if only a person ends it.
func (s Status) heldNeed() (Need, bool) {
	v := s.Glance
	waiting := job.Totals{Jobs: v.Queued + v.InFlight + v.Scheduled + v.Retrying + v.Pending + v.ForRoom()}
	lasts := v.Now.Sub(v.Since)
	switch s.Word() {
	case Stopped:
		if o := s.Outcomes; o != nil && o.HeldSince != nil && !v.Hold.Since.IsZero() { // nobody knows since when data is doubted
			return s.need(NeedReader, v.Hold.PauseWhy, *o.HeldSince, waiting, fmt.Sprintf("see why %[1]s does not read: dispatcher outcomes -g %[2]s --reader %[1]s --limit 1", o.WaitsFor, s.Gateway)), true
		}
		return s.need(NeedStopped, v.Hold.PauseWhy, v.Since, waiting, "see the runbook: resume does not end it"), true
	case Denied:
		return s.need(NeedDenied, dispatch.Cause(v.Hold), v.Since, waiting, "put the right credential into its file and send SIGHUP, or into the environment and restart the dispatchers"), true
	case Open:
		return s.need(NeedCircuit, v.Hold.Reason, v.Since, waiting, "see the gateway's status page, and: dispatcher doctor"), lasts >= openLong
	case Unserved:
		return s.need(NeedUnserved, v.Stopped, v.Since, waiting, fmt.Sprintf("dispatcher run -g %s", s.Gateway)), waiting.Jobs > 0
	case Paused:
		return s.need(NeedPaused, "paused: "+v.Hold.PauseWhy, v.Since, waiting, fmt.Sprintf("dispatcher resume -g %s", s.Gateway)), waiting.Jobs > 0 && lasts >= pausedLong
	}
	return Need{}, false
}

// lookupsNeed returns that the look-ups of a pending job have failed for long. That jobs are pending needs nobody.
func (s Status) lookupsNeed() (Need, bool) {
	a := s.Glance.Asking
	if a.Failing.IsZero() || s.Glance.Now.Sub(a.Failing) < FailingLong {
		return Need{}, false
	}
	return s.need(NeedLookups, "look-ups of pending jobs fail, such as that of "+a.FailingJob+": "+a.FailingWhy, a.Failing, job.Totals{Jobs: s.Pending},
		"check lookup of the gateway in the file, and its credentials: dispatcher job "+dispatch.ShellWord(a.FailingJob)), true
}

// need returns the need of a gateway that the configuration does not have, unless another file has it.
func (u Unlisted) need() (Need, bool) {
	n := Need{Kind: NeedUnlisted, Gateway: u.Gateway, What: u.Text(), Since: u.LastServed, Totals: u.Totals, Do: u.Hint(), Runbook: NeedUnlisted.Runbook()}
	return n, u.NeedsPerson()
}

// stoppedNeeds returns the batches that stopped themselves.
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

// mostStopped is how many batches of a gateway that stopped themselves are named.
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

// price adds what is known of the money that waits at the gateways that are held, as far as mostPriced goes.
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
		waiting[g.Name].Amount = sums[i].Amount
	}
	return some.damaged(errs)
}
