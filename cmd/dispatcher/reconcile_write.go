package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/reconcile"
)

// bad says why a line can't be used, up to a limit.
func (r *reconciling) bad(line int, why error) {
	if r.faults.Add(why.Error()) {
		fmt.Fprintf(r.p.Say(), "line %d: %v\n", line, why)
	}
}

// differing is the file of --differences. A nil *differing drops everything.
type differing struct {
	out cli.Output
	w   *bufio.Writer
}

// newDiffering creates the file. report is the file of --report; nil if it is not a file.
func newDiffering(path string, report *os.File) (*differing, error) {
	if path == "" {
		return nil, nil
	}
	d := &differing{out: cli.Output{Path: path, Flag: "--differences", Input: report, InputIs: "the report", Holds: "differences hold payments"}}
	if err := d.out.Check(); err != nil {
		return nil, err
	}
	if err := d.out.Begin(); err != nil {
		return nil, fmt.Errorf("writing --differences: %w", err)
	}
	d.w = bufio.NewWriter(d.out.File)
	return d, nil
}

func (d *differing) write(one reconcile.Difference) error {
	if d == nil {
		return nil
	}
	return cli.WriteJSON(d.w, one)
}

func (d *differing) close() error {
	if d == nil {
		return nil
	}
	err := d.w.Flush()
	if closed := d.out.File.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("writing --differences: %w", err)
	}
	return nil
}

// reconciled is the result as JSON.
type reconciled struct {
	Gateway string `json:"gateway"`
	*reconcile.Result
	Resolve *resolved `json:"resolve,omitempty"`
}

// resolved is the result of --resolve.
type resolved struct {
	desk.Settled
	DryRun bool `json:"dry_run"`
}

func (r *reconciling) write() error {
	for _, more := range r.faults.More() {
		fmt.Fprintln(r.p.Say(), more)
	}
	r.warn()
	if r.p.JSON() {
		v := reconciled{Gateway: r.gateway.Name, Result: r.result}
		if r.settled != nil {
			v.Resolve = &resolved{*r.settled, r.dry}
		}
		return cli.WriteJSON(r.p.Out, v)
	}
	if err := r.table(); err != nil || r.settled == nil {
		return err
	}
	return r.told()
}

// warn lists, even with -q, the jobs that were charged and will be called again.
func (r *reconciling) warn() {
	sum := r.result.GoesOn
	if sum.Jobs == 0 {
		return
	}
	named := strings.Join(r.result.GoOn, ", ")
	if more := sum.Jobs - int64(len(r.result.GoOn)); more > 0 {
		named += fmt.Sprintf(" and %s more", job.CountText(more))
	}
	fmt.Fprintf(r.p.Say(), "warning: already charged, but it will be called again unless you stop it, so it may be charged twice: %s of %s: %s\nhint: %s\n",
		job.Totals{Jobs: sum.Jobs, Amount: sum.Reported}, r.gateway.Name, named, takenOut(r.gateway.Gateway, r.result.GoOn[0]))
}

// kindWords names the result of a comparison for people.
func kindWords(k reconcile.Kind) string {
	switch k {
	case reconcile.ChargedNotDone:
		return "charged and not done"
	case reconcile.DoneNotCharged:
		return "done and not charged"
	case reconcile.RefusedInDoubt:
		return "refused and in doubt"
	}
	return strings.ReplaceAll(string(k), "_", " ")
}

func (r *reconciling) table() error {
	t := cli.NewTable(r.p.Streams, time.Now(), "", "JOBS", "IN THE REPORT", "IN THE RECORDS")
	row := func(what string, s reconcile.Sum) {
		t.Row(cli.Uncut(what), s.Jobs, t.Money(job.Totals{Amount: s.Reported}), t.Money(job.Totals{Amount: s.Recorded}))
	}
	row(kindWords(reconcile.Agree), r.result.Agree)
	for _, k := range reconcile.Differences() {
		row(kindWords(k), *r.result.Differences[k])
		if k == reconcile.ChargedNotDone {
			for _, state := range slices.Sorted(maps.Keys(r.result.ByState)) {
				row("  "+strings.ReplaceAll(state, "_", " "), *r.result.ByState[state])
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	r.p.remark("compared %s lines with %s records", job.CountText(r.result.Lines), job.CountText(r.result.Records))
	if n := r.result.Uncompared; n > 0 {
		r.p.remark("amounts not compared: of %s, since the records have none; \"amount\" in the gateway says where the payloads have theirs", job.JobsText(n))
	}
	for _, status := range slices.Sorted(maps.Keys(r.result.PassedOver)) {
		r.p.remark("passed over, of the status %q: %s; it is neither in --done nor in --refused", status, job.CountText(r.result.PassedOver[status]))
	}
	if n := r.result.Refunds; n > 0 {
		r.p.remark("refunds, which are no charges: %s, of a negative amount", job.CountText(n))
	}
	return nil
}

// told reports the result of --resolve.
func (r *reconciling) told() error {
	if _, err := fmt.Fprintln(r.p.Tell(), settledText(*r.settled, r.dry)); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if r.f.again && r.result.Nameless {
		r.p.remark("no job is called again: a line that can't be used has no id, and may be any job's; mend it or take it out")
	}
	if n := r.settled.Done.Jobs + r.settled.NotDone.Jobs; r.dry && n > 0 {
		r.p.remark("nothing was changed: add --yes to do it")
	}
	return nil
}

// settledText says what was or would be settled.
func settledText(s desk.Settled, dry bool) string {
	is := func(jobs int64) string {
		switch {
		case dry:
			return "would be"
		case jobs == 1:
			return "was"
		}
		return "were"
	}
	var parts []string
	if s.Done.Jobs > 0 {
		parts = append(parts, fmt.Sprintf("%s %s resolved as done", s.Done, is(s.Done.Jobs)))
	}
	if s.NotDone.Jobs > 0 {
		parts = append(parts, fmt.Sprintf("%s %s resolved as not done, to go in again with the next key", s.NotDone, is(s.NotDone.Jobs)))
	}
	if len(parts) == 0 {
		parts = append(parts, "no parked job in doubt is made clear by the report")
	}
	if s.Left > 0 {
		parts = append(parts, fmt.Sprintf("%s left alone: no longer parked like this, or held back", job.JobsText(s.Left)))
	}
	return strings.Join(parts, "\n")
}

// differ returns an error, or nil if the report and the records agree.
func (r *reconciling) differ() error {
	differ, bad := r.result.Differ(), r.result.Bad
	var parts []string
	if differ > 0 {
		parts = append(parts, "the report and the records differ: "+job.JobsText(differ))
	}
	if bad == 1 {
		parts = append(parts, "1 line of the report can't be used")
	} else if bad > 1 {
		parts = append(parts, job.CountText(bad)+" lines of the report can't be used")
	}
	if len(parts) == 0 {
		return nil
	}
	hint := ""
	if differ > 0 && r.f.differences == "" {
		hint = "--differences FILE lists them"
	}
	return &job.Error{Code: job.CodeInvalid, Message: strings.Join(parts, "; "), Hint: hint}
}
