package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/roles"
)

// taken is the answer for an accepted job.
type taken struct {
	Line    int            `json:"line,omitempty"` // of the body, counted from 1; only for many jobs
	ID      string         `json:"id"`
	Gateway string         `json:"gateway,omitempty"`
	Status  int            `json:"status,omitempty"` // as for a single job; only for many jobs
	Result  job.Admittance `json:"result"`           // enqueued, parked or duplicate
	State   job.State      `json:"state,omitempty"`
	Reason  job.Reason     `json:"reason,omitempty"`   // of parking
	KnownAt string         `json:"known_at,omitempty"` // the other gateway that knows a duplicate
}

// order is a POST of jobs: the gateway, and what happens to jobs without room.
type order struct {
	name string
	to   Gateway
	mode admission.Mode
}

// read says how the jobs are written.
func (o order) read(all map[string]Gateway) producer.Options {
	return producer.Options{Format: producer.NDJSON, Gateway: o.name, Gateways: func(name string) (int64, bool) {
		g, ok := all[name]
		return g.MaxCost, ok
	}, Amount: func(name string) job.AmountRule { return all[name].Amount }, Cards: func(name string) job.CardRule { return all[name].Cards }}
}

// check refuses a job that names another gateway than the path.
func (o order) check(j job.Job) error {
	if j.Gateway != o.name {
		return fmt.Errorf("the job names gateway %s, but was posted to %s", j.Gateway, o.name)
	}
	return nil
}

// post accepts one job, or many as NDJSON.
func (a *API) post(w http.ResponseWriter, r *http.Request) {
	o := order{name: r.PathValue("gateway")}
	var known bool
	if o.to, known = a.known(r)[o.name]; !known {
		noGateway(o.name).answer(w)
		return
	}
	take, p := a.taker(r)
	if p == nil {
		o.mode, p = modeOf(r.URL.Query())
	}
	if p == nil && a.stopping.Load() {
		p = new(stopping())
	}
	if p != nil {
		drain(w, r)
		p.answer(w)
		return
	}
	take(w, r, o)
}

// taker returns the handler for the body's type.
func (a *API) taker(r *http.Request) (func(http.ResponseWriter, *http.Request, order), *problem) {
	const hint = "send one job as application/json, or many as application/x-ndjson, a line each"
	if c := r.Header.Get("Content-Encoding"); c != "" && c != "identity" {
		return nil, new(newProblem(codeMedia, "the body is compressed", "send it as it is"))
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/json":
		return a.one, nil
	case err == nil && (kind == "application/x-ndjson" || kind == "application/ndjson" || kind == "application/jsonl"):
		return a.many, nil
	}
	return nil, new(newProblem(codeMedia, "the Content-Type is not one that jobs are written in", hint))
}

func modeOf(q url.Values) (admission.Mode, *problem) {
	switch values := q["on_full"]; {
	case len(values) == 0:
		return admission.Fail, nil
	case len(values) == 1 && (values[0] == string(admission.Park) || values[0] == string(admission.Fail)):
		return admission.Mode(values[0]), nil
	}
	return "", new(newProblem(codeRequest, "on_full must be park or fail, and there once at most", "leave it out to be told when there is no room"))
}

// one accepts one job.
func (a *API) one(w http.ResponseWriter, r *http.Request, o order) {
	in := &held{r: r.Body, of: &a.bodies}
	defer in.drop()
	text, p := body(in, r.ContentLength)
	if p != nil {
		drain(w, r)
		p.answer(w)
		return
	}
	j, err := producer.One(text, o.read(a.known(r)))
	if err == nil {
		err = o.check(j)
	}
	if err != nil {
		newProblem(codeInvalid, err.Error(), "").answer(w)
		return
	}
	begun := time.Now()
	got, err := a.gather.admit(r.Context(), j, o.mode)
	a.accepted(r.Context(), []job.Job{j}, []admission.Answer{got}, begun)
	if err != nil {
		p := a.problemOf(r, err)
		p.ID = j.ID
		p.answer(w)
		return
	}
	rateLimit(r.Context(), w.Header(), o.to, got.Room)
	a.tell(w, r, j, got)
}

// body reads a body of at most one job.
func body(in io.Reader, length int64) ([]byte, *problem) {
	tooLarge := newProblem(codeLarge, fmt.Sprintf("the body is longer than %d bytes, the most that a job may have", job.MaxLine), "")
	if length > job.MaxLine {
		return nil, &tooLarge
	}
	text, err := io.ReadAll(io.LimitReader(in, job.MaxLine+1))
	switch {
	case err != nil:
		return nil, brokenOff(err)
	case len(text) > job.MaxLine:
		return nil, &tooLarge
	}
	return text, nil
}

func brokenOff(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return new(newProblem(codeSlow, "the body came too slowly", "send the same again: "+knownByID))
	}
	return new(newProblem(codeRequest, "the body broke off", "send the same again: "+knownByID))
}

// Bounds on reading an unwanted body. A client that is still sending when the connection ends often misses the
// answer.
const (
	drainBytes = 32 << 20
	drainTime  = 5 * time.Second
)

// drain reads an unwanted body, unless the client waits for 100-continue.
func drain(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime)) // not supported by a test recorder
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, drainBytes))
}

// tell answers for one job.
func (a *API) tell(w http.ResponseWriter, r *http.Request, j job.Job, got admission.Answer) {
	elsewhere := got.KnownAt != ""
	got = visible(r, got)
	t, p := outcome(j, got, time.Now())
	if p != nil {
		p.answer(w)
		return
	}
	t.Gateway = r.PathValue("gateway")
	at := cmp.Or(t.KnownAt, t.Gateway)
	status := t.Status
	t.Status = 0
	if got.Outcome == job.Duplicate {
		if state, err := a.cfg.State(r.Context(), at, j.ID); err == nil {
			t.State = state
		}
	}
	text, err := json.Marshal(t)
	if err != nil {
		a.problemOf(r, err).answer(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !elsewhere || t.KnownAt != "" {
		w.Header().Set("Location", place(at, j.ID))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// visible returns an answer without the other gateway that knows a job, if the sender has no access to it.
func visible(r *http.Request, got admission.Answer) admission.Answer {
	if who, _ := roles.Of(r.Context()); got.KnownAt == "" || who.Sees(got.KnownAt) {
		return got
	}
	if got.KnownAt = ""; got.Err != nil {
		got.Err = errors.New("the id is known with another payload: the first one stands")
	}
	return got
}

// place returns the path of a job. Clients interpret . and .. as path steps.
func place(gateway, id string) string {
	escaped := url.PathEscape(id)
	if escaped == "." || escaped == ".." {
		escaped = strings.ReplaceAll(escaped, ".", "%2E")
	}
	return "/v1/gateways/" + gateway + "/jobs/" + escaped
}

// outcome returns what became of a job: it is accepted, or there is a problem.
func outcome(j job.Job, got admission.Answer, now time.Time) (taken, *problem) {
	t := taken{ID: j.ID, Result: got.Outcome, Status: http.StatusAccepted}
	switch got.Outcome {
	case job.Enqueued:
		t.State = job.Queued
		if j.At.After(now) {
			t.State = job.Scheduled
		}
	case job.ParkedNow:
		t.State, t.Reason = job.Parked, job.Rejected
	case job.Duplicate:
		t.Status, t.KnownAt = http.StatusOK, got.KnownAt
	default:
		p := declined(got)
		p.ID = j.ID
		return taken{}, &p
	}
	return t, nil
}

func declined(got admission.Answer) problem {
	switch {
	case got.Outcome == job.Full && got.Room.Parked.Bounds():
		reached, key := got.Room.Parked.Reached()
		p := newProblem(codeFull, fmt.Sprintf("this job could only be parked now, and %s: nothing was changed", reached),
			fmt.Sprintf("send it again after Retry-After; it goes in when parked jobs were called, replayed, resolved or discarded, or %s was raised", key))
		p.RetryAfter = seconds(mostRetry)
		return p
	case got.Outcome == job.Full:
		p := newProblem(codeFull, "admission has no room for this job now: nothing was changed", "send it again after Retry-After, or with ?on_full=park")
		p.RetryAfter = seconds(retryAfter(*got.Room))
		return p
	case got.Outcome == job.Damaged:
		return newProblem(codeFailed, got.Err.Error(), "")
	case got.Outcome == job.Conflict && got.Err != nil:
		return newProblem(codeConflict, got.Err.Error(), "")
	case got.Err != nil:
		return newProblem(codeInvalid, got.Err.Error(), "")
	}
	return newProblem(codeUnavailable, "it is unknown whether this job was accepted", "send the same again: "+knownByID)
}

// accepted records in the jobs' traces what admission did with them, which started at begun.
func (a *API) accepted(ctx context.Context, jobs []job.Job, answers []admission.Answer, begun time.Time) {
	n := min(len(jobs), len(answers))
	a.cfg.Traces.Accepted(ctx, jobs[:n], func(i int) job.Admittance { return answers[i].Outcome }, begun, time.Now())
}
