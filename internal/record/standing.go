package record

import (
	"time"

	"spillway/internal/job"
)

// Standing is one gateway at a glance, all of one moment.
type Standing struct {
	Now       time.Time // on Redis's clock
	Queued    int64     // waiting in the queue, due now
	InFlight  int64     // pulled and not finished, even if the worker has died
	Scheduled int64     // their time is to come
	Retrying  int64     // waiting out a back-off
	Done      int64     // a counter that survives the dedupe window
	Accepted  int64     // every job that was ever taken in
	Discarded int64
	Parked    map[job.Reason]int64 // only reasons with jobs
	// ParkedBytes is how long the parked jobs' payloads are together, as they are stored.
	ParkedBytes int64
	Rate        float64 // calls a second, over the last minute or since calls began, if that is less
}

// Missing is how many jobs were accepted beyond those that stand somewhere; negative if more stand somewhere than were accepted, as
// long as tasks of jobs that have moved on, or that are not ours, wait in the queue.
func (s Standing) Missing() int64 {
	found := s.Queued + s.InFlight + s.Scheduled + s.Retrying + s.Done + s.Discarded
	for _, n := range s.Parked {
		found += n
	}
	return s.Accepted - found
}
