package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	strict "spillway/internal/provider"
)

// The comparison against a limit: so many jobs wait in the queue, and two worker processes bring them to a provider that allows
// limitN calls in every rolling window of a second.
const (
	limitN       = 100
	limitJobs    = 3_000
	limitWorkers = 2
	limitAtOnce  = 10                    // calls that a worker of a peer may have under way: far more than the limit needs
	limitService = 20 * time.Millisecond // of the provider
	limitFor     = 5 * time.Minute       // at most for one peer
	limitQueue   = "bench"
)

// contender is one way to keep a limit.
type contender struct {
	name, kind string
	ours       bool
	// fill queues all jobs before a worker starts.
	fill func(ctx context.Context, t *trial) error
	// worker returns the command of one worker process.
	worker func(ctx context.Context, t *trial) (*exec.Cmd, error)
	// dead counts the jobs that nothing brings back.
	dead func(ctx context.Context, t *trial) (int, error)
}

// contenders are in the order of the table. Every library stands there as its documentation has it, and tuned by hand as well. BullMQ is
// left out where it can't be had.
func contenders(ctx context.Context, dir string) []contender {
	all := []contender{
		{name: "asynq, its rate-limit recipe", kind: kindRecipe},
		{name: "asynq, tuned by hand: half the rate in each process, the handler waits", kind: kindWait},
		{name: "asynq, redis_rate asked in the handler", kind: kindAsk},
		{name: "asynq, redis_rate tuned by hand: no burst, the handler waits", kind: kindAskWait},
	}
	for i := range all {
		all[i].fill, all[i].worker, all[i].dead = fillAsynq, asynqWorker, archived
	}
	n, err := bullmq(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "without BullMQ:", err)
	} else {
		all = append(all, bullmqContenders(n)...)
	}
	return append(all, contender{name: "Spillway", ours: true, fill: fillSpillway, worker: spillwayWorker, dead: parked})
}

// given says whether a flag is on the command line.
func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// limited has one contender after the other bring the jobs through, all on one redis-server.
func limited(ctx context.Context, o options) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	c := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: 20, MaxRetries: -1})
	defer c.Close()
	if err := buildInto(server.dir); err != nil {
		return err
	}
	fmt.Printf("%s\n%d jobs, %d worker processes, a provider that allows %d calls in every rolling second and answers in %s\n\n",
		machine(ctx, c), o.jobs, limitWorkers, limitN, limitService)
	fmt.Println(limitHead)
	var finished []finish
	for i, one := range contenders(ctx, server.dir) {
		f, err := (&trial{contender: one, c: c, server: server, jobs: o.jobs, dir: filepath.Join(server.dir, fmt.Sprint("trial-", i))}).run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Println(f.row())
		finished = append(finished, f)
	}
	if o.svg == "" {
		return nil
	}
	return os.WriteFile(o.svg, plotLimit(finished), 0o644)
}

// finish is what became of the jobs of one contender, as the provider saw it.
type finish struct {
	name       string
	ours       bool
	jobs, dead int
	stats      strict.Stats
	calls      []strict.CallLine
	seconds    float64 // from the first call that was accepted to the last
}

// share is how much of the allowed rate was used.
func (f finish) share() float64 { return 100 * float64(f.stats.Charged) / (limitN * f.seconds) }

// fullest is the most calls in any rolling window, those answered 429 too.
func (f finish) fullest() int { return f.stats.MaxInWindow[0] }

// fate says what became of the jobs that weren't done.
func (f finish) fate() string {
	left := f.jobs - f.stats.Charged - f.dead
	switch {
	case left > 0 && f.dead > 0:
		return fmt.Sprintf("%d dead, %d not through after %s", f.dead, left, limitFor)
	case left > 0:
		return fmt.Sprintf("%d not through after %s", left, limitFor)
	case f.dead > 0:
		return fmt.Sprintf("%d dead", f.dead)
	}
	return "none"
}

const limitHead = "| | of the allowed rate | seconds | 429s | fullest rolling window | calls a job | jobs done | lost |\n|---|---:|---:|---:|---:|---:|---:|---|"

// row is a line of the table, in Markdown.
func (f finish) row() string {
	calls := float64(f.stats.Calls) / float64(max(f.stats.Charged, 1))
	return fmt.Sprintf("| %s | %.1f %% | %.1f | %d | %d | %.2f | %d | %s |", f.name, f.share(), f.seconds, f.stats.TooMany, f.fullest(), calls, f.stats.Charged, f.fate())
}
