package incarnation

import (
	"fmt"
	"strings"
	"time"

	"spillway/internal/job"
)

// namesMost is the most gateways that a message names.
const namesMost = 5

// words says what is wrong with the data of these gateways, and what to do.
func (b doubt) words(gateways []string) (message, hint string) {
	of := "gateway " + strings.Join(gateways[:min(len(gateways), namesMost)], ", ")
	if n := len(gateways); n > namesMost {
		of += fmt.Sprintf(" and %d more", n-namesMost)
	}
	hint = "jobs done since may be called again, and jobs accepted since are gone: check, enqueue the files of that time again, " +
		"then start one dispatcher with \"run --after-restore\""
	return fmt.Sprintf("Redis's data of %s is from %s, a dispatcher saw it at %s: it was restored from an old snapshot. Nothing is called",
		of, clockTime(b.from), clockTime(b.seen)), hint
}

func clockTime(us int64) string { return job.Moment(time.UnixMicro(us)) }

// Doubted returns what is wrong with the data of the watched gateways and what to do; empty if none is in doubt.
func Doubted(all []*Watch) (message, hint string) {
	var gateways []string
	var worst doubt
	for _, w := range all {
		w.mu.Lock()
		b := w.doubt
		w.mu.Unlock()
		if b.from == 0 {
			continue
		}
		gateways = append(gateways, w.p.Gateway)
		if worst.from == 0 || b.from < worst.from {
			worst = b
		}
	}
	if len(gateways) == 0 {
		return "", ""
	}
	return worst.words(gateways)
}
