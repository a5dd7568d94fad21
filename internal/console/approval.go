package console

import (
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/job"
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
