package queue

import (
	"fmt"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// order is in which order the jobs that were never called are pulled, as dequeue.lua reads it. The zero order: the gateway has no classes.
type order struct {
	keys []string
	text string
}

// FirstLines returns the lines of a gateway's jobs that were never called, class by class, the highest first. None where it has no classes.
func FirstLines(gateway string, classes []job.Class) (lines []string) {
	return orderOf(redisdb.NewKeys(gateway), classes).lines()
}

func (o order) lines() []string {
	if len(o.keys) == 0 {
		return nil
	}
	return o.keys[1:]
}

func orderOf(k redisdb.Keys, classes []job.Class) (o order) {
	if len(classes) == 0 {
		return order{}
	}
	o.keys = []string{k.Classes()}
	for _, c := range classes {
		lines := []string{k.First(c.Name)}
		if c.Usual {
			lines = append([]string{k.Due()}, append(lines, k.Pending())...) // its own has jobs from when another class was the usual one
		}
		o.keys = append(o.keys, lines...)
		o.text += fmt.Sprintf("%s %d %d ", c.Name, c.Floor, len(lines))
	}
	return o
}

// Order has jobs pulled by these classes from now on, the highest first. None: by their lines alone, as before the first call.
func (s *Server) Order(classes []job.Class) {
	s.src.order.Store(new(orderOf(redisdb.NewKeys(s.cfg.Gateway), classes)))
}
