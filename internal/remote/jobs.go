package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// JobOf names a job.
type JobOf struct {
	ID string `json:"-" path:"id"`
	At
	// Payload requests the payload, too: it may contain personal data.
	Payload bool `json:"payload,omitempty"`
}

// JobShown is a job, with its payload if requested: "job -o json".
type JobShown struct {
	desk.Job
	Payload json.RawMessage `json:"payload,omitempty"`
}

// JobAnswer is what is known of one job.
type JobAnswer struct {
	JobShown
	// Most is the most attempts that a job of the gateway may spend.
	Most int `json:"attempts_most"`
	// Unopened is why the payload can't be shown; empty if it can, or was not requested.
	Unopened string `json:"unopened,omitempty"`
}

// Job returns everything known of one job.
var Job = &Op[JobOf, None, JobAnswer]{About{Name: "findJob", Need: roles.Read, Method: http.MethodGet, Path: "/v1/jobs/{id}", Commands: []string{"job"}},
	func(ctx context.Context, h *Here, q JobOf, _ Out[None]) (v JobAnswer, err error) {
		found, err := h.findOne(ctx, q.At, q.ID)
		if err != nil {
			return v, err
		}
		if v.Job, err = found.Job(ctx); err != nil {
			return v, err
		}
		v.Most = found.Retry.Attempts
		if q.Payload {
			if len(found.Record.Job.Payload) > 0 {
				v.Payload = desk.PayloadJSON(found.Record.Job.Payload)
			}
			v.Unopened = unopened(found.Record)
		}
		return v, nil
	}}

func (h *Here) findOne(ctx context.Context, at At, id string) (f desk.Found, err error) {
	d, err := h.At(ctx, at.Gateways)
	if err != nil {
		return f, err
	}
	return d.FindOne(ctx, id)
}

// unopened returns why a job's payload can't be shown; empty if it can.
func unopened(r job.Record) string {
	if r.Unopened == nil {
		return ""
	}
	return r.Unopened.Error()
}

// ParkOf names a job to park.
type ParkOf struct {
	ID string `json:"-" path:"id"`
	At
	Actor
	// DryRun only returns what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// Park removes a job from the queue, or ends its look-ups, and parks it.
var Park = &Op[ParkOf, None, desk.ParkDeed]{About{Name: "parkJob", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/jobs/{id}/park", Act: true, Commands: []string{"park"}},
	func(ctx context.Context, h *Here, q ParkOf, _ Out[None]) (d desk.ParkDeed, err error) {
		by, err := q.acts(h, "park")
		if err != nil {
			return d, err
		}
		found, err := h.findOne(ctx, q.At, q.ID)
		if err != nil {
			return d, err
		}
		if d, err = found.WouldPark(); err != nil || q.DryRun {
			return d, err
		}
		d.Done = true
		return d, found.Park(ctx, by)
	}}

// JobsOf says which jobs to export.
type JobsOf struct {
	At
	States []string `json:"states,omitempty" query:"state"`
	Since  string   `json:"since,omitempty"`
	Until  string   `json:"until,omitempty"`
	// Time is the time to which Since and Until apply: accepted or finished. Empty: accepted.
	Time string `json:"time,omitempty"`
	ExportAs
}

// ExportAs is the form of an export.
type ExportAs struct {
	Fields []string `json:"fields,omitempty" query:"field"`
	// Format is ndjson or csv. Empty: ndjson.
	Format string `json:"format,omitempty"`
}

// Columns returns the payload fields, and whether the export is CSV.
func (e ExportAs) Columns() (fields []string, csv bool) { return e.Fields, e.Format == "csv" }

// check returns an error with code usage.
func (e ExportAs) check() error {
	if e.Format != "" && e.Format != "ndjson" && e.Format != "csv" {
		return usage("write ndjson or csv", fmt.Sprintf("format %.40q is neither of the two", e.Format))
	}
	return desk.CheckJobFields(e.Fields, "field")
}

// JobLine is what became of a job: a line of an export.
type JobLine struct {
	desk.JobLine
	// Unread is why its fields can't be read; empty if they can, or if none was requested.
	Unread string `json:"unopened,omitempty"`
}

// Jobs exports what became of jobs.
var Jobs = &Op[JobsOf, JobLine, None]{About{Name: "exportJobs", Need: roles.View, Method: http.MethodGet, Path: "/v1/jobs", Kind: Lines, Commands: []string{"export"}},
	func(ctx context.Context, h *Here, q JobsOf, out Out[JobLine]) (n None, err error) {
		of, err := q.query(time.Now().UTC())
		if err != nil {
			return n, err
		}
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return n, err
		}
		_, err = export(d.Jobs(ctx, of), out)
		return n, err
	}}

func (q JobsOf) query(now time.Time) (of desk.JobQuery, err error) {
	if err = q.check(); err != nil {
		return of, err
	}
	of.Fields = q.Fields
	for _, s := range q.States {
		of.States = append(of.States, job.State(s))
	}
	if err = desk.CheckStates(of.States, "state"); err != nil {
		return of, err
	}
	switch q.Time {
	case "", "accepted":
	case "finished":
		of.Finished = true
	default:
		return of, usage("write accepted or finished", fmt.Sprintf("time %.40q is neither of the two", q.Time))
	}
	of.Since, of.Until, err = between(q.Since, q.Until, now)
	return of, err
}

// between parses two times.
func between(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = desk.ParseAgo(since, now, "since"); err != nil {
		return from, to, err
	}
	if to, err = desk.ParseAgo(until, now, "until"); err != nil {
		return from, to, err
	}
	if !from.IsZero() && !to.IsZero() && !to.After(from) {
		return from, to, usage("let until be later than since", fmt.Sprintf("nothing is at or after %s and before %s", job.Moment(from), job.Moment(to)))
	}
	return from, to, nil
}

func export(lines iter.Seq2[desk.JobLine, error], out Out[JobLine]) (n int, err error) {
	for l, err := range lines {
		if err != nil {
			return n, err
		}
		n++
		line := JobLine{JobLine: l}
		if l.Unopened != nil {
			line.Unread = l.Unopened.Error()
		}
		if err := out.line(line); err != nil {
			return n, err
		}
	}
	return n, nil
}

// ForgetOf selects jobs whose payload, error and reference to erase.
type ForgetOf struct {
	At
	IDs   []string `json:"ids,omitempty"`
	Batch string   `json:"batch,omitempty"`
	// OlderThan is how long they must have been over: 30d. Empty: any time.
	OlderThan string `json:"older_than,omitempty"`
	Actor
	// DryRun only returns what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// Forgetting returns the request in the desk's form. The error has code usage.
func (q ForgetOf) Forgetting() (f desk.Forgetting, err error) {
	f = desk.Forgetting{IDs: q.IDs, Batch: q.Batch}
	if q.OlderThan != "" {
		wrong := ""
		if f.OlderThan, wrong = job.ReadDuration(q.OlderThan); wrong != "" || f.OlderThan <= 0 {
			return f, usage("write 30d, or 24h", fmt.Sprintf("older than %.40q is not a time", q.OlderThan))
		}
	}
	return f, f.Check()
}

// ForgotJobs is what was or would be erased: "forget -o json".
type ForgotJobs struct {
	Done     bool              `json:"done"`
	Gateways []desk.ForgetDeed `json:"gateways"`
	// Problem is why it was not done for all jobs; nil if it was.
	Problem *Fault `json:"problem,omitempty"`
}

// Unfinished reports that it stopped early: repeating it continues.
func (f ForgotJobs) Unfinished() bool { return f.Problem != nil }

// ForgetJobs erases payload, error and reference of jobs that are over.
var ForgetJobs = &Op[ForgetOf, BatchStep, ForgotJobs]{About{Name: "forgetJobs", Need: roles.Administer, Method: http.MethodPost, Path: "/v1/jobs/forget", Kind: Long, Act: true, Commands: []string{"forget"}},
	func(ctx context.Context, h *Here, q ForgetOf, out Out[BatchStep]) (d ForgotJobs, err error) {
		by, err := q.acts(h, "forget")
		if err != nil {
			return d, err
		}
		f, err := q.Forgetting()
		if err != nil {
			return d, err
		}
		at, err := h.At(ctx, q.Gateways)
		if err != nil {
			return d, err
		}
		if d.Done = !q.DryRun; q.DryRun {
			d.Gateways, err = at.WouldForget(ctx, f)
			return d, err
		}
		d.Gateways, err = at.Forget(ctx, f, by, inSteps(out))
		if d.Gateways == nil {
			return d, err
		}
		d.Problem = faultOf(ctx, err)
		return d, nil
	}}
