package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

// cleared is the output of "dlq replay|discard|resolve -o json".
type cleared struct {
	Jobs      int64                     `json:"jobs"`
	Replayed  *int                      `json:"replayed,omitempty"`
	Discarded *int                      `json:"discarded,omitempty"`
	Resolved  *int                      `json:"resolved,omitempty"`
	Asked     *int                      `json:"asked,omitempty"`
	HeldBack  int                       `json:"held_back"`
	Gone      int                       `json:"gone"`
	DryRun    bool                      `json:"dry_run"`
	Priority  string                    `json:"priority,omitempty"`
	Amount    job.Amounts               `json:"amount"`
	NoAmount  int64                     `json:"without_amount"`
	ByReason  map[job.Reason]job.Totals `json:"by_reason"`
	Why       map[string]int            `json:"held_back_why"`
	Often     int                       `json:"replayed_3_times_or_more"`
	Canary    *remote.Canary            `json:"canary,omitempty"`
	// Requests are what was not done at a gateway, because it needs a second person's approval.
	Requests []desk.Request `json:"requests,omitempty"`
	// NeedsApproval is the gateways at which a dry run would only have been requested.
	NeedsApproval []string `json:"needs_approval,omitempty"`
	Stopped       string   `json:"stopped,omitempty"`
}

// report writes the result to standard output. It returns cut, which is why the action stopped early.
func (w *bulkCommand) report(d cli.Decision, cut error) error {
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

func (w *bulkCommand) result(d cli.Decision, cut error) cleared {
	sum, money := w.now(), w.touched(d)
	r := cleared{Jobs: w.total, HeldBack: sum.HeldBack, Gone: sum.Gone, DryRun: d != cli.Go, Priority: w.q.Priority,
		Amount: money.Amount, NoAmount: money.NoAmount, ByReason: w.byReason(), Why: w.held(), Often: w.often()}
	if e, ok := errors.AsType[*job.Error](cut); ok && e.Err != nil {
		r.Stopped = e.Err.Error()
	}
	for _, part := range w.Parts {
		if asked := w.far[part.Gateway].Request; asked != nil {
			r.Requests = append(r.Requests, *asked)
		}
		if r.DryRun && part.Second {
			r.NeedsApproval = append(r.NeedsApproval, part.Gateway)
		}
	}
	if w.q.Canary > 0 {
		r.Canary = &remote.Canary{Failed: []string{}}
		if sum.Canary != nil {
			r.Canary = sum.Canary
		}
	}
	switch w.action.Name {
	case desk.Replay.Name:
		r.Replayed = &sum.Taken
	case desk.Discard.Name:
		r.Discarded = &sum.Taken
	case desk.Ask.Name:
		r.Asked = &sum.Taken
	default:
		r.Resolved = &sum.Taken
	}
	return r
}

// now returns the progress over all gateways. Before the start, that is what would be held back.
func (w *bulkCommand) now() (sum remote.ClearedPart) {
	if !w.ran {
		sum.HeldBack = int(w.total - w.open)
		return sum
	}
	sum.Gone = w.gone
	var took job.Totals
	for _, part := range w.Parts {
		far := w.far[part.Gateway]
		sum.Taken += far.Taken
		sum.HeldBack += far.HeldBack
		sum.Gone += far.Gone
		sum.Unsure += far.Unsure
		took.Add(far.Took())
		if c := far.Canary; c != nil {
			if sum.Canary == nil {
				sum.Canary = &remote.Canary{Failed: []string{}}
			}
			sum.Canary.Sent += c.Sent
			sum.Canary.Done += c.Done
			sum.Canary.Waiting += c.Waiting
			sum.Canary.Later += c.Later
			sum.Canary.Failed = append(sum.Canary.Failed, c.Failed...)
		}
	}
	sum.Amount, sum.NoAmount = took.Amount, took.NoAmount
	return sum
}

// held returns how many jobs were or would be held back, by reason.
func (w *bulkCommand) held() map[string]int {
	all := map[string]int{}
	for _, part := range w.Parts {
		held := part.Held
		if w.ran {
			held = w.far[part.Gateway].Held
		}
		for why, n := range held {
			all[why] += n
		}
	}
	return all
}

// byReason returns the selected jobs by reason, over all gateways.
func (w *bulkCommand) byReason() map[job.Reason]job.Totals {
	all := map[job.Reason]job.Totals{}
	for _, part := range w.Parts {
		for r, of := range part.ByReason {
			t := all[r]
			t.Add(of.Totals)
			all[r] = t
		}
	}
	return all
}

// often returns how many of the jobs were replayed often without success.
func (w *bulkCommand) often() (n int) {
	for _, part := range w.Parts {
		n += part.Often
	}
	return n
}

// touched returns the jobs that were or would be taken.
func (w *bulkCommand) touched(d cli.Decision) job.Totals {
	if d == cli.Go {
		return w.now().Took()
	}
	return w.Would
}

func (w *bulkCommand) reportText(d cli.Decision) error {
	text, remark := "", ""
	switch {
	case w.total == 0:
		text = "no parked job is meant: nothing to " + w.action.Verb + "\n"
	case d == cli.Declined:
		text = "nothing was changed\n"
	case d == cli.DryRun:
		text = w.previewText() + fmt.Sprintf("dry run: %s would be %s; nothing was changed\n", w.touched(d), w.action.Past)
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

func (w *bulkCommand) doneText() string {
	sum := w.now()
	text := w.action.Past + " " + sum.Took().String()
	if sum.HeldBack > 0 {
		text += fmt.Sprintf(", held back %d", sum.HeldBack)
	}
	if sum.Gone > 0 {
		text += fmt.Sprintf(", %d were no longer parked", sum.Gone)
	}
	return text + "\n" + whyText(w.held(), "held back")
}

// previewText says which jobs the act would take, by gateway and reason, and which would be held back.
func (w *bulkCommand) previewText() string {
	var b strings.Builder
	if desk.FilterText(w.filter) == "" {
		fmt.Fprintf(&b, "no filter is given: this means every %s of %s\n", w.which(), w.whose())
	}
	for _, of := range w.Parts {
		fmt.Fprintf(&b, "%s: %s\n", of.Gateway, of.Totals)
		for _, r := range desk.Places() {
			if sum := of.ByReason[r]; sum != nil {
				fmt.Fprintf(&b, "  %s: %s\n", r.Words(), sum.Totals)
			}
		}
	}
	if w.q.Priority != "" {
		fmt.Fprintf(&b, "those that go in are of the class %s from then on\n", w.q.Priority)
	}
	b.WriteString(whyText(w.held(), "would be held back"))
	if n := w.often(); n > 0 {
		fmt.Fprintf(&b, "%d of them %s been replayed %d times or more without success\n", n, haveHas(n), deadletter.OftenReplayed)
	}
	for _, of := range w.Parts {
		if of.Second {
			fmt.Fprintf(&b, "%s: a second person has to approve this %s; it is requested, not done\n", of.Gateway, w.action.Verb)
		}
		if of.Halt != "" {
			fmt.Fprintf(&b, "%s: the %s would stop at once\n", of.Halt, w.action.Verb)
		}
	}
	return b.String()
}

func haveHas(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func (w *bulkCommand) which() string {
	if w.action.InDoubt {
		return "parked job that may have been charged"
	}
	return "parked job"
}

func (w *bulkCommand) whose() string {
	if len(w.f.gateways) == 0 {
		return "all gateways"
	}
	return strings.Join(w.Gateways, ", ")
}

func whyText(why map[string]int, what string) string {
	var b strings.Builder
	for _, text := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(&b, "%s: %s: %s\n", what, job.JobsText(int64(why[text])), text)
	}
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// show draws the progress, and says from time to time that it waits for the jobs sent ahead.
func (w *bulkCommand) show(part remote.ClearedPart) error {
	w.far[part.Gateway] = part
	sum := w.now()
	w.progress.Set(int64(sum.Taken + sum.Gone))
	canary := part.Canary
	if canary == nil || canary.Waiting == 0 || time.Since(w.reminded[part.Gateway]) < remindEvery {
		return nil
	}
	first := w.reminded[part.Gateway].IsZero()
	w.reminded[part.Gateway] = time.Now()
	w.progress.Clear()
	w.p.remark("%s", waitingText(part.Gateway, *canary, first))
	return nil
}

// remindEvery is how often a replay that waits for its canary says so.
const remindEvery = 15 * time.Second

func waitingText(gateway string, now remote.Canary, first bool) string {
	if first {
		return fmt.Sprintf("%s: %s sent ahead, waiting until they are finished", gateway, job.JobsText(int64(now.Sent)))
	}
	return fmt.Sprintf("%s: still waiting for %d of the %d sent ahead; is a dispatcher running? see \"dispatcher status\"", gateway, now.Waiting, now.Sent)
}

// halt says that an action stopped itself at a gateway.
type halt struct{ remote.ClearedPart }

func (h halt) Error() string { return h.Problem.Detail }

// outcome combines the results of the gateways' parts.
func (w *bulkCommand) outcome(errs []error) error {
	var halts []halt
	interrupted := false
	if err := w.awaits(); err != nil {
		return err
	}
	for _, err := range errs {
		h, halted := errors.AsType[halt](err)
		switch {
		case halted:
			halts = append(halts, h)
		case errors.Is(err, context.Canceled):
			interrupted = true
		case err != nil:
			return w.cut(err, goOn)
		}
	}
	switch {
	case interrupted:
		return w.cut(&job.Error{Code: job.CodeInterrupted, Message: "interrupted"}, goOn)
	case len(halts) > 0:
		return w.halted(halts)
	}
	return nil
}

// awaits says that a request was made and needs another person's approval; nil if none was.
func (w *bulkCommand) awaits() error {
	var texts []string
	var first *job.Error
	for _, part := range w.Parts {
		if r := w.far[part.Gateway].Request; r != nil {
			e, _ := errors.AsType[*job.Error]((&desk.Awaits{Request: *r}).Unwrap())
			first = cmp.Or(first, e)
			texts = append(texts, e.Message)
		}
	}
	if first == nil {
		return nil
	}
	return &job.Error{Code: first.Code, Message: strings.Join(texts, "; "), Hint: first.Hint}
}

const goOn = "run the same again: that is safe, it goes on with the jobs that are still parked"

// cut adds the progress to an error.
func (w *bulkCommand) cut(err error, hint string) error {
	err = redisdb.Coded(err)
	sum := w.now()
	far := fmt.Sprintf("%d of %s %s", sum.Taken, job.JobsText(w.open), w.action.Past)
	if sum.Unsure > 0 {
		far += fmt.Sprintf(", and %d more may or may not be", sum.Unsure)
	}
	return &job.Error{Code: job.CodeOf(err), Message: far, Err: err, Hint: hint}
}

// halted says why a replay stopped itself, and how to continue. A held gateway counts as unavailable, a failed
// canary as a failure.
func (w *bulkCommand) halted(halts []halt) error {
	var why []string
	code, hint := job.CodeUnavailable, `see "dispatcher status"; when calls go through again, run the same again: it goes on with the jobs that are still parked`
	for _, h := range halts {
		why = append(why, h.Problem.Detail)
		if h.Problem.Kind == job.CodeFailed { // one of the jobs sent ahead
			code, hint = job.CodeFailed, `look at them with "dispatcher job ID"; once the cause is gone, run the same again: it goes on with the jobs that are still parked`
		}
	}
	return w.cut(&job.Error{Code: code, Message: "stopped: " + strings.Join(why, "; ")}, hint)
}
