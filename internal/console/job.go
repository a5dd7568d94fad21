package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// jobView is everything known of one job.
type jobView struct {
	base
	job.Record
	Gateway string
	ID      string
	Why     string // it is where it is
	Next    string // what comes next, or what a person can do
	Key     string // idempotency key as the gateway sees it; empty where the gateway has none
	Money   string
	Most    int                 // retry.attempts
	By      *deadletter.Settled // how a person settled it; nil if nobody did
	Times   []event
	Clear   []choice
	Payload string
	Shown   bool
	Others  []string // links to jobs of the same id at other gateways
}

// event is a moment in a job's life.
type event struct {
	What string
	At   time.Time
}

func (c *Console) jobPage(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if id == "" {
		id = strings.TrimSpace(r.URL.Query().Get("id"))
	}
	if id == "" {
		return wrong("no job's id was given", "type one in above")
	}
	found, err := c.find(r.Context(), id, r.URL.Query().Get("gateway"))
	if err != nil {
		return err
	}
	v, err := c.viewJob(r.Context(), found[0].g, found[0].rec)
	if err != nil {
		return err
	}
	v.Shown = r.URL.Query().Get("payload") == "1"
	if v.Shown {
		v.Payload = readable(found[0].rec)
	}
	v.Live = !v.Shown
	for _, other := range found[1:] {
		v.Others = append(v.Others, other.g.Name)
	}
	c.show(w, r, http.StatusOK, "job.html", v)
	return nil
}

type found struct {
	g   config.Gateway
	rec job.Record
}

// find returns the records of a job id, of one gateway or of all.
func (c *Console) find(ctx context.Context, id, gateway string) ([]found, error) {
	var all []found
	for _, g := range c.gateways() {
		if gateway != "" && g.Name != gateway {
			continue
		}
		rec, ok, err := dispatch.Books(c.cfg.Redis, g).Find(ctx, id)
		if err != nil {
			return nil, dispatch.Coded(err)
		}
		if ok {
			all = append(all, found{g, rec})
		}
	}
	if len(all) == 0 {
		return nil, &job.Error{Code: job.CodeNotFound, Message: "no job has this id",
			Hint: "it was never enqueued here, or it was done longer ago than dedupe"}
	}
	return all, nil
}

func (c *Console) viewJob(ctx context.Context, g config.Gateway, rec job.Record) (*jobView, error) {
	v := &jobView{base: base{Title: rec.Job.ID}, Record: rec, Gateway: g.Name, ID: rec.Job.ID, Most: g.Retry.Attempts}
	var err error
	if v.Why, v.Next, err = c.why(ctx, g, rec); err != nil {
		return nil, err
	}
	if g.Request.IdempotencyHeader != "" {
		v.Key = g.Request.KeyPrefix + job.IdempotencyKey(rec.Job.ID, rec.KeyGeneration)
	}
	if g.Amount.Field != "" && (len(rec.Job.Payload)+len(rec.Sealed) > 0 || rec.Money != "") {
		p := newPile()
		p.add(rec, g.Amount)
		v.Money = p.Money()
	}
	for _, e := range []event{{"accepted", rec.Accepted}, {"not before", rec.Job.At}, {"first call with this key", rec.FirstCall}, {"due again", rec.Due},
		{"open attempt ends at the latest", rec.Deadline}, {"parked", rec.ParkedAt}, {"edited", rec.Edited}, {"expires", rec.Job.Expires},
		{"finished", rec.Finished}} {
		if !e.At.IsZero() {
			v.Times = append(v.Times, e)
		}
	}
	if rec.State == job.Parked {
		v.Clear = choices(g, filter{IDs: rec.Job.ID, Reasons: []job.Reason{rec.Reason}}, rec.InDoubt())
	}
	if v.By, err = deadletter.New(c.cfg.Redis, g.Name).Settlements()(ctx, rec); err != nil {
		return nil, dispatch.Coded(err)
	}
	return v, nil
}

// Link is the job's page, with or without its payload.
func (v *jobView) Link(gateway string) string { return jobLink(gateway, v.ID) }

// Hidden is the address of the page for a form that shows or hides the payload.
func (v *jobView) Hidden() []field { return fields(url.Values{"id": {v.ID}, "gateway": {v.Gateway}}) }

// why says why a job is where it is, and what comes next.
func (c *Console) why(ctx context.Context, g config.Gateway, rec job.Record) (why, next string, err error) {
	switch rec.State {
	case job.Done:
		return "It is done: the call succeeded, or a person resolved it as done.", "Its id stays known for " + short(g.Dedupe) + " after that.", nil
	case job.Discarded:
		return "A person has discarded it.", "It is never sent. Its payload and what the gateway said of it are deleted. Its id stays known for " + short(g.Dedupe) + " after that.", nil
	case job.Parked:
		why, next = parkedWhy(g, rec)
		if errors.Is(rec.Unopened, job.ErrDamaged) {
			next = strings.ToUpper(rec.Unopened.Error()[:1]) + rec.Unopened.Error()[1:] + "."
		}
		if rec.InDoubt() {
			next = "It may have been charged: look it up at the gateway, then resolve it as done or as not done. It can't be discarded before."
		}
		return why, next, nil
	}
	if why, err = dispatch.WhyNot(ctx, c.cfg.Redis, g, rec); err != nil {
		return "", "", err
	}
	return strings.ToUpper(why[:1]) + why[1:] + ".", "", nil
}

// parkedWhy explains a reason to the person who has to decide.
func parkedWhy(g config.Gateway, rec job.Record) (why, next string) {
	switch rec.Reason {
	case job.Paused:
		return "Its batch is paused.", dispatch.ResumeBatch(rec.Job.Batch) + ", in the order of the file."
	case job.Rejected:
		if g.Replay == config.ReplayAuto {
			return "Admission had no room for it.", "It goes in by itself when there is room."
		}
		return "Admission had no room for it.", "Replay it when there is room."
	case job.Refused:
		return "The gateway said a definite no.", "A replay goes out with a new idempotency key."
	case job.Exhausted:
		return "Its attempts are used up.", "Replay it once the cause is gone."
	case job.UnknownOutcome:
		return "It may or may not have been charged: a call went out and no certain answer came back.",
			"It is never sent again by itself."
	case job.Expired:
		return "Its time to expire passed before it was sent.", "Discard it, or enqueue it anew with another id."
	case job.Cancelled:
		return "Its batch was cancelled, or a person parked it.", "Replay or discard it."
	case job.Unreadable:
		return "It is not a job: something else put it into the queue.", "Look at its payload, then discard it."
	}
	return "It is parked as " + string(rec.Reason) + ", a reason that this version does not know.", "Look at it with the version that parked it."
}
