package main

import (
	"context"

	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
)

// paceFlags are the flags that say how carefully a replay goes.
type paceFlags struct {
	cmd         *cobra.Command
	rate, share string
	canary      int
}

func pacingFlags(cmd *cobra.Command) *paceFlags {
	f := &paceFlags{cmd: cmd}
	fs := cmd.Flags()
	fs.StringVar(&f.rate, "rate", "", "let jobs into the queue no faster than `LIMIT`, spread evenly: 50/s, 3000/m (default: as admission has room)")
	fs.StringVar(&f.share, "share", "", "let jobs in no faster than `PERCENT` of the gateway's limits as they are now: 20%")
	fs.IntVar(&f.canary, "canary", 0, "send `N` jobs of each gateway first, and stop if one of them fails")
	return f
}

// caution is paceFlags understood. The zero caution bounds nothing.
type caution struct {
	rate   float64 // units of cost a second; 0 means no bound
	share  float64 // of the gateway's limits, 0 to 1; 0 means no bound
	canary int
	// heeds says that it stops where the gateway is held or paused.
	heeds bool
}

func (f *paceFlags) understand() (caution, error) {
	c := caution{canary: f.canary, heeds: true}
	given := f.cmd.Flags().Changed
	if given("rate") && given("share") {
		return c, cli.Usage("give one of the two", "--rate and --share both say how fast the jobs go in")
	}
	if given("canary") && f.canary < 1 {
		return c, cli.Usage("give at least 1, or leave it out to send all at once", "--canary %d is too few", f.canary)
	}
	var err error
	if given("rate") {
		if c.rate, err = parseRate(f.rate); err != nil {
			return c, err
		}
	}
	if given("share") {
		c.share, err = parseShare(f.share)
	}
	return c, err
}

func parseRate(text string) (float64, error) {
	l, err := config.ParseLimit(text)
	if err != nil {
		return 0, cli.Usage("write it like 50/s, 3000/m or 300/10s, or leave --rate out for no bound", "--rate %v", err)
	}
	return l.PerSecond(), nil
}

func parseShare(text string) (float64, error) {
	const hint = "write it like 20%, more than 0% and at most 100%"
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !percent || strings.ContainsAny(number, "xXpP_nN"):
		return 0, cli.Usage(hint, "--share %q is not a percentage", text)
	case !(n > 0 && n <= 100):
		return 0, cli.Usage(hint, "--share %s is no part of the gateway's limits", text)
	}
	return n / 100, nil
}

// watch says what a replay may do at a gateway now: it asks for the hold and the live limits each time.
func (c caution) watch(db redis.UniversalClient, g config.Gateway) func(context.Context) (deadletter.Leave, error) {
	if !c.heeds {
		return nil
	}
	return func(ctx context.Context) (deadletter.Leave, error) {
		leave := deadletter.Leave{Rate: c.rate}
		hold, err := dispatch.Hold(ctx, db, g)
		if err != nil {
			return leave, err
		}
		if leave.Stop = stoppedBy(g.Name, hold); leave.Stop == "" && hold.Circuit {
			leave.Stop, err = openCircuit(ctx, db, g, hold)
		}
		if err != nil {
			return leave, err
		}
		if c.share == 0 || leave.Stop != "" {
			return leave, nil
		}
		now, err := dispatch.CurrentLimits(ctx, db, g)
		leave.Rate = c.share * config.PerSecond(now.Limits)
		return leave, err
	}
}

// stoppedBy says what keeps a gateway's calls back; empty if nothing does. The one call that goes first after a hold is
// no reason to stop: a replay may be what brings it.
func stoppedBy(gateway string, s bucket.Standing) string {
	switch {
	case s.Paused:
		return because(gateway+" is paused", s.PauseWhy)
	case !s.HeldUntil.IsZero():
		return because(gateway+" is held until "+s.HeldUntil.UTC().Format(time.RFC3339), s.Reason)
	}
	return ""
}

// openCircuit says that a gateway's circuit is still open when its hold is over, and other jobs wait for the call that shows whether
// it is back. With no other waiting the replay has to bring that call; if that fails, the next look finds the hold.
func openCircuit(ctx context.Context, db redis.UniversalClient, g config.Gateway, hold bucket.Standing) (string, error) {
	now, err := dispatch.Books(db, g).Look(ctx)
	if err != nil {
		return "", dispatch.Coded(err)
	}
	if now.Queued+now.InFlight+now.Retrying == 0 {
		return "", nil
	}
	return because("the circuit of "+g.Name+" is open", hold.Reason), nil
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}
