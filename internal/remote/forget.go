package remote

import (
	"context"
	"fmt"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

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
		d.Gateways, err = at.Forget(ctx, f, by, func(jobs int64) { _ = out.line(BatchStep{jobs}) }) // if the client has gone, ctx has ended
		if d.Gateways == nil {
			return d, err
		}
		d.Problem = faultOf(ctx, err)
		return d, nil
	}}
