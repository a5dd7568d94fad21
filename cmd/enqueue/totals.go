package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// shownFaults is how many unusable lines are printed when a file is refused.
const shownFaults = 20

// totals is the result of reading the whole file once.
type totals struct {
	src    jobSource
	jobs   int64
	bad    int64
	faults []string
	unsaid int64       // unusable lines that are not in faults
	silent int64       // jobs whose amount can't be read
	sums   job.Amounts // by currency; "" if none is configured
}

// checkTotals compares the file with --expect-count and --expect-sum before anything is admitted.
func checkTotals(ctx context.Context, src jobSource, t *tally) error {
	found := &totals{src: src}
	// After a cancelled context, the goroutine lives only until its read returns; the program ends then anyway.
	done := make(chan error, 1)
	go func() { done <- found.look(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	t.control = found.control()
	if err := found.compare(t); err != nil {
		return err
	}
	if src.opt.addsUp() && !src.opt.JSON() && !src.opt.Quiet {
		t.say("the file holds %s, as expected", job.Totals{Jobs: found.jobs, Amount: found.sums})
	}
	return nil
}

// look reads the whole file and rewinds it.
func (f *totals) look(ctx context.Context) error {
	if err := f.src.in.twice(); err != nil {
		return err
	}
	seen, err := f.src.in.changed()
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.src.in.path, err)
	}
	r, err := producer.New(f.src.in, f.src.opt.read)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		line, err := r.Next()
		if err == io.EOF {
			return f.src.in.again(seen)
		}
		if err != nil {
			return err
		}
		if err := f.add(line); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *totals) add(l producer.Line) error {
	if l.Err != nil {
		f.bad++
		if _, ofMoney := errors.AsType[job.MoneyError](l.Err); ofMoney && f.src.opt.addsUp() {
			f.silent++
		}
		f.fault(l.Number, l.Err)
		return nil
	}
	f.jobs++
	if !f.src.opt.addsUp() {
		return nil
	}
	g, _ := f.src.cfg.Gateway(l.Job.Gateway)
	if g.Amount.Field == "" {
		return cli.Usage("name it in the configuration: amount: {field: amount}, or leave out --expect-sum",
			"gateway %s has no amount.field, so there is nothing to add up", g.Name)
	}
	m, err := job.MoneyOf(l.Job.Payload, g.Amount.Field, g.Amount.Currency)
	if err != nil {
		f.silent++
		f.fault(l.Number, err)
		return nil
	}
	f.sums.Add(m)
	return nil
}

func (f *totals) fault(line int, err error) {
	if len(f.faults) < shownFaults {
		f.faults = append(f.faults, fmt.Sprintf("%s %d: %v", cmp.Or(f.src.in.unit, "line"), line, err))
		return
	}
	f.unsaid++
}

// control returns the totals for the report.
func (f *totals) control() *control {
	c := &control{Count: f.jobs, ExpectedCount: number(f.src.opt.count), ExpectedSum: number(f.src.opt.sum)}
	if f.src.opt.sum != nil && len(f.sums) < 2 {
		c.Sum = number(f.sum())
	}
	if f.src.opt.sums != nil {
		c.Sums, c.ExpectedSums = &f.sums, &f.src.opt.sums
	}
	return c
}

// sum returns the only sum.
func (f *totals) sum() *big.Int {
	for _, s := range f.sums {
		return s
	}
	return new(big.Int)
}

func number(n *big.Int) *json.Number {
	if n == nil {
		return nil
	}
	j := json.Number(n.String())
	return &j
}

// compare refuses a file that is not as expected.
func (f *totals) compare(t *tally) error {
	var wrong []string
	if want := f.src.opt.count; want != nil && want.Cmp(big.NewInt(f.jobs)) != 0 {
		wrong = append(wrong, fmt.Sprintf("it holds %d usable jobs, and %s were expected", f.jobs, want))
	}
	differs := false
	if want := f.src.opt.sum; want != nil && (len(f.sums) > 1 || want.Cmp(f.sum()) != 0) {
		differs = true
		wrong = append(wrong, fmt.Sprintf("its amounts add up to %s, and %s was expected", shownSums(f.sums), want))
	}
	if want := f.src.opt.sums; want != nil && !(job.Totals{Amount: want}).Equal(job.Totals{Amount: f.sums}) {
		differs = true
		wrong = append(wrong, fmt.Sprintf("its amounts add up to %s, and %s was expected", shownSums(f.sums), shownSums(want)))
	}
	if f.silent > 0 {
		what := "lines have amounts that can't be read, so the sum is unknown"
		if f.silent == 1 {
			what = "line has an amount that can't be read, so the sum is unknown"
		}
		wrong = append(wrong, job.CountText(f.silent)+" "+what)
		if !differs {
			wrong[len(wrong)-1] += "; the others add up to " + shownSums(f.sums) + ", as expected"
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	// Everything was read and nothing admitted.
	t.read.Store(f.jobs)
	t.bad = f.bad
	for _, line := range f.faults {
		t.say("%s", line)
	}
	if f.unsaid > 0 {
		t.say("and %s more", job.CountText(f.unsaid))
	}
	t.refused = true
	hint := "nothing was enqueued; ask for a complete file, or correct the control totals"
	switch {
	case f.silent > 0:
		hint = "nothing was enqueued; mend these lines or take them out, or leave out --expect-sum: then they are reported, and the others are enqueued"
	case f.src.opt.sum != nil && len(f.sums) > 1:
		hint = "nothing was enqueued; the file has several currencies: expect a sum of each, like --expect-sum EUR=9635.86,JPY=1050"
	}
	return &job.Error{Code: job.CodeInvalid, Hint: hint,
		Message: fmt.Sprintf("%s is refused: %s", f.src.in.path, strings.Join(wrong, "; "))}
}

func shownSums(sums job.Amounts) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		text := sums[name].String()
		if job.IsCurrency(name) {
			text = fmt.Sprintf("%s (%s)", job.Money{Minor: sums[name], Currency: name}, text)
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, " and "), "0")
}
