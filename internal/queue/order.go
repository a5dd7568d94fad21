package queue

import (
	"fmt"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// order is the order in which jobs never called are pulled, as dequeue.lua reads it. The zero order means that
// the gateway has no classes.
type order struct {
	keys []string
	text string
}

// FirstLines returns the lines of a gateway's jobs that were never called, class by class, the highest first.
// It returns nil without classes.
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
			lines = append([]string{k.Due()}, append(lines, k.Pending())...) // the default lines hold jobs from a time when another class was the default
		}
		o.keys = append(o.keys, lines...)
		o.text += fmt.Sprintf("%s %d %d ", c.Name, c.Floor, len(lines))
	}
	return o
}

// Order sets the classes by which jobs are pulled from now on, the highest first. Without classes, lines alone
// set the order, as before the first call of Order.
func (s *Server) Order(classes []job.Class) {
	s.src.order.Store(new(orderOf(redisdb.NewKeys(s.cfg.Gateway), classes)))
}
