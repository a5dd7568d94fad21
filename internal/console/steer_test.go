package console

import (
	"net/url"
	"testing"

	"spillway/internal/job"
)

func TestTheOverviewShowsTheMoneyThatIsParked(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	_, page := r.get("/")
	lacks(t, page, "EUR ")
	r.park(2, `{"amount":1200,"currency":"EUR"}`, job.Refused, "HTTP 402")
	_, page = r.get("/")
	wants(t, page, "EUR 24.00")
}

func TestWhoSteersAtTheConsoleIsInTheTrail(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	at := "/gateways/" + r.g.Name
	for _, c := range []struct {
		path string
		form url.Values
		what string
		why  string
	}{
		{"/pause", url.Values{"who": {"Ada"}, "why": {"maintenance"}}, "pause", "maintenance"},
		{"/resume", nil, "resume", ""},
		{"/limit", url.Values{"who": {"Ada"}, "why": {"they asked"}, "to": {"5/s"}}, "limit set 5/s", "they asked"},
		{"/limit", url.Values{"who": {"Ada"}, "reset": {"1"}}, "limit reset", ""},
	} {
		if status, page := r.post(at+c.path, c.form); status != 200 {
			t.Fatalf("%s: %d\n%s", c.path, status, page)
		}
		if a := r.lastAct(); a.What != c.what || a.Why != c.why || a.Who != "Ada (console)" || a.Ended == nil || a.Jobs != 0 {
			t.Errorf("%s: the trail says %+v", c.path, a)
		}
	}
	_, page := r.get(at)
	wants(t, page, "limit set 5/s", "they asked", "maintenance")
	lacks(t, page, "<code>all</code>")
}
