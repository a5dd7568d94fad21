package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	strict "spillway/internal/provider"
)

// The comparison against a limit: so many jobs wait in the queue, and worker processes bring them to a provider that allows
// limitN calls in every rolling window of a second.
const (
	limitN       = 100
	limitJobs    = 3_000
	limitWorkers = 2                     // processes, unless -workers says otherwise
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
	// worker returns the command of worker process i. One that was killed is asked for again.
	worker func(ctx context.Context, t *trial, i int) (*exec.Cmd, error)
	// left counts the jobs that it still has and will call by itself. nil: nobody can say.
	left func(ctx context.Context, t *trial) (int, error)
}

// family is a library or a server, of which there are several contenders.
type family struct {
	name string
	// find returns the contenders, and what ends the servers that they need. It fails where they can't be had.
	find func(ctx context.Context, s *server) ([]contender, func(), error)
}

// families are in the order of the table. Each library stands there as its documentation has it, and tuned by hand as well.
func families(lanes bool) []family {
	if lanes {
		return []family{{"Temporal", fairContenders}, {"Spillway", spillwayContenders}}
	}
	return []family{
		{"asynq", asynqContenders}, {"BullMQ", bullmqContenders}, {"Bottleneck", bottleneckContenders},
		{"River", riverContenders}, {"Temporal", temporalContenders}, {"Spillway", spillwayContenders},
	}
}

// contenders leaves out what can't be had here, and says why. -only has names of families, divided by commas; empty means all.
func contenders(ctx context.Context, s *server, o options) (all []contender, stop func(), err error) {
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	chosen := strings.FieldsFunc(strings.ToLower(o.only), func(r rune) bool { return r == ',' })
	for _, f := range families(o.lanes) {
		if len(chosen) > 0 && !slices.Contains(chosen, strings.ToLower(f.name)) {
			continue
		}
		found, end, err := f.find(ctx, s)
		if err != nil {
			fmt.Fprintf(os.Stderr, "without %s: %v\n", f.name, err)
			continue
		}
		all = append(all, found...)
		if end != nil {
			ends = append(ends, end)
		}
	}
	if len(all) == 0 {
		return nil, stop, fmt.Errorf("nobody is left to compare: -only %q", o.only)
	}
	return all, stop, nil
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
	all, stop, err := contenders(ctx, server, o)
	defer stop()
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%d jobs, %d worker processes, a provider that allows %d calls in every rolling second and answers in %s%s\n\n",
		machine(ctx, c), o.jobs, o.workers, limitN, limitService, troubleSays[o.trouble])
	head, row := limitHead, finish.row
	if o.lanes {
		head, row = lanesHead, finish.laneRow
	}
	fmt.Println(head)
	var finished []finish
	for i, one := range all {
		t := &trial{contender: one, c: c, server: server, jobs: o.jobs, workers: o.workers, trouble: o.trouble, lanes: o.lanes, dir: filepath.Join(server.dir, fmt.Sprint("trial-", i))}
		f, err := t.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Println(row(f))
		finished = append(finished, f)
	}
	if o.svg == "" {
		return nil
	}
	return os.WriteFile(o.svg, plotLimit(finished), 0o644)
}

// troubleSays is what the head of the table says of it.
var troubleSays = map[bool]string{true: "; the first process is killed after a third of the jobs and started again, the last one stopped for " + pauseFor.String() + " after two"}

// finish is what became of the jobs of one contender, as the provider saw it.
type finish struct {
	name       string
	ours       bool
	jobs, left int // left are not through yet
	stats      strict.Stats
	calls      []strict.CallLine
	seconds    float64 // from the first call that was accepted to the last
}

// share is how much of the allowed rate was used.
func (f finish) share() float64 {
	return 100 * float64(f.stats.Charged) / (limitN * max(f.seconds, limitService.Seconds()))
}

// fullest is the most calls in any rolling window, those answered 429 too.
func (f finish) fullest() int { return f.stats.MaxInWindow[0] }

// fate says what became of the jobs that weren't done.
func (f finish) fate() string {
	lost := f.jobs - f.stats.Charged - f.left
	switch {
	case f.left > 0 && lost > 0:
		return fmt.Sprintf("%d, and %d not through after %s", lost, f.left, limitFor)
	case f.left > 0:
		return fmt.Sprintf("%d not through after %s", f.left, limitFor)
	case lost > 0:
		return fmt.Sprint(lost)
	}
	return "none"
}

// twice counts the jobs that were sent again after a call of theirs that the provider accepted.
func (f finish) twice() (jobs int) {
	accepted := map[string]int{}
	for _, c := range f.calls {
		if c.Status != http.StatusTooManyRequests && accepted[c.Key] < 2 {
			if accepted[c.Key]++; accepted[c.Key] == 2 {
				jobs++
			}
		}
	}
	return jobs
}

const limitHead = "| | of the allowed rate | seconds | 429s | fullest rolling window | calls a job | jobs done | lost | called twice |\n|---|---:|---:|---:|---:|---:|---:|---|---:|"

// row is a line of the table, in Markdown.
func (f finish) row() string {
	calls := float64(f.stats.Calls) / float64(max(f.stats.Charged, 1))
	return fmt.Sprintf("| %s | %.1f %% | %.1f | %d | %d | %.2f | %d | %s | %d |",
		f.name, f.share(), f.seconds, f.stats.TooMany, f.fullest(), calls, f.stats.Charged, f.fate(), f.twice())
}
