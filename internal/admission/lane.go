package admission

import (
	"strconv"
	"sync"

	"spillway/internal/job"
)

// lane is what one caller of Admit makes its offers in, one after the other.
type lane struct {
	name   string
	offers int64
}

// ticket returns the ticket of the lane's next offer.
func (l *lane) ticket() job.Ticket {
	l.offers++
	return job.Ticket{Lane: l.name, Number: l.offers}
}

// lanes are those of one door: as many as callers were ever in it at once, so that the books keep few answers.
type lanes struct {
	door string // unlike any other door's

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
