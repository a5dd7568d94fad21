package admission

import (
	"strconv"
	"sync"

	"spillway/internal/job"
)

// lane numbers the offers of one caller of Admit, which come one after the other.
type lane struct {
	name   string
	offers int64
}

// ticket returns the ticket of the next offer.
func (l *lane) ticket() job.Ticket {
	l.offers++
	return job.Ticket{Lane: l.name, Number: l.offers}
}

// lanes is the pool of a door's lanes. It holds as many as there were ever concurrent callers, so that Redis
// stores few replies.
type lanes struct {
	door string // unique to this door

	mu   sync.Mutex
	free []*lane
	made int
}

func (l *lanes) enter() *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		last := l.free[n-1]
		l.free = l.free[:n-1]
		return last
	}
	l.made++
	return &lane{name: l.door + "." + strconv.Itoa(l.made)}
}

func (l *lanes) leave(done *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, done)
}
