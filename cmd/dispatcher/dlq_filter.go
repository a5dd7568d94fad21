package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// dlqFilter is the filter flags as typed.
type dlqFilter struct {
	cmd                        *cobra.Command
	gateways, reasons, ids     []string
	batch, since, until, match string
	after                      string
	limit                      int
}

// filterFlags declares the flags that choose parked jobs.
func filterFlags(cmd *cobra.Command) *dlqFilter {
	f := &dlqFilter{cmd: cmd}
	gatewaysFlag(cmd, &f.gateways, "only jobs of this `GATEWAY`; repeatable (default: all of the file)")
	fs := cmd.Flags()
	fs.StringArrayVar(&f.reasons, "reason", nil, "only jobs parked for this `REASON`; repeatable (default: all)")
	fs.StringVar(&f.batch, "batch", "", "only jobs of the batch `NAME`")
	fs.StringVar(&f.since, "since", "", "only jobs parked at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\", RFC 3339")
	fs.StringVar(&f.until, "until", "", "only jobs parked before `TIME`")
	fs.StringArrayVar(&f.ids, "id", nil, "only the job of this `ID`; repeatable")
	fs.StringVar(&f.match, "match", "", "only jobs whose error matches `REGEX`")
	fs.IntVar(&f.limit, "limit", 0, "at most `N` jobs, oldest first (default: all)")
	return f
}

// understand checks the flags. Times are relative to now.
func (f *dlqFilter) understand(now time.Time) (deadletter.Filter, error) {
	to := deadletter.Filter{Batch: f.batch, IDs: f.ids, Limit: f.limit}
	if err := f.noneEmpty(); err != nil {
		return to, err
	}
	for _, r := range f.reasons {
		if !slices.Contains(job.Reasons(), job.Reason(r)) {
			return to, cli.Usage(fmt.Sprintf("the reasons are %s", reasonList()), "--reason %q is not a reason for which a job is parked", r)
		}
		to.Reasons = append(to.Reasons, job.Reason(r))
	}
	var err error
	if to.Since, err = agoFlag("since", f.since, now); err != nil {
		return to, err
	}
	if to.Until, err = agoFlag("until", f.until, now); err != nil {
		return to, err
	}
	if !to.Since.IsZero() && !to.Until.IsZero() && !to.Until.After(to.Since) {
		return to, cli.Usage("let --until be later than --since", "no job was parked at or after %s and before %s",
			to.Since.Format(time.RFC3339), to.Until.Format(time.RFC3339))
	}
	if f.limit < 0 || (f.limit == 0 && f.cmd.Flags().Changed("limit")) {
		return to, cli.Usage("give at least 1, or leave it out for all", "--limit %d is too few", f.limit)
	}
	if f.match == "" {
		return to, nil
	}
	if to.Match, err = regexp.Compile(f.match); err != nil {
		return to, cli.Usage(`put \ before a character like ( or [ that stands for itself, and 'quotes' around it all`, "--match: %v", err)
	}
	return to, nil
}

// noneEmpty refuses flags without a value. They come of unset shell variables, and would mean every job there is.
func (f *dlqFilter) noneEmpty() error {
	single := map[string]string{"batch": f.batch, "since": f.since, "until": f.until, "match": f.match, "after": f.after}
	for _, name := range []string{"batch", "since", "until", "match", "after"} {
		if f.cmd.Flags().Changed(name) && single[name] == "" {
			return emptyFlag(name)
		}
	}
	if slices.Contains(f.ids, "") {
		return emptyFlag("id")
	}
	return nil
}

func emptyFlag(name string) error {
	return cli.Usage("give it a value, or leave it out to choose all", "--%s is empty", name)
}

// agoFlag reads a time. What has no sign and is a duration means so long ago.
func agoFlag(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := producer.ParseTime(text, now); err == nil {
		return t, nil
	}
	t, err := producer.ParseTime("-"+text, now)
	if err != nil {
		return t, cli.Usage(`write 24h or 2d for so long ago, 2026-11-30, "2026-11-30 18:00" or 2026-11-30T18:00:00Z`,
			"--%s %q is not a time", flag, text)
	}
	return t, nil
}

func reasonList() string {
	all := make([]string, len(job.Reasons()))
	for i, r := range job.Reasons() {
		all[i] = string(r)
	}
	return strings.Join(all, ", ")
}

// text is the filter as flags that choose the same jobs later on, without -g; empty if there are none.
func (f *dlqFilter) text(to deadletter.Filter) string {
	var parts []string
	add := func(flag, value string) { parts = append(parts, "--"+flag+" "+value) }
	for _, r := range to.Reasons {
		add("reason", string(r))
	}
	if to.Batch != "" {
		add("batch", strconv.Quote(to.Batch))
	}
	if !to.Since.IsZero() {
		add("since", to.Since.UTC().Format(time.RFC3339Nano))
	}
	if !to.Until.IsZero() {
		add("until", to.Until.UTC().Format(time.RFC3339Nano))
	}
	for _, id := range to.IDs {
		add("id", id)
	}
	if f.match != "" {
		add("match", strconv.Quote(f.match))
	}
	if to.Limit > 0 {
		add("limit", strconv.Itoa(to.Limit))
	}
	return strings.Join(parts, " ")
}
