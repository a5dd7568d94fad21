package main

import (
	"context"
	"time"

	"spillway/internal/cli"
	"spillway/internal/desk"
)

// batchExport writes a line for each job, gateway by gateway in the order of the file, in memory that does not grow with the batch.
func (p *program) batchExport(ctx context.Context, name string, f *batchFlags) error {
	if f.by != "" {
		return cli.Usage("ask once with --by and once with --export", "--by and --export don't go together")
	}
	s, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	out := p.newPaged("ID", "GATEWAY", "STATE", "REASON", "STATUS", "REFERENCE", "ATTEMPTS", "ACCEPTED", "CALLED", "FINISHED", "SETTLED")
	for line, failed := range s.desk.BatchJobs(ctx, name) {
		if err = failed; err == nil {
			err = p.exportJob(out, line)
		}
		if err != nil {
			break
		}
	}
	lines := out.rows
	if flushed := out.flush(); err == nil {
		err = flushed
	}
	if err == nil && lines == 0 {
		return desk.NoBatch(name)
	}
	return err
}

func (p *program) exportJob(out *paged, l desk.BatchJob) error {
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
