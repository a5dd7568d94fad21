package console

import (
	"context"
	"net/http"
	"time"

	"spillway/internal/desk"
	"spillway/internal/doctor"
)

// examineTime is how long the page waits for an examination. A longer one is shown the next time.
const examineTime = 4 * time.Second

type healthView struct {
	base
	desk.Processes
	// Nobody says that there are no checks.
	Nobody bool
	// Report is the last examination; nil: it is still running.
	Report       *doctor.Examined
	Fails, Warns []doctor.Shown
	Redis        []doctor.Check // passed checks of Redis and of the file as a whole
	Well         int            // number of passed checks of gateways
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

// sort sorts the results into the sections of the page.
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
