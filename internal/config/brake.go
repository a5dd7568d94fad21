package config

import "spillway/internal/job"

// mostBrake is the most calls that a batch's brake may count.
const mostBrake = 1_000_000

// batchBrake reads when a batch stops itself: its keys, or off.
func (r *reader) batchBrake(n node, b *job.Brake) {
	if _, scalar := raw(n); scalar {
		var word string
		r.word(&word, checkBrakeWord)(n)
		if word != "" {
			*b = job.Brake{}
		}
		return
	}
	r.object(n,
		field{"calls", r.count(&b.Calls, 2, mostBrake)},
		field{"refused", r.percent(&b.Refused)},
	)
}

func checkBrakeWord(text string) string {
	if text == "off" {
		return ""
	}
	return "is not a brake of batches: write off, or its keys, like {calls: 50, refused: 90%}"
}
