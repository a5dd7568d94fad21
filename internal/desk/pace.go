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

// Pace is how carefully a replay goes. The zero one goes as fast as there is room.
type Pace struct {
	// Rate is how fast jobs go in at the most, in units of cost a second, spread evenly. Zero means no bound.
	Rate float64
	// Share bounds it by a part of the gateway's limits as they are now, 0 to 1. Zero means no bound.
	Share float64
	// Canary is how many jobs go first: the rest follows when each of them is done. Zero means that all go at once.
	Canary int

	rate, share string // as typed
}

// SetRate reads a rate like 50/s or 300/10s. name is how errors call it.
func (p *Pace) SetRate(text, name string) error {
	l, err := job.ParseLimit(text)
	if err != nil {
		return usage("write it like 50/s, 3000/m or 300/10s, or leave it out for no bound", "%s %v", name, err)
	}
	p.Rate, p.rate = l.PerSecond(), text
	return nil
}

// SetShare reads a share like 20%. name is how errors call it.
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

// text is the pace as flags of the command line.
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

// leave says what a replay may do at the gateway now: it asks for the hold and the limits each time.
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

// stoppedBy says what keeps a gateway's calls back; empty if nothing does. The one call that goes first after a hold is
// no reason to stop: a replay may be what brings it.
func stoppedBy(gateway string, s bucket.Standing) string {
	switch {
	case s.Paused:
		return because(gateway+" is paused", s.PauseWhy)
	case !s.HeldUntil.IsZero():
		return because(gateway+" is held until "+job.Moment(s.HeldUntil), s.Reason)
	}
	return ""
}

// openCircuit says that a gateway's circuit is still open when its hold is over, and that other jobs wait for the call that shows whether it
// is back. If no other job waits, the replay itself has to bring that call. If it fails, the next look finds the hold.
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
