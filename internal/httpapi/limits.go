package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Policy is one limit of admission, as answers describe it.
type Policy struct {
	Name string // as in the configuration: 100/s
	// Quota is how many units of cost are available if nothing is in use.
	Quota int64
	// Window is how long it takes until a used-up quota is whole again.
	Window time.Duration
}

// Gateway is what the API knows of one gateway.
type Gateway struct {
	MaxCost int64 // a higher cost can never be granted
	Amount  job.AmountRule
	Cards   job.CardRule
	// Policies returns the limits in force at admission, in the order of job.Room.Left. Nil: answers don't
	// mention them.
	Policies func(context.Context) []Policy
}

// The longest and shortest Retry-After if there is no room.
const (
	leastRetry = time.Second
	mostRetry  = time.Minute
)

// retryAfter returns when there may be room. Behind parked jobs that is unknown, and it returns when all of the
// room is back.
func retryAfter(room job.Room) time.Duration {
	wait := room.Retry
	if wait == 0 {
		wait = min(room.Reset, mostRetry)
	}
	if wait < 0 {
		wait = mostRetry
	}
	return max(wait, leastRetry)
}

// rateLimit writes the room at admission: RateLimit-Policy and RateLimit as in
// draft-ietf-httpapi-ratelimit-headers-10, with one item for each limit, and X-RateLimit-* for the limit with
// the least left.
func rateLimit(ctx context.Context, h http.Header, g Gateway, room *job.Room) {
	if room == nil || g.Policies == nil {
		return
	}
	held := g.Policies(ctx)
	if len(room.Left) != len(held) || len(held) == 0 {
		return
	}
	reset := seconds(room.Reset)
	policies, now := make([]string, len(held)), make([]string, len(held))
	tight := 0
	for i, p := range held {
		policies[i] = fmt.Sprintf("%q;q=%d;w=%d", p.Name, p.Quota, seconds(p.Window))
		now[i] = fmt.Sprintf("%q;r=%d;t=%d", p.Name, room.Left[i], reset)
		if room.Left[i] < room.Left[tight] {
			tight = i
		}
	}
	// Header names have no case, but these are written as in the drafts.
	h["RateLimit-Policy"] = []string{strings.Join(policies, ", ")}
	h["RateLimit"] = []string{strings.Join(now, ", ")}
	h["X-RateLimit-Limit"] = []string{strconv.FormatInt(held[tight].Quota, 10)}
	h["X-RateLimit-Remaining"] = []string{strconv.FormatInt(room.Left[tight], 10)}
	h["X-RateLimit-Reset-After"] = []string{strconv.FormatInt(reset, 10)}
}
