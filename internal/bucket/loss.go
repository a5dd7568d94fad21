package bucket

import (
	"context"
	"fmt"
)

// Loss is a finding of a reservation: Redis may not know every slot that was given out.
type Loss struct {
	// Charged is the units charged to each long limit for what may be missing, at most what the limit allows.
	// The charge lasts for a window, or until Forgive. Zero if no limit is long, or nothing is missing.
	Charged int64
	// Why says how that is known.
	Why string
}

func newLoss(charged, why int64) Loss {
	reasons := []string{
		"Redis's clock was set forward",
		"Redis was emptied, and a process knows of slots from before",
		"Redis lost slots that a process knows of",
		"Redis was begun again, or another one took over: its last moments may be lost",
		"Redis lost a limit's list of calls",
		"a snapshot was restored, as an operator says",
		"Redis was begun again, or another one took over, and its clock is behind: when it wrote last can't be told",
	}
	if why < 0 || why >= int64(len(reasons)) {
		return Loss{charged, fmt.Sprintf("reason %d, which another version of the program knows", why)}
	}
	return Loss{charged, reasons[why]}
}

// Losses returns the losses that this process was the first to notice since the last call of Losses.
func (p *Pacer) Losses() []Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	p.found = nil
	return found
}

// Report tells Redis, in the background, which slots this process knows to have been given out. A state that
// begins from nothing asks for it on HoldChannel, and a process that knows of an older state objects in this
// way. A process that knows of none reports nothing.
func (p *Pacer) Report() {
	p.mu.Lock()
	knows := p.known.root != 0
	p.mu.Unlock()
	if !knows {
		return
	}
	p.background(func() {
		ctx, cancel := p.within(context.Background(), answerWithin)
		defer cancel()
		for range 2 { // a state of other limits is first converted to ours
			if g, err := p.reserve(ctx, wish{cost: 1}); err != nil || g.state != stateReshape || p.reshape(ctx) != nil {
				return
			}
		}
	})
}
