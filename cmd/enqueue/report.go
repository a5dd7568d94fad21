package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// report is what enqueue writes to standard output. Read is always the sum of the five counts after it.
type report struct {
	Read      int64 `json:"read"`
	Enqueued  int64 `json:"enqueued"`
	Parked    int64 `json:"parked"`
	Duplicate int64 `json:"duplicate"`
	Invalid   int64 `json:"invalid"`
	Failed    int64 `json:"failed"`
	// DuplicateAt counts, by gateway name, the duplicates that are known at another gateway. Nil: none.
	DuplicateAt map[string]int64 `json:"duplicate_at,omitempty"`

	Seconds       float64 `json:"seconds"`
	JobsPerSecond int64   `json:"jobs_per_second"`
	DryRun        bool    `json:"dry_run,omitempty"`
	Usable        *int64  `json:"usable,omitempty"`
	// Amount and NoAmount are the money of a dry run's usable jobs. Both are nil if none of their gateways has
	// an amount configured.
	Amount   *job.Amounts `json:"amount,omitempty"`
	NoAmount *int64       `json:"without_amount,omitempty"`
	Control  *control     `json:"control,omitempty"`
	Canary   canaries     `json:"canary,omitempty"`
	// Show holds the jobs that --show asks for.
	Show []shownJob `json:"show,omitempty"`
	// Replaced is the money before and after a replacement of payloads.
	Replaced *desk.Replaced `json:"replaced,omitempty"`
}

// control is the control totals, as found and as expected.
type control struct {
	Count         int64        `json:"count"`
	ExpectedCount *json.Number `json:"expected_count,omitempty"`
	Sum           *json.Number `json:"sum,omitempty"`
	ExpectedSum   *json.Number `json:"expected_sum,omitempty"`
	Sums          *job.Amounts `json:"sums,omitempty"`
	ExpectedSums  *job.Amounts `json:"expected_sums,omitempty"`
}

// counts returns the report without its times. The caller must hold the lock or have sole use of t.
func (t *tally) counts() report {
	jobs := t.read.Load()
	r := report{Canary: t.canaries,
		Read: jobs + t.bad, Enqueued: t.enqueued, Parked: t.parked, Duplicate: t.duplicate, Invalid: t.bad + t.conflicts,
		Failed: jobs - t.enqueued - t.parked - t.duplicate - t.conflicts, Control: t.control, DuplicateAt: maps.Clone(t.elsewhere),
	}
	if t.opt.dryRun || t.declined {
		r.DryRun, r.Usable, r.Show = true, &jobs, t.sample.jobs
	}
	if t.sample.counts() {
		r.Amount, r.NoAmount = &t.sample.money.Amount, &t.sample.money.NoAmount
	}
	return r
}

func (t *tally) report(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.counts()
	if t.replacing != nil {
		r.Replaced = t.replacing.Sum()
	}
	took := now.Sub(t.started)
	r.Seconds = math.Round(took.Seconds()*1000) / 1000
	if took > 0 {
		r.JobsPerSecond = int64(float64(r.Read) / took.Seconds())
	}
	t.remark(r)
	if t.opt.JSON() {
		return cli.WriteJSON(t.s.Out, r)
	}
	return t.text(r, now)
}

func (t *tally) text(r report, now time.Time) error {
	for _, j := range r.Show {
		fmt.Fprintln(t.s.Out, j)
	}
	table := cli.NewTable(t.s, now)
	table.Row("read", r.Read)
	if r.DryRun {
		table.Row("usable", *r.Usable)
		table.Row("invalid", r.Invalid)
		if r.Amount != nil {
			table.Row("money", cli.Whole(t.sample.money.Money()))
		}
	} else {
		table.Row("enqueued", r.Enqueued)
		table.Row(job.ForRoom, r.Parked)
		table.Row("duplicate", r.Duplicate)
		table.Row("invalid", r.Invalid)
		table.Row("failed", r.Failed)
	}
	if r.Replaced != nil {
		table.Row(map[bool]string{true: "would be replaced", false: "replaced"}[r.DryRun], r.Replaced.Jobs)
		table.Row("money before", cli.Whole(job.Totals{Amount: r.Replaced.Before, NoAmount: r.Replaced.NoAmountBefore}.Money()))
		table.Row("money after", cli.Whole(job.Totals{Amount: r.Replaced.After, NoAmount: r.Replaced.NoAmountAfter}.Money()))
	}
	table.Row("seconds", r.Seconds)
	table.Row("jobs per second", r.JobsPerSecond)
	return table.Flush()
}

// remark explains the numbers on standard error, unless -q is given.
func (t *tally) remark(r report) {
	if r.Replaced != nil && lostText(r.Replaced) != "" { // shown even with -q
		fmt.Fprintln(t.s.Say(), lostText(r.Replaced))
	}
	if t.opt.Quiet {
		return
	}
	switch {
	case t.declined:
		fmt.Fprintln(t.s.Say(), "nothing was changed")
	case t.opt.unasked:
		fmt.Fprintf(t.s.Say(), "dry run: would replace the payloads of %s; nothing was changed: add --yes to do it\n", replacedText(r.Replaced))
	case t.opt.replace && r.DryRun:
		fmt.Fprintf(t.s.Say(), "dry run: would replace the payloads of %s; nothing was changed\n", replacedText(r.Replaced))
	case r.DryRun:
		fmt.Fprintln(t.s.Say(), "dry run: nothing was sent to Redis")
	}
	if r.Replaced != nil {
		t.remarkReplaced(r)
		return
	}
	for _, gateway := range slices.Sorted(maps.Keys(r.DuplicateAt)) {
		fmt.Fprintf(t.s.Say(), "%s of the duplicates: known at gateway %s (dedupe_scope: all), and not enqueued here\n", job.CountText(r.DuplicateAt[gateway]), gateway)
	}
	if r.Canary.remark(t.s.Say(), t.opt.batch) {
		return
	}
	if r.Parked > 0 {
		wait := "jobs wait for room, or for their paused or cancelled batch; see: dispatcher status"
		if r.Parked == 1 {
			wait = "job waits for room, or for its paused or cancelled batch; see: dispatcher status"
		}
		fmt.Fprintln(t.s.Say(), job.CountText(r.Parked), wait)
	}
}

// remarkReplaced explains why jobs with a new payload stay parked.
func (t *tally) remarkReplaced(r report) {
	if full := r.Parked - int64(r.Replaced.Paused+r.Replaced.Awaiting); full > 0 {
		fmt.Fprintf(t.s.Say(), "%d jobs found no room yet and stay parked, with their new payload; replay them with \"dispatcher dlq replay\" and --batch, --reason or --id\n", full)
	}
	switch n := r.Replaced.Paused; {
	case n == 1:
		fmt.Fprintln(t.s.Say(), `1 job of a paused batch stays parked, with its new payload; "dispatcher batch resume" takes it in`)
	case n > 1:
		fmt.Fprintf(t.s.Say(), "%d jobs of paused batches stay parked, with their new payload; \"dispatcher batch resume\" takes them in\n", n)
	}
	switch n := r.Replaced.Awaiting; {
	case n == 1:
		fmt.Fprintln(t.s.Say(), `1 job stays parked, with its new payload: its batch awaits an approval; "dispatcher batch approve" takes it in`)
	case n > 1:
		fmt.Fprintf(t.s.Say(), "%d jobs stay parked, with their new payload: their batches await an approval; \"dispatcher batch approve\" takes them in\n", n)
	}
}

// sample is what a dry run has seen of the jobs.
type sample struct {
	money job.Totals
	jobs  []shownJob
	of    map[string]int // number of jobs by gateway
}

// counts reports whether some of the jobs have money, or should have.
func (s *sample) counts() bool { return len(s.money.Amount) > 0 || s.money.NoAmount > 0 }

// shownJob is a job as it would be sent.
type shownJob struct {
	Gateway string          `json:"gateway"`
	ID      string          `json:"id"`
	Method  string          `json:"method"`
	URL     string          `json:"url"`     // as configured: variables are not filled in
	Payload json.RawMessage `json:"payload"` // without the fields that are not sent
}

// String returns the job in two lines. Unprintable characters of the payload are escaped as in JSON.
func (j shownJob) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: job %s: %s %s\n", j.Gateway, j.ID, j.Method, j.URL)
	for _, c := range string(j.Payload) {
		if unicode.IsPrint(c) {
			text.WriteRune(c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			fmt.Fprintf(&text, `\u%04x`, unit)
		}
	}
	return text.String()
}

// show takes in a job of a dry run: it adds up the money and keeps the first jobs of each gateway for --show.
func (t *tally) show(src jobSource, j job.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	g, _ := src.cfg.Gateway(j.Gateway)
	if g.Amount.Field != "" && !src.opt.replace {
		t.sample.money.AddMoney(producer.Money(j.Payload, g.Amount.Field, g.Amount.Currency))
	}
	if t.sample.of == nil {
		t.sample.of = map[string]int{}
	}
	if t.sample.of[j.Gateway] < src.opt.show {
		t.sample.of[j.Gateway]++
		g, _ = g.On(j.Route)
		sent, err := gateway.Strip(j.Payload, g.Request.Strip)
		if err != nil {
			sent = j.Payload
		}
		t.sample.jobs = append(t.sample.jobs, shownJob{j.Gateway, j.ID, g.Request.Method, g.Request.URLText, sent})
	}
}
