package config

import (
	"time"

	"spillway/internal/job"
)

// Outcomes says who reads the outcomes of a gateway's jobs, and how long they are stored.
type Outcomes struct {
	// Readers are the names of the readers. An outcome is stored until each of them has acknowledged it. Empty:
	// it is stored for Keep.
	Readers []string
	// Keep is how long an outcome is stored without readers; at least 1 s. Default 7 d.
	Keep time.Duration
	// MaxBehind is how many outcomes a reader may be behind. 0: no bound; each takes up to 160 bytes of Redis.
	// Default 1,000,000.
	MaxBehind int64
	// Then is what happens if a reader is further behind: OutcomesHold (default) or OutcomesDrop.
	Then string
}

// What happens if a reader of outcomes is too far behind.
const (
	OutcomesHold = "hold" // the gateway is not called until the reader has caught up
	OutcomesDrop = "drop" // the oldest outcomes are dropped, and counted
)

// outcomes reads the keys of the outcome feed, or off, which is nil.
func (r *reader) outcomes(n node) *Outcomes {
	if _, scalar := raw(n); scalar {
		var word string
		r.word(&word, func(text string) string {
			if text == "off" {
				return ""
			}
			return "does not say who reads the outcomes: write off, or its keys, like {readers: [ledger], max_behind: 1000000}"
		})(n)
		return nil
	}
	o := DefaultOutcomes()
	r.object(n,
		field{"readers", func(n node) {
			o.Readers = r.words(n, "name those that read the outcomes, like [ledger]; leave readers out where nobody acknowledges them", checkReader)
		}},
		field{"keep", r.duration(&o.Keep, time.Second)},
		field{"max_behind", r.count(&o.MaxBehind, 0, job.MaxCount)},
		field{"then", r.word(&o.Then, choice("a way", OutcomesHold, OutcomesDrop))},
	)
	return &o
}

// DefaultOutcomes returns the defaults of the outcomes keys.
func DefaultOutcomes() Outcomes {
	return Outcomes{Keep: 7 * 24 * time.Hour, MaxBehind: 1_000_000, Then: OutcomesHold}
}

func checkReader(name string) string {
	if gatewayName.MatchString(name) && len(name) <= 40 {
		return ""
	}
	return "is not a reader's name: use up to 40 lower-case letters, digits, _ and -, starting with a letter or digit"
}
