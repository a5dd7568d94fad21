package main

import (
	"context"

	"spillway/internal/cli"
	"spillway/internal/remote"
)

// batchExport writes a line for each job, gateway by gateway in configured order, in bounded memory.
func (p *program) batchExport(ctx context.Context, name string, f *batchFlags) error {
	if f.by != "" {
		return cli.Usage("ask once with --by and once with --export", "--by and --export don't go together")
	}
	if err := f.out.check(p); err != nil {
		return err
	}
	out, err := p.newJobWriter(&f.out)
	if err != nil {
		return err
	}
	return exported(ctx, p, out, []string{name}, remote.BatchJobs, remote.BatchJobsOf{Name: name, At: remote.At{Gateways: f.gateways}, ExportAs: remote.ExportAs{Fields: f.out.fields}})
}
