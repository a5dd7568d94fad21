package console

import (
	"net/http"
	"time"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// approvalView is what an approver is shown of a batch, with the form that approves exactly that.
type approvalView struct {
	base
	Batch string
	Link  string
	Parts []desk.BatchApproval
	All   job.Totals
	Token string
	Who   string
}

// approvalsView is everything that awaits approval.
type approvalsView struct {
	base
	Batches  []desk.AwaitingBatch
	Requests []desk.Request
	Approves bool // the viewer may approve
	Who      string
	Note     string
}

// approvals lists what awaits approval, or shows the named batch to an approver.
func (c *Console) approvals(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Get("name") != "" {
		if err := lacking(r, roles.Approve); err != nil {
			return err
		}
		return c.approvalPage(w, r)
	}
	v := &approvalsView{base: base{Title: "Approvals"}, Approves: whoAsks(r.Context()).May(roles.Approve), Who: whoBefore(r)}
	var err error
	if v.Batches, err = c.desk(r.Context()).AwaitingBatches(r.Context()); err != nil {
		return err
	}
	if v.Requests, err = c.desk(r.Context()).Requests(r.Context()); err != nil {
		return err
	}
	if id := r.URL.Query().Get("request"); id != "" {
		one, err := c.desk(r.Context()).Request(r.Context(), id)
		if err != nil {
			return err
		}
		v.Note = requestNote(one)
	}
	c.show(w, r, http.StatusOK, "approvals.html", v)
	return nil
}

// requestNote describes the state of a request.
func requestNote(r desk.Request) string {
	text := r.Text() + ": "
	switch {
	case r.Open():
		return text + "a second person has to approve it, until then nothing is done"
	case r.State == "approved":
		return text + r.DecidedBy + " has approved it, and it is being done"
	case r.State == "done":
		return text + r.DecidedBy + " has approved it, and it was done: the page of the gateway says to how many jobs"
	}
	return text + r.DecidedBy + " has rejected it"
}

// decide approves or rejects a request. An approved one continues in the background.
func (c *Console) decide(w http.ResponseWriter, r *http.Request, by saying) error {
	one, err := c.desk(r.Context()).Request(r.Context(), r.PostFormValue("request"))
	if err != nil {
		return err
	}
	did, over := "reject", make(chan error, 1)
	if r.PostFormValue("do") == "reject" {
		over <- one.Reject(r.Context(), by.by())
	} else {
		did = "approve"
		c.running.Go(func() {
			_, err := one.Approve(c.ctx, by.by(), c.cfg.Traces, func(*desk.Bulk) {})
			c.cfg.Log.Info("a request was decided at the console", "request", one.ID, "gateway", one.Gateway, "what", did, "who", by.name(), "why", by.why, "from", by.from, "error", err)
			over <- err
		})
	}
	select {
	case err = <-over:
	case <-time.After(patience): // it continues
	case <-r.Context().Done():
	}
	if did == "reject" {
		c.cfg.Log.Info("a request was decided at the console", "request", one.ID, "gateway", one.Gateway, "what", did, "who", by.name(), "why", by.why, "from", by.from, "error", err)
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/approvals?request="+one.ID, http.StatusSeeOther)
	return nil
}

func (c *Console) approvalPage(w http.ResponseWriter, r *http.Request) error {
	name := batchNamed(r)
	b, err := c.desk(r.Context()).Batch(r.Context(), name)
	if err != nil {
		return err
	}
	v := &approvalView{base: base{Title: "Approve · batch " + name}, Batch: name, Link: batchLink(name, nil), Who: whoBefore(r)}
	if v.Parts, err = b.Approval(r.Context()); err != nil {
		return err
	}
	if v.Token, err = desk.ShownToken(name, v.Parts); err != nil {
		return err
	}
	for _, part := range v.Parts {
		v.All.Add(part.Waiting)
	}
	c.show(w, r, http.StatusOK, "approval.html", v)
	return nil
}

// approve approves what was shown, or rejects the batch, and sends the browser to its page.
func (c *Console) approve(w http.ResponseWriter, r *http.Request) error {
	by, name := says(r), r.PostFormValue("name")
	if by.why == "" {
		return wrong("no reason was given, and it has to be written down", "go back and type in why, such as a ticket's number")
	}
	if err := by.by().NeedsName("an approval"); err != nil {
		return err
	}
	if r.PostFormValue("request") != "" {
		return c.decide(w, r, by)
	}
	b, err := c.desk(r.Context()).Batch(r.Context(), name)
	if err != nil {
		return err
	}
	did, jobs := "reject", int64(0)
	if r.PostFormValue("do") == "reject" {
		_, err = b.Do(r.Context(), desk.RejectBatch, by.by(), func(int64) {})
	} else {
		did = "approve"
		var shown map[string]string
		if shown, err = desk.ShownBy(name, r.PostFormValue("token")); err != nil {
			return wrong("it was not shown what this would approve", "go back to the batch and look at it")
		}
		_, err = b.Approve(r.Context(), by.by(), shown, func(n int64) { jobs += n })
	}
	c.cfg.Log.Info("a batch was changed at the console", "batch", b.Batch, "what", did, "jobs", jobs, "who", by.name(), "why", by.why, "from", by.from, "error", err)
	if err != nil {
		return err
	}
	http.Redirect(w, r, batchLink(name, nil), http.StatusSeeOther)
	return nil
}
