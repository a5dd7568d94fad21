package console

import (
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/job"
)

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
