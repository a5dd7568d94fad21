package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Admittance is what became of an enqueued job.
type Admittance string

// These are the results of an accepted job.
const (
	Enqueued  Admittance = "enqueued"  // new: queued, or scheduled for its At
	ParkedNow Admittance = "parked"    // new, and waiting for room
	Duplicate Admittance = "duplicate" // known already with the same payload; see Result.Resent
)

// Result is what became of one job.
type Result struct {
	Gateway, ID string
	// Result says how the job was accepted; empty if it was not.
	Result Admittance
	// State is the state of a new job.
	State State
	// Reason is Rejected for a job that waits for room.
	Reason Reason
	// KnownAt is the other gateway that has a duplicate, if ids are unique over all gateways; empty: its own.
	KnownAt string
	// Resent says that this call has sent the job more than once, because no answer came. This call itself may then have enqueued a Duplicate: the job is in once in any case.
	Resent bool
	// Err says why the job was not accepted; nil if it was. With the code InvalidJob, OtherPayload or TooLarge it is useless to send the job again. With NoRoom nothing was changed. With any other
	// code the job may be in, and it is safe to send it again. Err is an *Error, or the cause of the end of the context.
	Err error
}

// In reports whether the dispatcher has the job, from this call or from before.
func (r Result) In() bool { return r.Err == nil }

const (
	requestJobs  = 5000    // at most so many jobs go in a request
	requestBytes = 4 << 20 // about so long may it be
)

// Enqueue enqueues jobs, in their order for each gateway, and returns the result of each, in the order given. The error is nil if and only if all are in. Else it tells how many
// are not, and wraps the reason of the first one.
//
// A job is accepted once, however often it is sent: the dispatcher knows its id. So a request whose answer was lost is sent again, and its jobs are then Duplicate, with Resent. Calling
// Enqueue again with the same jobs changes nothing, also after a crash.
func (c *Client) Enqueue(ctx context.Context, jobs ...Job) ([]Result, error) {
	e := newEnqueuing(c, jobs)
	b := c.backoff()
	for len(e.left) > 0 {
		failed, progress := e.round(ctx)
		if len(e.left) == 0 {
			break
		}
		if progress {
			b.reset()
		}
		if err := b.pause(ctx, failed); err != nil {
			e.giveUp(err)
		}
	}
	return e.results, e.err()
}

// enqueuing is one call of Enqueue.
type enqueuing struct {
	c       *Client
	results []Result
	lines   [][]byte // the jobs as they are sent
	left    []int    // those without a result, in their order
}

func newEnqueuing(c *Client, jobs []Job) *enqueuing {
	e := &enqueuing{c: c, results: make([]Result, len(jobs)), lines: make([][]byte, len(jobs))}
	for i, j := range jobs {
		e.results[i] = Result{Gateway: j.Gateway, ID: j.ID}
		line, err := plainJSON(j)
		switch {
		case err != nil:
			e.results[i].Err = &Error{Code: InvalidJob, Detail: "the payload can't be written as JSON: " + err.Error(), Gateway: j.Gateway, JobID: j.ID, Err: err}
		case j.Gateway == "":
			e.results[i].Err = &Error{Code: InvalidJob, Detail: "the job names no gateway", Hint: "set Job.Gateway", JobID: j.ID}
		default:
			e.lines[i] = line
			e.left = append(e.left, i)
		}
	}
	return e
}

// round sends all jobs that are left, gateway by gateway. It returns a failure that may pass, if there is one, and whether any job got a result.
func (e *enqueuing) round(ctx context.Context) (failed *Error, progress bool) {
	before := len(e.left)
	of := map[string][]int{}
	var order []string
	for _, i := range e.left {
		g := e.results[i].Gateway
		if of[g] == nil {
			order = append(order, g)
		}
		of[g] = append(of[g], i)
	}
	for _, g := range order {
		for jobs := of[g]; len(jobs) > 0; jobs = e.open(jobs) {
			if wrong := e.send(ctx, g, jobs[:e.fit(jobs)]); wrong != nil {
				failed = later(failed, wrong)
				break // the rest would overtake these
			}
		}
	}
	e.left = e.open(e.left)
	return failed, len(e.left) < before
}

// open returns those of jobs that have no result yet.
func (e *enqueuing) open(jobs []int) (open []int) {
	for _, i := range jobs {
		if e.lines[i] != nil {
			open = append(open, i)
		}
	}
	return open
}

// later returns the failure after which to try again later.
func later(a, b *Error) *Error {
	if a == nil || b.RetryAfter > a.RetryAfter {
		return b
	}
	return a
}

// fit returns how many jobs fit into one request.
func (e *enqueuing) fit(jobs []int) int {
	bytes := 0
	for n, i := range jobs {
		if bytes += len(e.lines[i]) + 1; n == requestJobs || n > 0 && bytes > requestBytes {
			return n
		}
	}
	return len(jobs)
}

// settle records the result of a job.
func (e *enqueuing) settle(i int, r Result) {
	r.Gateway, r.ID, r.Resent = e.results[i].Gateway, e.results[i].ID, e.results[i].Resent
	e.results[i], e.lines[i] = r, nil
}

// send sends jobs of one gateway. It returns a failure that may pass if some of them have no result; else at least one got its result.
func (e *enqueuing) send(ctx context.Context, gateway string, jobs []int) *Error {
	var body []byte
	for _, i := range jobs {
		body = append(append(body, e.lines[i]...), '\n')
	}
	onFull := "park"
	if e.c.wait {
		onFull = "fail"
	}
	back, p, failed := e.c.once(ctx, call{method: http.MethodPost, path: path("v1", "gateways", gateway, "jobs"), query: url.Values{"on_full": {onFull}},
		header: map[string]string{"Content-Type": asLines, "Accept": asLines}, body: body})
	if failed == nil {
		defer back.Body.Close()
		return e.read(back.Body, jobs, gateway)
	}
	if failed.Status == 0 {
		e.resent(jobs)
	}
	if len(p.Lines) > 0 { // none of the first lines is in; the later ones were not read
		return e.refused(p.Lines, jobs, gateway)
	}
	if !failed.passing() {
		for _, i := range jobs {
			own := *failed
			own.Gateway, own.JobID = gateway, e.results[i].ID
			e.settle(i, Result{Err: &own})
		}
		return nil
	}
	return failed
}

// resent records that jobs may be in although there was no answer.
func (e *enqueuing) resent(jobs []int) {
	for _, i := range jobs {
		if e.lines[i] != nil {
			e.results[i].Resent = true
		}
	}
}

// refused records what is wrong with each line of a refused request.
func (e *enqueuing) refused(lines []problem, jobs []int, gateway string) (open *Error) {
	for _, p := range lines {
		if wrong := e.declined(p, jobs, gateway); wrong != nil {
			open = later(open, wrong)
		}
	}
	return open
}

// declined records what is wrong with a line, and returns it if it may pass.
func (e *enqueuing) declined(p problem, jobs []int, gateway string) *Error {
	wrong := p.err(gateway)
	if p.Line < 1 || p.Line > len(jobs) {
		return wrong
	}
	i := jobs[p.Line-1]
	if wrong.passing() {
		if p.ID != "" && wrong.Code != NoRoom {
			e.resent(jobs[p.Line-1 : p.Line])
		}
		return wrong
	}
	wrong.JobID = e.results[i].ID
	e.settle(i, Result{Err: wrong})
	return nil
}

// taken is the answer line of an accepted job.
type taken struct {
	Line    int        `json:"line,omitempty"`
	ID      string     `json:"id"`
	Gateway string     `json:"gateway,omitempty"`
	Status  int        `json:"status,omitempty"`
	Result  Admittance `json:"result"`
	State   State      `json:"state,omitempty"`
	Reason  Reason     `json:"reason,omitempty"`
	KnownAt string     `json:"known_at,omitempty"`
}

// read reads the answer line by line. A job without a line was not read, or its answer is lost.
func (e *enqueuing) read(from io.Reader, jobs []int, gateway string) (open *Error) {
	lines := bufio.NewReader(from)
	for {
		text, err := readLine(lines)
		if err != nil {
			return e.missing(err, jobs, gateway, open)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		var t taken
		var p problem
		if err := json.Unmarshal(text, &t); err != nil {
			return e.missing(err, jobs, gateway, open)
		}
		if t.Result == "" {
			if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
				return e.missing(errors.New("a line of it can't be read"), jobs, gateway, open)
			}
			if wrong := e.declined(p, jobs, gateway); wrong != nil {
				open = later(open, wrong)
			}
			continue
		}
		if t.Line >= 1 && t.Line <= len(jobs) {
			e.settle(jobs[t.Line-1], Result{Result: t.Result, State: t.State, Reason: t.Reason, KnownAt: t.KnownAt})
		}
	}
}

// missing returns why a job has no result at the end of an answer.
func (e *enqueuing) missing(err error, jobs []int, gateway string, open *Error) *Error {
	rest := e.open(jobs)
	if len(rest) == 0 || err == io.EOF && open != nil {
		return open
	}
	e.resent(rest)
	return cmp.Or(open, &Error{Code: NoAnswer, Detail: "the answer ended before the line of this job", Gateway: gateway, JobID: e.results[rest[0]].ID, Err: err})
}

// giveUp gives the jobs that are left the error that has ended the call.
func (e *enqueuing) giveUp(err error) {
	for _, i := range e.left {
		if own, ok := err.(*Error); ok {
			one := *own
			one.Gateway, one.JobID = e.results[i].Gateway, e.results[i].ID
			e.settle(i, Result{Err: &one})
			continue
		}
		e.settle(i, Result{Err: err})
	}
	e.left = nil
}

// err says how many jobs are not in.
func (e *enqueuing) err() error {
	var first error
	out := 0
	for _, r := range e.results {
		if r.Err == nil {
			continue
		}
		if out++; first == nil {
			first = r.Err
		}
	}
	switch {
	case out == 0:
		return nil
	case len(e.results) == 1:
		return first
	}
	return fmt.Errorf("%d of %d jobs are not in; the first of them: %w", out, len(e.results), first)
}
