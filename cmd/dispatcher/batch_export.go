package main

import (
	"context"

	"spillway/internal/cli"
)

// batchExport writes a line for each job, gateway by gateway in the order of the file, in memory that does not grow with the batch.
func (p *program) batchExport(ctx context.Context, name string, f *batchFlags) error {
	if f.by != "" {
		return cli.Usage("ask once with --by and once with --export", "--by and --export don't go together")
	}
	if err := f.out.check(p); err != nil {
		return err
	}
	s, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	out, err := p.newJobWriter(&f.out)
	if err != nil {
		return err
	}
	if err := out.all(s.desk.BatchJobs(ctx, name, f.out.fields)); err != nil {
		return err
	}
	if out.rows == 0 {
		return s.desk.NoBatch(ctx, name)
	}
	return nil
}
