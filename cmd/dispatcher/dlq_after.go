package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// A cursor is a parked job's place in the order of all: GATEWAY/STAMP. No two jobs of a gateway have the same stamp, and a job that
// is parked later has a higher one: behind a cursor, none comes twice and none is left out, whatever comes and goes meanwhile.

func cursorOf(r job.Record) string {
	return r.Job.Gateway + "/" + strconv.FormatInt(deadletter.Cursor(r), 10)
}

// afterFlag declares --after for what shows jobs.
func (f *dlqFilter) afterFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.after, "after", "", "only jobs behind this `CURSOR`, as -o json and the end of a list show it: the next page")
}

// splitCursor returns a cursor's parts.
func splitCursor(text string) (gateway string, stamp int64, err error) {
	gateway, digits, _ := strings.Cut(text, "/")
	stamp, err = strconv.ParseInt(digits, 10, 64)
	if gateway == "" || err != nil || stamp <= 0 {
		return "", 0, cli.Usage(`take it from "cursor" of the last job that "dlq list -o json" printed: stripe/1763742851000001`, "--after %q is not a cursor", text)
	}
	return gateway, stamp, nil
}

// startAt leaves out the gateways that come before the cursor's, and all of its own that lies before it.
func (s *selection) startAt(cursor string) error {
	if cursor == "" {
		return nil
	}
	gateway, stamp, err := splitCursor(cursor)
	if err != nil {
		return err
	}
	for i, g := range s.gateways {
		if g.Name == gateway {
			s.gateways, s.after = s.gateways[i:], stamp
			return nil
		}
	}
	names := make([]string, len(s.gateways))
	for i, g := range s.gateways {
		names[i] = g.Name
	}
	return cli.Usage("the gateways asked for are "+strings.Join(names, ", "), "--after %s is of a gateway that is not among them", cursor)
}

// from is the filter for one of the gateways.
func (s *selection) from(g config.Gateway) deadletter.Filter {
	f := s.filter
	if g.Name == s.gateways[0].Name {
		f.After = s.after
	}
	return f
}
