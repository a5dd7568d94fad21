package dispatch

import (
	"context"
	"time"
)

// recallEvery is how often it is checked that Redis still has what was set at run time for lanes and routes.
const recallEvery = 5 * time.Second

// recall follows what is set at run time for lanes and routes, and restores what Redis has lost.
func (u *unit) recall(ctx context.Context) time.Duration {
	if !Laned(u.now().cfg) {
		return -1
	}
	told, err := u.pacer.Recall(ctx, &u.setLive)
	if told > 0 {
		u.log.Warn("Redis had lost what was set live for lanes or routes: restored as this process last saw it", "lanes_and_routes", told,
			"hint", "look whether it holds as you want it: dispatcher lane list")
	}
	if err != nil {
		u.complain(ctx, "what was set live for lanes and routes not looked at, trying again", err)
	}
	return recallEvery
}
