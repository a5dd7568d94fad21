package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

const dlqLong = `Dlq looks through the parked jobs, and sends them on their way.

list, show, stats, export and history look. replay takes jobs in again through admission, discard takes them out
for good, resolve settles those that may have been charged. These three say how many jobs and how much
money they would touch, and ask on a terminal; off one they are a dry run, unless --yes is given.

Each act is written down, for history.

All but show and history choose jobs by the same flags; with several, a job must meet them all. Without any, every
parked job of every gateway is meant. Jobs come gateway by gateway in the file's order, and within a
gateway oldest first; --limit counts in that order.

Reasons: paused (its batch is), rejected (no room at admission), refused (the gateway said no), exhausted (attempts used up),
unknown_outcome (it may have been charged), expired (its time passed before it was sent), cancelled
(its batch was), unreadable (not a job).`

func dlqCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Look through parked jobs; replay, discard or resolve them", Long: dlqLong,
		Example: "  dispatcher dlq stats\n  dispatcher dlq list --reason refused --since 24h\n  dispatcher dlq replay -g stripe --reason refused --match 'HTTP 402'",
	}
	cmd.AddCommand(dlqListCommand(p), dlqShowCommand(p), dlqStatsCommand(p), dlqReplayCommand(p), dlqDiscardCommand(p),
		dlqResolveCommand(p), dlqExportCommand(p), dlqHistoryCommand(p))
	return cmd
}

// noArgs refuses arguments and says where an id goes.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.Usage("name jobs by their id with --id "+args[0], "%q is no flag", args[0])
}

// selection is the parked jobs that the filter flags choose.
type selection struct {
	*session
	gateways []config.Gateway // in the file's order
	filter   deadletter.Filter
	flags    string // the filter flags as text; empty if there are none
	after    int64  // where the first of the gateways begins; 0 means at its oldest
}

// choose opens a session for the jobs that the flags choose.
func (p *program) choose(ctx context.Context, f *dlqFilter) (*selection, error) {
	filter, err := f.understand(time.Now())
	if err != nil {
		return nil, err
	}
	s, chosen, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return nil, err
	}
	sel := &selection{session: s, gateways: chosen, filter: filter, flags: f.text(filter)}
	if err = sel.knowsBatch(ctx); err == nil {
		err = sel.startAt(f.after)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return sel, nil
}

// knowsBatch refuses a batch of which none of the gateways knows a job: a name with a slip in it would look like a batch without parked jobs.
func (s *selection) knowsBatch(ctx context.Context) error {
	name := s.filter.Batch
	if name == "" {
		return nil
	}
	for _, g := range s.gateways {
		_, ok, err := dispatch.Books(s.db.Client, g).Batch(ctx, name)
		if err != nil || ok {
			return dispatch.Coded(err)
		}
		// What is parked as no job of ours is in no books, and may have a batch.
		parked, err := deadletter.New(s.db.Client, g.Name).Count(ctx, deadletter.Filter{Batch: name})
		if err != nil || len(parked) > 0 {
			return dispatch.Coded(err)
		}
	}
	return noBatch(name)
}

// each visits the chosen jobs that are parked by now. It returns the ids of --id that were not met, and an error with
// the code not_found if that is all of them.
func (s *selection) each(ctx context.Context, visit func(config.Gateway, job.Record) error) (missing []string, err error) {
	left, met := s.filter.Limit, map[string]bool{}
	for _, g := range s.gateways {
		f := s.from(g)
		f.Limit = left
		n, err := s.eachOf(ctx, g, f, met, visit)
		if err != nil {
			return nil, err
		}
		if s.filter.Limit > 0 {
			if left -= n; left == 0 {
				return nil, nil
			}
		}
	}
	for _, id := range s.filter.IDs {
		if !met[id] && !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 && len(met) == 0 {
		return nil, s.notParked(ctx, missing)
	}
	return missing, nil
}

func (s *selection) eachOf(ctx context.Context, g config.Gateway, f deadletter.Filter, met map[string]bool,
	visit func(config.Gateway, job.Record) error) (n int, err error) {
	store := dispatch.Store(s.db.Client, g)
	if f, err = store.UpToNow(ctx, f); err != nil {
		return 0, dispatch.Coded(err)
	}
	for rec, err := range store.List(ctx, f) {
		if err != nil {
			return n, dispatch.Coded(err)
		}
		if len(f.IDs) > 0 {
			met[rec.Job.ID] = true
		}
		n++
		if err := visit(g, rec); err != nil {
			return n, err
		}
	}
	return n, nil
}

// mostNamed is how many missing jobs an error names.
const mostNamed = 5

// notParked says of each id where its job is instead.
func (s *selection) notParked(ctx context.Context, ids []string) error {
	var parts []string
	for _, id := range ids[:min(len(ids), mostNamed)] {
		where, err := s.whereabouts(ctx, id)
		if err != nil {
			return err
		}
		parts = append(parts, where)
	}
	if more := len(ids) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("nor are %d more", more))
	}
	return &job.Error{Code: job.CodeNotFound, Message: strings.Join(parts, "; "),
		Hint: `see what is parked with "dispatcher dlq list", and any job with "dispatcher job ID"`}
}

// whereabouts says where a job is that was not found among the chosen.
func (s *selection) whereabouts(ctx context.Context, id string) (string, error) {
	var known []string
	for _, g := range s.gateways {
		r, ok, err := dispatch.Books(s.db.Client, g).Find(ctx, id)
		switch {
		case err != nil:
			return "", dispatch.Coded(err)
		case ok && r.State == job.Parked:
			return fmt.Sprintf("job %q is parked at %s as %s, and the other flags leave it out", id, g.Name, r.Reason), nil
		case ok && r.State == job.InFlight:
			known = append(known, fmt.Sprintf("%s at %s, until %s at the latest", r.State, g.Name, r.Deadline.Format(time.RFC3339)))
		case ok:
			known = append(known, fmt.Sprintf("%s at %s", r.State, g.Name))
		}
	}
	if len(known) == 0 {
		return fmt.Sprintf("no job %q", id), nil
	}
	return fmt.Sprintf("job %q is not parked: it is %s", id, strings.Join(known, " and ")), nil
}

// remarkMissing says which of several ids are not parked.
func (p *program) remarkMissing(ctx context.Context, s *selection, missing []string) error {
	if len(missing) == 0 || p.Quiet {
		return nil
	}
	err := s.notParked(ctx, missing)
	if job.CodeOf(err) != job.CodeNotFound {
		return err
	}
	p.remark("left out: %v", err)
	return nil
}
