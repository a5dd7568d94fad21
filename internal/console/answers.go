package console

import (
	"net/http"
	"net/url"
	"time"

	"spillway/internal/desk"
)

type answersView struct {
	base
	desk.Answers
	hourly
	Name  string // of the gateway
	Since string // as it was typed
	Batch string
}

// answersSince is the default period of the page.
const answersSince = "1h"

func (c *Console) answers(w http.ResponseWriter, r *http.Request) error {
	g, err := c.gateway(r.Context(), r.PathValue("gateway"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &answersView{base: base{Title: "Answers of " + g.Name}, Name: g.Name, Since: q.Get("since"), Batch: q.Get("batch")}
	if v.Since == "" && v.Batch == "" {
		v.Since = answersSince
	}
	var since time.Time
	if v.Since != "" {
		if since, err = desk.ParseAgo(v.Since, time.Now().UTC(), "since"); err != nil {
			return err
		}
	}
	if v.Answers, err = g.Answers(r.Context(), since, v.Batch); err != nil {
		return err
	}
	if v.hourly, err = hoursOf(r, &desk.Desk{Gateways: []*desk.Gateway{g}}); err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "answers.html", v)
	return nil
}

// answersLink returns the page of a gateway's answers to a batch.
func answersLink(gateway, batch string) string {
	return "/gateways/" + gateway + "/answers?" + url.Values{"batch": {batch}}.Encode()
}
