package console

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"

	"spillway/internal/desk"
	"spillway/internal/job"
)

// batchDeed is a batch action in its form.
type batchDeed struct {
	desk.BatchAction
	Label string
	Means string
	Final bool
}

// batchDeeds are the batch actions, in display order.
var batchDeeds = []batchDeed{
	{desk.PauseBatch, "Pause", "No job of the batch is called until it is resumed; other batches go on in its place. Calls in flight finish, " +
		"and jobs of the batch that come in later wait with the others.", false},
	{desk.ResumeBatch, "Resume", "The jobs that a pause or first jobs (enqueue --canary) hold back go in again through admission as there is room, in the order of the file. What a cancel has parked stays parked.", false},
	{desk.CancelBatch, "Cancel", "All unsent jobs of the batch are parked as cancelled, including those that come in later. Calls in flight finish first. " +
		"Jobs that may have been charged are parked as unknown outcome. Each of them can be replayed.", true},
}

// batchChoices returns the actions that would change something.
func batchChoices(name string, b *desk.Batch) (all []choice) {
	for _, d := range batchDeeds {
		if whyNot(d, b) == "" {
			all = append(all, choice{d.Verb, d.Label, "/batches?" + url.Values{"name": {name}, "do": {d.Verb}}.Encode()})
		}
	}
	return all
}

// whyNot says why an action changes nothing; empty if it does.
func whyNot(d batchDeed, b *desk.Batch) string {
	every := func(is func(desk.BatchGateway) bool) bool {
		return !slices.ContainsFunc(b.Gateways, func(g desk.BatchGateway) bool { return !is(g) })
	}
	paused, cancelled := func(g desk.BatchGateway) bool { return g.PausedAt != nil }, func(g desk.BatchGateway) bool { return g.Cancelled != nil }
	waits := func(g desk.BatchGateway) bool { return g.Canary != nil && g.Canary.Waits }
	switch d.Verb {
	case desk.PauseBatch.Verb:
		if every(paused) {
			return "It is paused already."
		}
		if every(cancelled) {
			return "It is cancelled: nothing of it is called."
		}
	case desk.CancelBatch.Verb:
		if every(cancelled) {
			return "It is cancelled already."
		}
	default:
		if every(func(g desk.BatchGateway) bool { return !paused(g) && !cancelled(g) && !waits(g) }) {
			return "It is neither paused nor cancelled, and does not wait for its first jobs."
		}
	}
	return ""
}

// batchActView is the preview of a batch action.
type batchActView struct {
	base
	batchDeed
	Batch  string
	Link   string
	Would  []desk.BatchDeed
	All    job.Totals
	WhyNot string
	Who    string
}

func (c *Console) batchPreview(w http.ResponseWriter, r *http.Request) error {
	name := batchNamed(r)
	d, err := batchDeedOf(r.URL.Query().Get("do"))
	if err != nil {
		return err
	}
	b, err := c.desk(r.Context()).Batch(r.Context(), name)
	if err != nil {
		return err
	}
	v := &batchActView{base: base{Title: d.Label + " · batch " + name}, batchDeed: d, Batch: name, Link: batchLink(name, nil), Would: b.Would(d.BatchAction),
		WhyNot: whyNot(d, b), Who: whoBefore(r)}
	for _, would := range v.Would {
		v.All.Add(would.Totals)
	}
	c.show(w, r, http.StatusOK, "batch_act.html", v)
	return nil
}

func batchDeedOf(verb string) (batchDeed, error) {
	i := slices.IndexFunc(batchDeeds, func(d batchDeed) bool { return d.Verb == verb })
	if i < 0 {
		return batchDeed{}, wrong("unknown action", "choose one of the buttons")
	}
	return batchDeeds[i], nil
}

// batchAct is a batch action that this process has carried out, or is carrying out.
type batchAct struct {
	ID, Batch, Past string
	far             atomic.Int64 // jobs changed so far
	over            chan struct{}
	deeds           []desk.BatchDeed // valid once over is closed
	ended           error            // likewise
}

// batchActNow is a snapshot of such an action.
type batchActNow struct {
	Past    string
	Jobs    int64
	Money   string
	Doubt   job.Totals
	Pending job.Totals
	Over    bool
	Error   string
}

// Now returns the action's progress.
func (a *batchAct) Now() batchActNow {
	v := batchActNow{Past: a.Past, Jobs: a.far.Load()}
	select {
	case <-a.over:
	default:
		return v
	}
	var all job.Totals
	for _, d := range a.deeds {
		all.Add(d.Totals)
		if d.Doubt != nil {
			v.Doubt.Add(*d.Doubt)
		}
		if d.Pending != nil {
			v.Pending.Add(*d.Pending)
		}
	}
	v.Over, v.Jobs, v.Money = true, all.Jobs, all.Money()
	if a.ended != nil {
		v.Error = "It was not done for all jobs: someone else has acted on the batch meanwhile, or Redis was away. Look at the batch, and do it again if it is still wanted."
	}
	return v
}

// batchDo carries out what a preview has shown, and sends the browser to the batch's page, which shows the
// progress.
func (c *Console) batchDo(w http.ResponseWriter, r *http.Request) error {
	by, name := says(r), r.PostFormValue("name")
	d, err := batchDeedOf(r.PostFormValue("do"))
	switch {
	case err != nil:
		return err
	case by.who == "":
		return wrong("your name is missing, and it has to be recorded", "go back and type in who you are")
	case by.why == "":
		return wrong("no reason was given, and it has to be written down", "go back and type in why, such as a ticket's number")
	}
	b, err := c.desk(r.Context()).Batch(r.Context(), name)
	if err != nil {
		return err
	}
	if why := whyNot(d, b); why != "" {
		return wrong("nothing was done: "+why, "look at the batch again")
	}
	a := c.beginBatch(b, d, by)
	await(r.Context(), a.over, patience)
	remember(w, r, by.who)
	http.Redirect(w, r, batchLink(name, url.Values{"act": {a.ID}}), http.StatusSeeOther)
	return nil
}

// beginBatch starts an action that continues after its request.
func (c *Console) beginBatch(b *desk.Batch, d batchDeed, by saying) *batchAct {
	a := &batchAct{ID: rand.Text(), Batch: b.Batch, Past: d.Past, over: make(chan struct{})}
	c.batchActs.add(a)
	c.running.Go(func() {
		defer close(a.over)
		a.deeds, a.ended = b.Do(c.ctx, d.BatchAction, by.by(), func(jobs int64) { a.far.Add(jobs) })
		c.cfg.Log.Info("a batch was changed at the console", "batch", b.Batch, "what", d.Verb, "jobs", a.far.Load(), "who", by.name(), "why", by.why, "from", by.from, "error", a.ended)
	})
	return a
}
