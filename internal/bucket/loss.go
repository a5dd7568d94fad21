package bucket

import "fmt"

// Loss is what a reservation found: Redis may not know of every slot that was given out.
type Loss struct {
	// Charged is the units that each long limit is charged with for what may be missing, no more than it allows. It stays so for a window, or until
	// somebody forgives it. Zero where no limit is long, or nothing is missing.
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

// Losses returns the losses that this process was the first to notice since it was last asked.
func (p *Pacer) Losses() []Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	p.found = nil
	return found
}
