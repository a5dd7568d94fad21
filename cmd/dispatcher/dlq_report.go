package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// cleared is "dlq replay|discard|resolve -o json".
type cleared struct {
	Jobs      int                         `json:"jobs"`
	Replayed  *int                        `json:"replayed,omitempty"`
	Discarded *int                        `json:"discarded,omitempty"`
	Resolved  *int                        `json:"resolved,omitempty"`
	HeldBack  int                         `json:"held_back"`
	Gone      int                         `json:"gone"`
	DryRun    bool                        `json:"dry_run"`
	Amount    purse                       `json:"amount"`
	Bare      int                         `json:"without_amount"`
	ByReason  map[job.Reason]*reasonTotal `json:"by_reason"`
	Why       map[string]int              `json:"held_back_why"`
	Often     int                         `json:"replayed_3_times_or_more"`
	Canary    *canaryView                 `json:"canary,omitempty"`
	Stopped   string                      `json:"stopped,omitempty"`
}

type reasonTotal struct {
	Jobs   int   `json:"jobs"`
	Amount purse `json:"amount"`
	Bare   int   `json:"without_amount"`
}

// report writes the result to standard output. It returns cut, what cut the act short.
func (w *clearance) report(d cli.Decision, cut error) error {
	var err error
	if w.p.JSON() {
		err = cli.WriteJSON(w.p.Out, w.result(d, cut))
	} else {
		err = w.reportText(d)
	}
	if cut != nil {
		return cut
	}
	return err
}

func (w *clearance) result(d cli.Decision, cut error) cleared {
	sum, money, why := w.sum(), w.piled(d), w.heldBack()
	r := cleared{Jobs: w.total, HeldBack: sum.HeldBack, Gone: sum.Gone, DryRun: d != cli.Go,
		Amount: money.money, Bare: money.bare, ByReason: map[job.Reason]*reasonTotal{}, Why: why, Often: w.often(), Canary: w.canaries()}
	if e, ok := errors.AsType[*job.Error](cut); ok && e.Err != nil {
		r.Stopped = e.Err.Error()
	}
	if !w.ran {
		r.HeldBack = w.total - w.open
	}
	switch w.act.past {
	case replayed:
		r.Replayed = &sum.Taken
	case discarded:
		r.Discarded = &sum.Taken
	default:
		r.Resolved = &sum.Taken
	}
	for reason, pile := range w.byReason() {
		r.ByReason[reason] = &reasonTotal{pile.jobs, pile.money, pile.bare}
	}
	return r
}

// piled is the jobs that were taken, or would be.
func (w *clearance) piled(d cli.Decision) *pile {
	all := newPile()
	for _, sh := range w.shares {
		if d == cli.Go {
			all.addAll(sh.took)
		} else {
			all.addAll(sh.would)
		}
	}
	return all
}

func (w *clearance) heldBack() map[string]int {
	why := map[string]int{}
	for _, sh := range w.shares {
		for text, n := range sh.held {
			why[text] += n
		}
	}
	return why
}

func (w *clearance) byReason() map[job.Reason]*pile {
	all := map[job.Reason]*pile{}
	for _, sh := range w.shares {
		for reason, of := range sh.heap.ByReason {
			if all[reason] == nil {
				all[reason] = newPile()
			}
			all[reason].addAll(of.pile)
		}
	}
	return all
}

func (w *clearance) reportText(d cli.Decision) error {
	text, remark := "", ""
	switch {
	case w.total == 0:
		text = "no parked job is meant: nothing to " + w.act.verb + "\n"
	case d == cli.Declined:
		text = "nothing was changed\n"
	case d == cli.DryRun:
		text = w.previewText() + fmt.Sprintf("dry run: %s would be %s; nothing was changed\n", w.piled(d).text(), w.act.past)
		if !w.f.consent.DryRun && w.open > 0 {
			remark = "add --yes to do it"
		}
	default:
		text = w.doneText()
	}
	if _, err := fmt.Fprint(w.p.Tell(), text); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if remark != "" {
		w.p.remark("%s", remark)
	}
	return nil
}

func (w *clearance) doneText() string {
	sum := w.sum()
	if !w.ran {
		sum.HeldBack = w.total - w.open
	}
	text := w.act.past + " " + w.piled(cli.Go).text()
	if sum.HeldBack > 0 {
		text += fmt.Sprintf(", held back %d", sum.HeldBack)
	}
	if sum.Gone > 0 {
		text += fmt.Sprintf(", %d were no longer parked", sum.Gone)
	}
	return text + "\n" + whyText(w.heldBack(), "held back")
}

// previewText says what the act would touch, by gateway and reason, and what would be held back.
func (w *clearance) previewText() string {
	var b strings.Builder
	if w.s.flags == "" {
		fmt.Fprintf(&b, "no filter is given: this means every %s of %s\n", w.which(), w.whose())
	}
	for _, sh := range w.shares {
		fmt.Fprintf(&b, "%s: %s\n", sh.g.Name, sh.heap.all.text())
		for _, r := range places() {
			if of := sh.heap.ByReason[r]; of != nil {
				fmt.Fprintf(&b, "  %s: %s\n", r, of.pile.text())
			}
		}
	}
	b.WriteString(whyText(w.heldBack(), "would be held back"))
	if n := w.often(); n > 0 {
		fmt.Fprintf(&b, "%d of them %s been replayed %d times or more without success\n", n, haveHas(n), deadletter.OftenReplayed)
	}
	for _, sh := range w.shares {
		if sh.halt != "" {
			fmt.Fprintf(&b, "%s: the %s would stop at once\n", sh.halt, w.act.verb)
		}
	}
	return b.String()
}

func (w *clearance) often() (n int) {
	for _, sh := range w.shares {
		n += sh.met.Often
	}
	return n
}

func haveHas(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func (w *clearance) which() string {
	if w.act.doubt {
		return "parked job that may have been charged"
	}
	return "parked job"
}

func (w *clearance) whose() string {
	if len(w.f.gateways) == 0 {
		return "all gateways"
	}
	names := make([]string, len(w.s.gateways))
	for i, g := range w.s.gateways {
		names[i] = g.Name
	}
	return strings.Join(names, ", ")
}

func whyText(why map[string]int, what string) string {
	var b strings.Builder
	for _, text := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(&b, "%s: %s: %s\n", what, jobs(why[text]), text)
	}
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
