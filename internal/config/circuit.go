package config

import (
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Calls are counted in spans of 5 s, which are kept for two minutes.
const (
	minCircuitWindow = 5 * time.Second
	maxCircuitWindow = 2 * time.Minute
)

// circuit reads a gateway's circuit: its keys, or off.
func (r *reader) circuit(n node, c *job.Circuit) {
	if _, scalar := raw(n); scalar {
		var word string
		r.word(&word, checkCircuitWord)(n)
		if word != "" {
			*c = job.Circuit{}
		}
		return
	}
	r.object(n,
		field{"failures", r.count(&c.Failures, 2, job.MaxCount)},
		field{"ratio", r.percent(&c.Ratio)},
		field{"calls", r.count(&c.Calls, 2, job.MaxCount)},
		field{"window", func(n node) { r.circuitWindow(n, &c.Window) }},
		field{"max", r.duration(&c.Max, 100*time.Millisecond)},
	)
}

func (r *reader) circuitWindow(n node, window *time.Duration) {
	r.duration(window, minCircuitWindow)(n)
	if *window > maxCircuitWindow {
		r.wrong(n, "is too long: give at most "+job.FormatDuration(maxCircuitWindow))
	}
}

// mostHold is the largest hold.max.
const mostHold = 7 * job.Day

func (r *reader) hold(n node, h *Hold) {
	r.object(n, field{"max", func(n node) {
		r.duration(&h.Max, time.Second)(n)
		if h.Max > mostHold {
			r.wrong(n, "is too long: give at most "+job.FormatDuration(mostHold))
		}
	}})
}

func checkCircuitWord(text string) string {
	if text == "off" {
		return ""
	}
	return "is not a circuit: write off, or its keys, like {failures: 5, ratio: 50%}"
}

// percent reads a share from 1% to 100%.
func (r *reader) percent(dst *int64) func(node) {
	return func(n node) {
		text, ok := r.text(n)
		if !ok {
			return
		}
		digits, found := strings.CutSuffix(text, "%")
		share, err := strconv.ParseInt(digits, 10, 64)
		if !found || !job.Digits(digits) || err != nil || share < 1 || share > 100 {
			r.wrong(n, "is not a share: write whole percent, from 1% to 100%")
			return
		}
		*dst = share
	}
}
