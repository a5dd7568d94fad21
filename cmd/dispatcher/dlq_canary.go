package main

import (
	"fmt"
	"time"

	"spillway/internal/deadletter"
)

// remindEvery is how often a replay that waits for its canary says what it waits for.
const remindEvery = 15 * time.Second

// follow shows how the jobs that a gateway's share sent ahead stand.
func (w *clearance) follow(sh *share) func(deadletter.Canary) {
	said := time.Time{}
	return func(now deadletter.Canary) {
		w.mu.Lock()
		defer w.mu.Unlock()
		first := sh.ahead == nil
		sh.ahead = &now
		if now.Waiting == 0 || time.Since(said) < remindEvery {
			return
		}
		said = time.Now()
		w.progress.Clear()
		w.p.remark("%s", waitingText(sh.g.Name, now, first))
	}
}

func waitingText(gateway string, now deadletter.Canary, first bool) string {
	if first {
		return fmt.Sprintf("%s: %s sent ahead, waiting until they are finished", gateway, jobs(now.Sent))
	}
	return fmt.Sprintf("%s: still waiting for %d of the %d sent ahead; is a dispatcher running? see \"dispatcher status\"", gateway, now.Waiting, now.Sent)
}

// canaryView is what became of the jobs sent ahead, over all gateways.
type canaryView struct {
	Sent    int      `json:"sent"`
	Done    int      `json:"done"`
	Waiting int      `json:"waiting"`
	Later   int      `json:"later"`
	Failed  []string `json:"failed"`
}

// canaries is nil where no jobs were to go ahead.
func (w *clearance) canaries() *canaryView {
	if w.act.caution.canary == 0 {
		return nil
	}
	v := &canaryView{Failed: []string{}}
	for _, sh := range w.shares {
		if c := sh.ahead; c != nil {
			v.Sent, v.Done, v.Waiting, v.Later = v.Sent+c.Sent, v.Done+c.Done, v.Waiting+c.Waiting, v.Later+c.Later
			v.Failed = append(v.Failed, c.Failed...)
		}
	}
	return v
}
