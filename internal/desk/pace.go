package desk

import (
	"context"
	"strconv"
	"strings"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// Pace limits the speed of a replay. The zero Pace replays as fast as there is room.
type Pace struct {
	// Rate is the highest rate, in units of cost a second, spread evenly. Zero means no bound.
	Rate float64
	// Share limits the rate to a part of the gateway's current limits, 0 to 1. Zero means no bound.
	Share float64
	// Canary is how many jobs go first; the rest follows when each of them is done. Zero means that all go at
	// once.
	Canary int

	rate, share string // as typed
}

// SetRate parses a rate such as 50/s or 300/10s. name is its name in errors.
func (p *Pace) SetRate(text, name string) error {
	l, err := job.ParseLimit(text)
	if err != nil {
		return usage("write it like 50/s, 3000/m or 300/10s, or leave it out for no bound", "%s %v", name, err)
	}
	p.Rate, p.rate = l.PerSecond(), text
	return nil
}

// SetShare parses a share such as 20%. name is its name in errors.
func (p *Pace) SetShare(text, name string) error {
	const hint = "write it like 20%, more than 0% and at most 100%"
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !percent || strings.ContainsAny(number, "xXpP_nN"):
		return usage(hint, "%s %q is not a percentage", name, text)
	case !(n > 0 && n <= 100):
		return usage(hint, "%s %s is not a part of the gateway's limits", name, text)
	}
	p.Share, p.share = n/100, text
	return nil
}

// text returns the pace as command-line flags.
func (p Pace) text() (text string) {
	if p.rate != "" {
		text += " --rate " + p.rate
	}
	if p.share != "" {
		text += " --share " + p.share
	}
	if p.Canary > 0 {
		text += " --canary " + strconv.Itoa(p.Canary)
	}
	return text
}

// leave returns what the gateway permits a replay now. It reads the hold and the limits each time.
func (g *Gateway) leave(ctx context.Context, p Pace) (deadletter.Leave, error) {
	leave := deadletter.Leave{Rate: p.Rate}
	hold, err := dispatch.Hold(ctx, g.redis, g.Gateway)
	if err != nil {
		return leave, err
	}
	if leave.Stop = stoppedBy(g.Name, hold); leave.Stop == "" && hold.Circuit {
		leave.Stop, err = g.openCircuit(ctx, hold)
	}
	if err != nil || p.Share == 0 || leave.Stop != "" {
		return leave, err
	}
	now, err := dispatch.CurrentLimits(ctx, g.redis, g.Gateway)
	leave.Rate = p.Share * job.PerSecond(now.Limits)
	return leave, err
}

// stoppedBy says what holds a gateway's calls back; empty if nothing does. A pending probe is no reason to
// stop, because the replay may supply it.
func stoppedBy(gateway string, s bucket.Standing) string {
	switch {
	case s.Paused:
		return because(gateway+" is paused", s.PauseWhy)
	case !s.HeldUntil.IsZero():
		return because(gateway+" is held until "+job.Moment(s.HeldUntil), s.Reason)
	}
	return ""
}

// openCircuit says that a gateway's circuit is still open after its hold, and that other jobs wait for the
// probe. If no other job waits, the replay itself has to supply the probe. If that fails, the next call of
// leave finds the hold.
func (g *Gateway) openCircuit(ctx context.Context, hold bucket.Standing) (string, error) {
	now, err := g.Books.Look(ctx)
	if err != nil {
		return "", err
	}
	if now.Queued+now.InFlight+now.Retrying+now.Pending == 0 {
		return "", nil
	}
	return because("the circuit of "+g.Name+" is open", hold.Reason), nil
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}
