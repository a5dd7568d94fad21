package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	strict "spillway/internal/provider"
)

const (
	lookEvery = 200 * time.Millisecond // at the provider
	askEvery  = 10                     // looks without a call, after which the contender is asked what it has left
	quietFor  = 20 * time.Second       // without a call: the jobs of a contender that can't be asked are gone
)

// trial is one contender at work.
type trial struct {
	contender
	c       *redis.Client
	server  *server
	jobs    int
	workers int
	trouble bool
	lanes   bool
	dir     string // its own

	provider *strict.Provider
	url      string
}

// run queues the jobs, starts the workers and waits until the jobs are through.
func (t *trial) run(ctx context.Context) (f finish, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := t.prepare(ctx); err != nil {
		return f, err
	}
	if err := t.fill(ctx, t); err != nil {
		return f, fmt.Errorf("queue the jobs: %w", err)
	}
	c, err := t.start(ctx)
	if err != nil {
		return f, err
	}
	left, err := t.wait(ctx, c)
	if err := errors.Join(err, c.stop()); err != nil {
		return f, err
	}
	return t.finish(left), nil
}

// text is the jobs, a line each.
func (t *trial) text() string {
	if t.lanes {
		return backlogged(t.jobs)
	}
	return lines(t.jobs)
}

// prepare empties Redis and starts a provider, which is new for each contender: a late call of the one before reaches nobody.
func (t *trial) prepare(ctx context.Context) error {
	if err := t.c.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return err
	}
	ln, err := strict.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	t.provider = strict.New(strict.Config{Limits: []strict.Limit{{N: limitN, Window: time.Second}}, Service: limitService})
	t.url = "http://" + ln.Addr().String() + "/charges"
	go func() { _ = t.provider.Serve(ctx, ln) }()
	return nil
}

// wait returns how many jobs are not through, as soon as every job is done or lost or the time is up.
func (t *trial) wait(ctx context.Context, c *crew) (left int, err error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	end := time.Now().Add(limitFor)
	var troubles []func(context.Context) error
	if t.trouble {
		troubles = []func(context.Context) error{c.crash, c.pause}
	}
	parts, quiet, calls := len(troubles)+1, 0, 0
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
		if err := c.died(); err != nil {
			return 0, err
		}
		stats := t.provider.Stats()
		if n := len(troubles); n > 0 && stats.Charged >= t.jobs*(parts-n)/parts {
			if err := troubles[0](ctx); err != nil {
				return 0, err
			}
			troubles = troubles[1:]
		}
		if quiet++; stats.Calls != calls || calls == 0 { // before the first call the processes are still starting
			quiet, calls = 0, stats.Calls
		}
		late := time.Now().After(end)
		if over, left, err := t.over(ctx, stats.Charged, quiet, late); over || err != nil {
			return left, err
		}
	}
}

// over says whether nothing more will come, and how many jobs the contender still has. After trouble it is given the time to send again what it takes for unsent.
func (t *trial) over(ctx context.Context, done, quiet int, late bool) (over bool, left int, err error) {
	if done >= t.jobs && !t.trouble {
		return true, 0, nil
	}
	if t.left == nil {
		return late || time.Duration(quiet)*lookEvery >= quietFor, 0, nil
	}
	if !late && (quiet == 0 || quiet%askEvery != 0) {
		return false, 0, nil
	}
	left, err = t.left(ctx, t)
	return late || left == 0, left, err
}

func (t *trial) finish(left int) finish {
	f := finish{name: t.name, ours: t.ours, jobs: t.jobs, stats: t.provider.Stats(), calls: t.provider.Calls()}
	f.left = min(left, t.jobs-f.stats.Charged)
	var first, last int64
	for _, c := range f.calls {
		if c.Status != http.StatusOK || !c.Charged {
			continue
		}
		if first == 0 {
			first = c.At
		}
		last = c.At
	}
	f.seconds = float64(last-first) / 1e6
	return f
}
