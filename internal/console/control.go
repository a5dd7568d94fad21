package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

func (c *Console) pause(w http.ResponseWriter, r *http.Request) error {
	by := says(r)
	switch {
	case by.who == "":
		return wrong("your name is missing, and it is shown with the pause", "go back and type in who you are")
	case by.why == "":
		return wrong("no reason was given, and it is shown with the pause", "go back and type in why")
	}
	shown := by.why + " (" + by.name() + ")"
	return c.steer(w, r, by, "pause", func(ctx context.Context, g *desk.Gateway, by desk.By) error {
		return g.Pause(ctx, by, shown)
	})
}

func (c *Console) resume(w http.ResponseWriter, r *http.Request) error {
	return c.steer(w, r, saying{who: whoBefore(r), from: r.RemoteAddr, in: whoAsks(r.Context())}, "resume", func(ctx context.Context, g *desk.Gateway, by desk.By) error {
		return g.Resume(ctx, by)
	})
}

// steer acts on a gateway and returns to its page.
func (c *Console) steer(w http.ResponseWriter, r *http.Request, by saying, what string, act func(context.Context, *desk.Gateway, desk.By) error) error {
	g, err := c.gateway(r.Context(), r.PathValue("gateway"))
	if err != nil {
		return err
	}
	if err := act(r.Context(), g, by.by()); err != nil {
		return err
	}
	c.back(w, r, g, by, what)
	return nil
}

// back logs an action, and sends the browser to the gateway's page.
func (c *Console) back(w http.ResponseWriter, r *http.Request, g *desk.Gateway, by saying, what string) {
	c.cfg.Log.Info("a gateway was changed at the console", "gateway", g.Name, "what", what, "who", by.name(), "why", by.why, "from", by.from)
	if by.who != "" {
		remember(w, r, by.who)
	}
	http.Redirect(w, r, "/gateways/"+g.Name, http.StatusSeeOther)
}

// limitView is the limits in force and the new ones.
type limitView struct {
	base
	Gateway  string
	Now, New string
	File     string
	SetLive  bool
	Reset    bool
	Same     bool
	Waiting  int64
	Takes    time.Duration // for those waiting, with the new limits
	Above    bool          // they allow more than the configured ones
	Busier   string        // admission lets in more than the new limits let out
	Who      string
}

// asked parses new limits; nil means the configured ones.
func asked(text string, reset bool) ([]job.Limit, error) {
	if reset {
		return nil, nil
	}
	var to []job.Limit
	for _, one := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		l, err := job.ParseLimit(one)
		if err != nil {
			return nil, wrong(err.Error(), "write one or more limits like 100/s or 300/10s, with blanks between")
		}
		to = append(to, l)
	}
	if len(to) == 0 {
		return nil, wrong("no limit was given", "write one or more limits like 100/s or 300/10s, or let the file's hold again")
	}
	return to, nil
}

func (c *Console) limitPreview(w http.ResponseWriter, r *http.Request) error {
	g, err := c.gateway(r.Context(), r.PathValue("gateway"))
	if err != nil {
		return err
	}
	reset := r.URL.Query().Get("reset") == "1"
	to, err := asked(r.URL.Query().Get("to"), reset)
	if err != nil {
		return err
	}
	if err := g.CheckLimits(to); err != nil {
		return err
	}
	now, err := g.Status(r.Context())
	if err != nil {
		return err
	}
	holds, err := g.Limits(r.Context())
	if err != nil {
		return err
	}
	v := &limitView{base: base{Title: "Limits · " + g.Name}, Gateway: g.Name, Now: strings.Join(holds.Limits, " "), SetLive: holds.SetLive,
		File: desk.LimitsText(g.Leak.Limits), Reset: reset, New: desk.LimitsText(to), Waiting: now.Queued + now.InFlight + now.Retrying, Who: whoBefore(r)}
	if reset {
		to, v.New = g.Leak.Limits, v.File
	}
	v.Same = v.New == v.Now && reset == !holds.SetLive
	v.Takes = time.Duration(float64(v.Waiting) / job.PerSecond(to) * float64(time.Second))
	v.Above = job.PerSecond(to) > job.PerSecond(g.Leak.Limits)
	if in := dispatch.AdmissionAt(g.Gateway, dispatch.Limits{Limits: to, Live: !reset}).Limits; job.PerSecond(in) > job.PerSecond(to) {
		v.Busier = desk.LimitsText(in)
	}
	c.show(w, r, http.StatusOK, "limit.html", v)
	return nil
}

func (c *Console) setLimit(w http.ResponseWriter, r *http.Request) error {
	by := says(r)
	if by.who == "" {
		return wrong("your name is missing, and it has to be recorded", "go back and type in who you are")
	}
	to, err := asked(r.PostFormValue("to"), r.PostFormValue("reset") == "1")
	if err != nil {
		return err
	}
	return c.steer(w, r, by, strings.TrimSpace("limits "+desk.LimitsText(to)), func(ctx context.Context, g *desk.Gateway, by desk.By) error {
		return g.SetLimits(ctx, by, to)
	})
}
