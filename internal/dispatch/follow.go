package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// followEvery is how long the limits set at run time are cached.
const followEvery = time.Second

// Follower knows the limits in force at a gateway's admission. Configured limits for admission apply if there
// are any. Otherwise admission has the leak's limits, including those set at run time. A Follower is safe for
// concurrent use.
type Follower struct {
	c       redis.UniversalClient
	gateway string
	leak    []job.Limit // as configured
	file    config.Admission

	mu    sync.Mutex
	read  time.Time
	holds config.Admission
	check bucket.Algorithm
	err   error // why there is no check: admission's limits are not supported
}

// Follow returns a Follower. It reads nothing before it is asked.
func Follow(c redis.UniversalClient, g config.Gateway) *Follower {
	f := &Follower{c: c, gateway: g.Name, leak: g.Leak.Limits, file: g.Admission, holds: g.Admission}
	if f.check, f.err = newAlgorithm(g.Admission); f.err != nil {
		f.err = fmt.Errorf("admission of gateway %s: %w", g.Name, f.err)
	}
	return f
}

// Admission returns the limits in force at admission, at most a second old. While Redis is unreachable or has
// unsupported limits, the last ones stay.
func (f *Follower) Admission(ctx context.Context) config.Admission {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(ctx)
	return f.holds
}

func (f *Follower) bucket(ctx context.Context) ledger.Bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(ctx)
	return f.check
}

func (f *Follower) follow(ctx context.Context) {
	if !f.file.Follows || !f.read.IsZero() && time.Since(f.read) < followEvery {
		return
	}
	now, err := currentLimits(ctx, f.c, f.gateway, f.leak)
	if err == nil || !f.read.IsZero() { // if they were never read, the next call tries again
		f.read = time.Now()
	}
	if err != nil {
		return
	}
	holds := admissionAt(f.file, now)
	if slices.Equal(holds.Limits, f.holds.Limits) && holds.Burst == f.holds.Burst {
		return
	}
	if check, err := newAlgorithm(holds); err == nil {
		f.holds, f.check = holds, check
	}
}

// AdmissionAt returns the limits in force at a gateway's admission, given the leak's limits.
func AdmissionAt(g config.Gateway, l Limits) config.Admission { return admissionAt(g.Admission, l) }

func admissionAt(file config.Admission, l Limits) config.Admission {
	if !l.Live {
		return file
	}
	return file.Under(l.Limits)
}

func newAlgorithm(a config.Admission) (bucket.Algorithm, error) {
	return bucket.NewAlgorithm(a.Algorithm, a.Limits, a.Burst, a.Precision)
}
