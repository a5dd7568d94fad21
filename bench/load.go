package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// load is how quickly jobs went, and what that cost the servers.
type load struct {
	rate   float64 // jobs a second
	micros float64 // all servers' processor time for a job
	share  float64 // of the server that worked the most
}

func (l load) String() string {
	return fmt.Sprintf("%.0f\t%.1f\t%.0f %%", l.rate, l.micros, 100*l.share)
}

// middle is the load of the run whose rate is the median.
func middle(all []load) load {
	slices.SortFunc(all, func(a, b load) int { return int(a.rate - b.rate) })
	return all[len(all)/2]
}

// during measures the servers while so many jobs go.
func (s *shards) during(ctx context.Context, jobs int, do func() (float64, error)) (l load, err error) {
	before := make([]float64, len(s.servers))
	for i, one := range s.servers {
		if before[i], err = one.worked(ctx); err != nil {
			return l, err
		}
	}
	if l.rate, err = do(); err != nil {
		return l, err
	}
	var all, most float64
	for i, one := range s.servers {
		after, err := one.worked(ctx)
		if err != nil {
			return l, err
		}
		all, most = all+after-before[i], max(most, after-before[i])
	}
	l.micros, l.share = all/float64(jobs), most/all
	return l, nil
}

// worked is the processor time that a server has taken, in µs.
func (s *server) worked(ctx context.Context) (micros float64, err error) {
	info, err := s.ask(ctx, "INFO", "cpu")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if text, ok := strings.CutPrefix(line, name); ok {
				var seconds float64
				if _, err := fmt.Sscan(text, &seconds); err != nil {
					return 0, err
				}
				micros += seconds * 1e6
			}
		}
	}
	return micros, nil
}

// ask sends one command to this server, and no other of its cluster.
func (s *server) ask(ctx context.Context, args ...any) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	defer c.Close()
	return c.Do(ctx, args...).Text()
}
