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

// followEvery is how long what was read of the limits set live is taken for what they are.
const followEvery = time.Second

// Follower knows what holds at a gateway's admission now. Where the file names limits for admission, they hold. Else admission has the
// leak's limits, also those that are set live. Safe for concurrent use.
type Follower struct {
	c       redis.UniversalClient
	gateway string
	leak    []job.Limit // the file's
	file    config.Admission

	mu    sync.Mutex
	read  time.Time
	holds config.Admission
	check bucket.Algorithm
	err   error // why there is no check: admission's limits can't be kept
}

// Follow returns a follower of a gateway's admission. It reads nothing before it is asked.
func Follow(c redis.UniversalClient, g config.Gateway) *Follower {
	f := &Follower{c: c, gateway: g.Name, leak: g.Leak.Limits, file: g.Admission, holds: g.Admission}
	if f.check, f.err = newAlgorithm(g.Admission); f.err != nil {
		f.err = fmt.Errorf("admission of gateway %s: %w", g.Name, f.err)
	}
	return f
}

// Admission returns what holds at admission. Limits set live hold within a second. While Redis can't say, or says what can't be kept, the last
// ones stay.
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
	if err == nil || !f.read.IsZero() { // what was never read is asked for again at once
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

// AdmissionAt returns what holds at a gateway's admission while these are the leak's limits.
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
