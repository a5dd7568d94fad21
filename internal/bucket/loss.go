package bucket

import "fmt"

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
