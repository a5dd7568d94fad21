package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
)

func (c *Console) pause(w http.ResponseWriter, r *http.Request) error {
	who, why := typed(r, "who"), typed(r, "why")
	switch {
	case who == "":
		return wrong("nobody's name was given, and it is shown with the pause", "go back and type in who you are")
	case why == "":
		return wrong("no reason was given, and it is shown with the pause", "go back and type in why")
	}
	return c.steer(w, r, saying{who: who, why: why, from: r.RemoteAddr}, "pause", func(ctx context.Context, p *bucket.Pacer) error {
		return p.Pause(ctx, why+" ("+who+")")
	})
}

func (c *Console) resume(w http.ResponseWriter, r *http.Request) error {
	return c.steer(w, r, saying{who: whoBefore(r), from: r.RemoteAddr}, "resume", func(ctx context.Context, p *bucket.Pacer) error {
		return p.Resume(ctx)
	})
}

// steer does something to a gateway's pacer and goes back to its page.
func (c *Console) steer(w http.ResponseWriter, r *http.Request, by saying, what string, act func(context.Context, *bucket.Pacer) error) error {
	g, err := c.gateway(r.PathValue("gateway"))
	if err != nil {
		return err
	}
	p, err := dispatch.Pacer(c.cfg.Redis, g, bucket.NewMetrics(nil))
	if err != nil {
		return err
	}
	defer p.Close(r.Context())
	if err := c.note(r.Context(), g, by, what, func(ctx context.Context) error { return act(ctx, p) }); err != nil {
		return err
	}
	c.back(w, r, g, by, what)
	return nil
}

// note does something to a gateway and writes it into the trail.
func (c *Console) note(ctx context.Context, g config.Gateway, by saying, what string, do func(context.Context) error) error {
	who := strings.TrimSpace(by.who + " (console)")
	return dispatch.Coded(deadletter.New(c.cfg.Redis, g.Name).Steer(ctx, deadletter.Act{Who: who, What: what, Why: by.why}, do))
}

// back writes an action to the log, and sends the browser to the gateway's page.
func (c *Console) back(w http.ResponseWriter, r *http.Request, g config.Gateway, by saying, what string) {
	c.cfg.Log.Info("a gateway was changed at the console", "gateway", g.Name, "what", what, "who", by.who, "why", by.why, "from", by.from)
	if by.who != "" {
		remember(w, r, by.who)
	}
	http.Redirect(w, r, "/gateways/"+g.Name, http.StatusSeeOther)
}

// limitView is what holds now and what will.
type limitView struct {
	base
	Gateway  string
	Now, New string
	File     string
	SetLive  bool
	Reset    bool
	Same     bool
	Waiting  int64
	Takes    time.Duration // for those waiting, at the new limits
	Above    bool          // they allow more than the file's
	Busier   string        // admission lets more in than the new limits let out
	Who      string
}

// asked reads new limits: none means those of the file.
func asked(text string, reset bool) ([]config.Limit, error) {
	if reset {
		return nil, nil
	}
	var to []config.Limit
	for _, one := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		l, err := config.ParseLimit(one)
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
	g, err := c.gateway(r.PathValue("gateway"))
	if err != nil {
		return err
	}
	reset := r.URL.Query().Get("reset") == "1"
	to, err := asked(r.URL.Query().Get("to"), reset)
	if err != nil {
		return err
	}
	if err := dispatch.CheckLimits(c.cfg.Redis, g, to); err != nil {
		return err
	}
	now, err := dispatch.CurrentLimits(r.Context(), c.cfg.Redis, g)
	if err != nil {
		return err
	}
	s, err := dispatch.Books(c.cfg.Redis, g).Look(r.Context())
	if err != nil {
		return dispatch.Coded(err)
	}
	v := &limitView{base: base{Title: "Limits · " + g.Name}, Gateway: g.Name, Now: limitText(now.Limits), SetLive: now.Live,
		File: limitText(g.Leak.Limits), Reset: reset, New: limitText(to), Waiting: s.Queued + s.InFlight + s.Retrying, Who: whoBefore(r)}
	if reset {
		to, v.New = g.Leak.Limits, v.File
	}
	v.Same = v.New == v.Now && reset == !now.Live
	v.Takes = time.Duration(float64(v.Waiting) / config.PerSecond(to) * float64(time.Second))
	v.Above = config.PerSecond(to) > config.PerSecond(g.Leak.Limits)
	if in := dispatch.AdmissionAt(g, dispatch.Limits{Limits: to, Live: !reset}).Limits; config.PerSecond(in) > config.PerSecond(to) {
		v.Busier = limitText(in)
	}
	c.show(w, r, http.StatusOK, "limit.html", v)
	return nil
}

func (c *Console) setLimit(w http.ResponseWriter, r *http.Request) error {
	g, err := c.gateway(r.PathValue("gateway"))
	if err != nil {
		return err
	}
	by := saying{who: typed(r, "who"), why: typed(r, "why"), from: r.RemoteAddr}
	if by.who == "" {
		return wrong("nobody's name was given, and it has to be written down", "go back and type in who you are")
	}
	reset := r.PostFormValue("reset") == "1"
	to, err := asked(r.PostFormValue("to"), reset)
	if err != nil {
		return err
	}
	if err := dispatch.CheckLimits(c.cfg.Redis, g, to); err != nil {
		return err
	}
	what := "limit set " + limitText(to)
	if reset {
		what = "limit reset"
	}
	if err := c.note(r.Context(), g, by, what, func(ctx context.Context) error { return dispatch.SetLimits(ctx, c.cfg.Redis, g, to) }); err != nil {
		return err
	}
	c.back(w, r, g, by, what)
	return nil
}
