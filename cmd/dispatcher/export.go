package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

// exportJobsFlags are the flags of "export".
type exportJobsFlags struct {
	gateways            []string
	states              []string
	since, until, times string
	batch               string
	out                 exportFlags
}

const (
	timesAccepted = "accepted"
	timesFinished = "finished"
)

func exportCommand(p *program) *cobra.Command {
	f := &exportJobsFlags{}
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Write the result of every job, for finance",
		Long: `Export writes a line for each job that has a record, with its state, amount, currency, reference and times,
and who settled it and why, whether or not the job has a batch. A record is kept for "dedupe" after the
job's end.

It reads the keys of Redis in short steps during normal operation, so the lines are in no particular order.
Each job appears once, in its state when it was read; jobs accepted meanwhile may be left out. --batch NAME
writes the jobs of one batch in file order, as "dispatcher batch NAME --export" does, which is faster. For a
billing file of parked jobs, use "dispatcher dlq export".
` + exportedHelp,
		Example: "  dispatcher export -g stripe --format csv > stripe.csv\n  dispatcher export --time finished --since 2026-11-01 --until 2026-12-01 --state done --format csv\n" +
			"  dispatcher export --state parked --fields payload.customer -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.exportJobs(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only jobs of this `GATEWAY`; repeatable (default: all of the file)")
	fs := cmd.Flags()
	fs.StringArrayVar(&f.states, "state", nil, "only jobs in this `STATE`: scheduled, queued, in_flight, retrying, pending, done, parked or discarded; repeatable (default: all)")
	fs.StringVar(&f.since, "since", "", "only jobs accepted at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\", RFC 3339")
	fs.StringVar(&f.until, "until", "", "only jobs accepted before `TIME`")
	cli.Choice(cmd, &f.times, "time", "the time that --since and --until compare: when the job was accepted, or when it was done or discarded", timesAccepted, timesFinished)
	fs.StringVar(&f.batch, "batch", "", "the jobs of the batch `NAME`, in the order of the file")
	f.out.declare(cmd)
	return cmd
}

// query parses the flags.
func (f *exportJobsFlags) query(cmd *cobra.Command, now time.Time) (q desk.JobQuery, err error) {
	for name, value := range map[string]string{"since": f.since, "until": f.until} {
		if value == "" && cmd.Flags().Changed(name) {
			return q, emptyFlag(name)
		}
	}
	q.Fields, q.Finished = f.out.fields, f.times == timesFinished
	for _, s := range f.states {
		q.States = append(q.States, job.State(s))
	}
	if err = desk.CheckStates(q.States, "--state"); err != nil {
		return q, err
	}
	if q.Since, err = desk.ParseAgo(f.since, now, "--since"); err != nil {
		return q, err
	}
	if q.Until, err = desk.ParseAgo(f.until, now, "--until"); err != nil {
		return q, err
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Until.After(q.Since) {
		return q, cli.Usage("let --until be later than --since", "nothing is at or after %s and before %s", job.Moment(q.Since), job.Moment(q.Until))
	}
	return q, nil
}

// exportOfBatch exports a single batch.
func (p *program) exportOfBatch(cmd *cobra.Command, f *exportJobsFlags) error {
	if f.batch == "" {
		return emptyFlag("batch")
	}
	for _, other := range []string{"state", "since", "until", "time"} {
		if cmd.Flags().Changed(other) {
			return cli.Usage("leave one of them out", "--batch writes a whole batch, and --%s chooses among the jobs of all", other)
		}
	}
	return p.batchExport(cmd.Context(), f.batch, &batchFlags{gateways: f.gateways, out: f.out})
}

func (p *program) exportJobs(cmd *cobra.Command, f *exportJobsFlags) error {
	if cmd.Flags().Changed("batch") {
		return p.exportOfBatch(cmd, f)
	}
	q, err := f.query(cmd, time.Now())
	if err != nil {
		return err
	}
	if err := f.out.check(p); err != nil {
		return err
	}
	out, err := p.newJobWriter(&f.out)
	if err != nil {
		return err
	}
	as := remote.JobsOf{At: remote.At{Gateways: f.gateways}, States: f.states, Since: desk.Stamp(q.Since), Until: desk.Stamp(q.Until), Time: f.times, ExportAs: remote.ExportAs{Fields: f.out.fields}}
	if err := exported(cmd.Context(), p, out, f.gateways, remote.Jobs, as); err != nil {
		return err
	}
	if out.rows == 0 {
		p.nothingMeant("job")
	}
	return nil
}

// exported writes the jobs of an export operation. What was written before an error stays.
func exported[Q any](ctx context.Context, p *program, out *jobWriter, gateways []string, op *remote.Op[Q, remote.JobLine, remote.None], q Q) error {
	d, err := p.atAll(ctx, gateways)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = op.Do(ctx, d, q, remote.Out[remote.JobLine]{Line: out.write})
	if out.rows == 0 && err != nil {
		return err
	}
	if ended := out.end(); err == nil {
		err = ended
	}
	return err
}

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
