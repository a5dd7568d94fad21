package console

import (
	"context"
	"net/http"
	"time"

	"spillway/internal/desk"
	"spillway/internal/doctor"
)

// examineTime is how long the page waits for an examination. What takes longer is shown the next time.
const examineTime = 4 * time.Second

type healthView struct {
	base
	desk.Processes
	// Nobody looks for what will go wrong.
	Nobody bool
	// Report is the last examination; nil: it is still under way.
	Report       *doctor.Examined
	Fails, Warns []doctor.Shown
	Redis        []doctor.Check // what is well with Redis and with the file as a whole
	Well         int            // what is well with gateways
}

func (c *Console) health(w http.ResponseWriter, r *http.Request) (err error) {
	if err := forAll(r); err != nil {
		return err
	}
	v := &healthView{base: base{Title: "Health", Live: true}, Nobody: c.cfg.Examiner == nil}
	if v.Processes, err = desk.WhoServes(r.Context(), c.cfg.Redis); err != nil {
		return err
	}
	if !v.Nobody {
		ctx, cancel := context.WithTimeout(r.Context(), examineTime)
		defer cancel()
		if v.Report = c.cfg.Examiner.Last(ctx); v.Report != nil {
			v.sort(*v.Report)
		}
	}
	c.show(w, r, http.StatusOK, "health.html", v)
	return nil
}

// sort puts what was found where the page has it.
func (v *healthView) sort(of doctor.Examined) {
	v.Fails, v.Warns = doctor.Few(of.Findings(doctor.Fail)), doctor.Few(of.Findings(doctor.Warn))
	for _, ok := range of.Findings(doctor.OK) {
		if ok.Gateway == "" {
			v.Redis = append(v.Redis, ok)
		} else {
			v.Well++
		}
	}
}
