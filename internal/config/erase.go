package config

import "time"

// whenDone is the value of erase.payload with which nothing is erased after the end of a job.
const whenDone = "when_done"

// erase reads when personal data is erased.
func (r *reader) erase(n node, after *time.Duration) {
	r.object(n, field{"payload", func(n node) {
		text, ok := r.text(n)
		switch {
		case !ok:
		case text == whenDone:
			*after = 0
		case text == "" || text[0] < '0' || text[0] > '9':
			r.wrong(n, "does not say when payloads are erased: write "+whenDone+", or how long after that all else goes, like 720h")
		default:
			r.duration(after, time.Second)(n)
		}
	}})
}
