package main

import (
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/remote"
)

// paceFlags are the flags that limit the pace of a replay.
type paceFlags struct {
	cmd         *cobra.Command
	rate, share string
	canary      int
	priority    string
}

func pacingFlags(cmd *cobra.Command) *paceFlags {
	f := &paceFlags{cmd: cmd}
	fs := cmd.Flags()
	fs.StringVar(&f.rate, "rate", "", "enqueue jobs no faster than `LIMIT`, spread evenly: 50/s, 3000/m (default: as admission has room)")
	fs.StringVar(&f.share, "share", "", "enqueue jobs no faster than `PERCENT` of the gateway's current limits: 20%")
	fs.StringVar(&f.priority, "priority", "", "change the jobs' class to `CLASS`, permanently (default: each keeps its own)")
	fs.IntVar(&f.canary, "canary", 0, "send `N` jobs of each gateway first, and stop if one of them fails")
	return f
}

func (f *paceFlags) understand() (q remote.Clearing, err error) {
	q.Canary, q.Priority = f.canary, f.priority
	var p desk.Pace
	given := f.cmd.Flags().Changed
	if given("priority") && f.priority == "" {
		return q, emptyFlag("priority")
	}
	if given("rate") && given("share") {
		return q, cli.Usage("give one of the two", "--rate and --share both say how fast the jobs go in")
	}
	if given("canary") && f.canary < 1 {
		return q, cli.Usage("give at least 1, or leave it out to send all at once", "--canary %d is too few", f.canary)
	}
	if given("rate") {
		q.Rate = f.rate
		err = p.SetRate(f.rate, "--rate")
	}
	if given("share") {
		q.Share = f.share
		err = p.SetShare(f.share, "--share")
	}
	return q, err
}
