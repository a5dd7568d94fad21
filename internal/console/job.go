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
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// jobView is everything known of one job.
type jobView struct {
	base
	job.Record
	Gateway string
	ID      string
	Why     string // why it is in its state
	Next    string // what happens next, or what a person can do
	Key     string // idempotency key as the gateway sees it; empty if the gateway has no keys
	Money   string
	Most    int                 // retry.attempts
	By      *deadletter.Settled // how an operator settled it; nil if never
	Facts   []desk.Fact
	Times   []event
	Clear   []choice
	Payload string
	Shown   bool
	Others  []string // links to jobs of the same id at other gateways
}

// event is a time in a job's life.
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
	if prefix, is := prefixOf(id); is && job.CodeOf(err) == job.CodeNotFound {
		return c.search(w, r, prefix)
	}
	if err != nil {
		return err
	}
	v, err := viewJob(r.Context(), found[0])
	if err != nil {
		return err
	}
	v.Shown = r.URL.Query().Get("payload") == "1"
	if v.Shown {
		if err := c.payloads(r); err != nil {
			return err
		}
		v.Payload = readable(found[0].Record)
	}
	v.Live = !v.Shown
	if !whoAsks(r.Context()).May(roles.Operate) {
		v.Clear = nil
	}
	for _, other := range found[1:] {
		v.Others = append(v.Others, other.Name)
	}
	c.show(w, r, http.StatusOK, "job.html", v)
	return nil
}

// find returns the records of a job id, at one gateway or at all.
func (c *Console) find(ctx context.Context, id, gateway string) ([]desk.Found, error) {
	d := c.desk(ctx)
	if gateway != "" {
		g, err := c.gateway(ctx, gateway)
		if err != nil {
			return nil, err
		}
		d = &desk.Desk{Gateways: []*desk.Gateway{g}}
	}
	return d.Find(ctx, id)
}

func viewJob(ctx context.Context, f desk.Found) (*jobView, error) {
	rec := f.Record
	all, err := f.Job(ctx)
	if err != nil {
		return nil, err
	}
	v := &jobView{base: base{Title: rec.Job.ID}, Record: rec, Gateway: f.Name, ID: rec.Job.ID, Most: f.Retry.Attempts, By: all.Settled}
	v.Why, v.Next = why(f, all.Why)
	if all.Key != "" {
		v.Key = f.Request.Key.Text(all.Key)
	}
	if len(rec.Job.Payload)+len(rec.Sealed) > 0 || rec.Money != "" {
		v.Money = f.Money(rec).Money()
	}
	for _, fact := range append(all.Given(), all.Facts()...) {
		switch {
		case fact.At != nil:
			v.Times = append(v.Times, event{fact.Name, *fact.At})
		case fact.Name != desk.FactSettled && fact.Name != desk.FactError:
			v.Facts = append(v.Facts, fact)
		}
	}
	for _, e := range []event{{"first call with this key", rec.FirstCall}, {"open attempt ends at the latest", rec.Deadline}, {"edited", rec.Edited}} {
		if !e.At.IsZero() {
			v.Times = append(v.Times, e)
		}
	}
	if rec.State == job.Parked {
		v.Clear = choices(f.Gateway, filter{means: deadletter.Filter{IDs: []string{rec.Job.ID}, Reasons: []job.Reason{rec.Reason}}, Reasons: []job.Reason{rec.Reason}}, rec.InDoubt())
	}
	if parkable(rec) {
		v.Clear = []choice{{"park", parkLabel(rec), "/gateways/" + f.Name + "/park?" + url.Values{"id": {rec.Job.ID}}.Encode()}}
	}
	return v, nil
}

// ForRoom reports whether the job is parked and only waits for room: its state then says everything.
func (v *jobView) ForRoom() bool { return v.State == job.Parked && v.Reason == job.Rejected }

// StateWords returns the state for people.
func (v *jobView) StateWords() string { return words(job.StateWords(v.State, v.Reason)) }

// Link returns the job's page, with or without its payload.
func (v *jobView) Link(gateway string) string { return jobLink(gateway, v.ID) }

// Hidden returns the address of the page for a form that shows or hides the payload.
func (v *jobView) Hidden() []field { return fields(url.Values{"id": {v.ID}, "gateway": {v.Gateway}}) }

// why says why a job is in its state, and what happens next. notRunning is the reason for jobs that are not
// parked.
func why(f desk.Found, notRunning string) (why, next string) {
	rec := f.Record
	known := "Its id stays known for " + short(f.Dedupe) + " after that."
	switch rec.State {
	case job.Done:
		return "It is done: the call succeeded, or a person resolved it as done.", known
	case job.Discarded:
		return "A person has discarded it.", "It is never sent. Its payload and what the gateway said of it are deleted. " + known
	case job.Parked:
		why, next = parkedWhy(f.Gateway, rec)
		if errors.Is(rec.Unopened, job.ErrDamaged) {
			next = sentence(rec.Unopened.Error())
		}
		if rec.InDoubt() {
			next = "It may have been charged: look it up at the gateway, then resolve it as done or as not done. It can't be discarded before."
			if f.CanAsk() {
				next += " Or have the gateway asked."
			}
		}
		return why, next
	}
	if rec.State == job.Pending {
		next = "It settles itself as soon as the gateway can tell. To settle it yourself, stop the asking first."
	}
	return sentence(notRunning), next
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// parkedWhy explains a reason to the person who has to decide.
func parkedWhy(g *desk.Gateway, rec job.Record) (why, next string) {
	about := rec.Reason.About()
	switch {
	case rec.Reason == job.Paused:
		about.Next = dispatch.ResumeBatch(rec.Job.Batch) + ", in the order of the file."
	case rec.Reason == job.Rejected && g.Replay == config.ReplayAuto:
		about.Next = "It goes in by itself when there is room."
	}
	return about.Why, about.Next
}

// parkable reports whether an operator can park the job: it is waiting, or pending.
func parkable(rec job.Record) bool { return rec.Waits() || rec.State == job.Pending }

// parkLabel returns the button's label.
func parkLabel(rec job.Record) string {
	if rec.State == job.Pending {
		return "Stop asking, and park"
	}
	return "Park"
}

// parkView is the preview of parking one job, with the form that does it.
type parkView struct {
	base
	desk.ParkDeed
	Label string
	Sums  string // its money, in words
	Asked bool   // it is pending
	Who   string
}

// waiting returns the job of a request to park.
func (c *Console) waiting(r *http.Request) (desk.Found, error) {
	id := r.FormValue("id")
	if id == "" {
		return desk.Found{}, wrong("no job's id was given", "go back to the job's page")
	}
	found, err := c.find(r.Context(), id, r.PathValue("gateway"))
	if err != nil {
		return desk.Found{}, err
	}
	return found[0], nil
}

func (c *Console) parkPreview(w http.ResponseWriter, r *http.Request) error {
	f, err := c.waiting(r)
	if err != nil {
		return err
	}
	d, err := f.WouldPark()
	if err != nil {
		return err
	}
	v := &parkView{base: base{Title: "Park " + d.ID}, ParkDeed: d, Label: parkLabel(f.Record), Sums: f.Money(f.Record).Money(), Asked: f.Record.State == job.Pending, Who: whoBefore(r)}
	c.show(w, r, http.StatusOK, "park.html", v)
	return nil
}

// park carries out what the preview has shown, and sends the browser to the job's page.
func (c *Console) park(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return wrong("the form can't be read", "go back and try again")
	}
	by := says(r)
	if by.who == "" || by.why == "" {
		return wrong("a name or a reason is missing, and both have to be written down", "go back and type them in")
	}
	f, err := c.waiting(r)
	if err == nil {
		_, err = f.WouldPark()
	}
	if err != nil {
		return err
	}
	err = f.Park(r.Context(), by.by())
	c.cfg.Log.Info("a job was parked at the console", "gateway", f.Name, "job", f.Record.Job.ID, "who", by.name(), "why", by.why, "from", r.RemoteAddr, "error", err)
	if err != nil {
		return err
	}
	remember(w, r, by.who)
	http.Redirect(w, r, jobLink(f.Name, f.Record.Job.ID), http.StatusSeeOther)
	return nil
}
