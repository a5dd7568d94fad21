package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/producer"
)

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

// seen counts a job that was read. A dry run adds up the money and keeps the first jobs of each gateway for
// --show.
func (t *tally) seen(src jobSource, j job.Job) {
	t.read.Add(1)
	if !src.opt.dryRun {
		return
	}
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
