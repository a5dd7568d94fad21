package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Act is one thing that a person did to dead letters.
type Act struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	What   string    `json:"what"` // replay, discard, resolve --done or resolve --not-done
	Why    string    `json:"why,omitempty"`
	Filter string    `json:"filter"` // the flags that chose the jobs; empty means all of the gateway
	Jobs   int       `json:"jobs"`   // how many it did it to
}

// Entry is an act as it stands in the trail. A long replay is in it from its first job on, so that one which is killed
// has been written down too.
type Entry struct {
	store *Store
	place int64 // from the start of the trail, which is never trimmed; -1 before it is written
	act   Act
}

// Entry returns an entry that is not written yet.
func (s *Store) Entry(a Act) *Entry { return &Entry{store: s, place: -1, act: a} }

// Note writes down that the act was done to so many jobs by now. Nothing is written while there are none.
func (e *Entry) Note(ctx context.Context, jobs int) error {
	if jobs == e.act.Jobs {
		return nil
	}
	e.act.Jobs = jobs
	line, err := json.Marshal(e.act)
	if err != nil {
		return err
	}
	trail := e.store.keys.Trail()
	if e.place >= 0 {
		err = e.store.c.LSet(ctx, trail, e.place, line).Err()
	} else if n, pushErr := e.store.c.RPush(ctx, trail, line).Result(); pushErr == nil {
		e.place = n - 1
	} else {
		err = pushErr
	}
	if err != nil {
		e.act.Jobs = -1 // try again at the next call
		return fmt.Errorf("write down who did what to the dead letters of %s: %w", e.store.gateway, err)
	}
	return nil
}
