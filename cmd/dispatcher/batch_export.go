package main

import (
	"context"
	"time"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// forgotten is the state of a job whose record is gone: it was over longer ago than dedupe.
const forgotten job.State = "forgotten"

// batchLine is a line of "batch NAME --export -o json".
type batchLine struct {
	ID         string              `json:"id"`
	Gateway    string              `json:"gateway"`
	State      job.State           `json:"state"`
	Reason     job.Reason          `json:"reason,omitempty"`
	Status     int                 `json:"status,omitempty"`
	Reference  string              `json:"reference,omitempty"`
	Settled    *deadletter.Settled `json:"settled,omitempty"`
	Error      string              `json:"error,omitempty"`
	Attempts   int                 `json:"attempts"`
	Replays    int                 `json:"replays"`
	AcceptedAt *time.Time          `json:"accepted_at"`
	CalledAt   *time.Time          `json:"called_at,omitempty"`
	ParkedAt   *time.Time          `json:"parked_at,omitempty"`
	FinishedAt *time.Time          `json:"finished_at,omitempty"`
}

// batchExport writes a line for each job, gateway by gateway in the order of the file, in memory that does not grow with the batch.
func (p *program) batchExport(ctx context.Context, name string, f *batchFlags) error {
	if f.by != "" {
		return cli.Usage("ask once with --by and once with --export", "--by and --export don't go together")
	}
	s, chosen, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	out := p.newPaged("ID", "GATEWAY", "STATE", "REASON", "STATUS", "REFERENCE", "ATTEMPTS", "ACCEPTED", "CALLED", "FINISHED", "SETTLED")
	for _, g := range chosen {
		if err = p.exportFrom(ctx, s, g, name, out); err != nil {
			break
		}
	}
	lines := out.rows
	if flushed := out.flush(); err == nil {
		err = flushed
	}
	if err == nil && lines == 0 {
		return noBatch(name)
	}
	return err
}

func (p *program) exportFrom(ctx context.Context, s *session, g config.Gateway, name string, out *paged) error {
	settled := deadletter.New(s.db.Client, g.Name).Settlements()
	for r, err := range dispatch.Books(s.db.Client, g).BatchJobs(ctx, name) {
		if err != nil {
			return dispatch.Coded(err)
		}
		line := lineOf(r)
		if line.Settled, err = settled(ctx, r); err != nil {
			return dispatch.Coded(err)
		}
		if err := p.exportJob(out, line); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) exportJob(out *paged, l batchLine) error {
	if p.JSON() {
		out.rows++
		return cli.WriteJSON(out.out, l)
	}
	status, settled := any(nil), ""
	if l.Status > 0 {
		status = l.Status
	}
	if l.Settled != nil {
		settled = l.Settled.Text()
	}
	return out.row(cli.Uncut(l.ID), cli.Uncut(l.Gateway), l.State, l.Reason, status, cli.Uncut(l.Reference), l.Attempts,
		moments(l.AcceptedAt), moments(l.CalledAt), moments(l.FinishedAt), cli.Uncut(settled))
}

func moments(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func lineOf(r job.Record) batchLine {
	l := batchLine{ID: r.Job.ID, Gateway: r.Job.Gateway, State: r.State, Status: r.Status, Reference: r.Reference, Error: r.Error,
		Attempts: r.Attempts, Replays: r.Replays, AcceptedAt: when(r.Accepted), FinishedAt: when(r.Finished)}
	switch r.State {
	case "":
		l.State = forgotten
	case job.Parked:
		l.Reason, l.ParkedAt = r.Reason, when(r.ParkedAt)
	case job.Discarded:
		l.Reason = r.Reason
	}
	if len(r.History) > 0 {
		l.CalledAt = when(r.History[len(r.History)-1].At)
	}
	return l
}
