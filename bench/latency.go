package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	latencyJobs  = 500
	latencyWarms = 20                     // jobs before any is counted
	latencyPause = 100 * time.Millisecond // between two jobs, half of it at least and three halves at most: in no step with anything
	latencyN     = 1000                   // calls a second that the gateway allows: a slot is always free
	latencyFor   = 10 * time.Second       // at most for one call
)

// latent is one gateway, and the dispatchers that serve it.
type latent struct {
	dir, config string
	gw          *gateways
	n           int // calls a second that it allows
	server      *server
	all         []*running
}

// latency measures how soon a job is called that comes in over HTTP, and how soon calls end after a 429.
func latency(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "spillway-latency-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildInto(dir); err != nil {
		return err
	}
	for i, processes := range []int{1, 2} {
		if err := inLatent(ctx, dir, latencyN, processes, func(ctx context.Context, l *latent) error {
			return l.callTimes(ctx, o.jobs, i == 0)
		}); err != nil {
			return err
		}
	}
	fmt.Println()
	for i, n := range holdLimits {
		if err := inLatent(ctx, dir, n, holdProcesses, func(ctx context.Context, l *latent) error {
			return l.holdTimes(ctx, o.runs*holdsOfRun, i == 0)
		}); err != nil {
			return err
		}
	}
	return nil
}

// inLatent has what is measured find a gateway of n calls a second, and so many processes that serve it.
func inLatent(ctx context.Context, dir string, n, processes int, measure func(context.Context, *latent) error) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gw, err := newGateways(ctx)
	if err != nil {
		return err
	}
	l := &latent{dir: dir, config: filepath.Join(server.dir, "dispatcher.yaml"), gw: gw, n: n, server: server}
	if err := os.WriteFile(l.config, fmt.Appendf(nil, limitConfig, server.addr, gw.url, n), 0o600); err != nil {
		return err
	}
	if l.all, err = runDispatchers(ctx, processes, dir, l.config); err != nil {
		return err
	}
	defer stopAll(l.all)
	return measure(ctx, l)
}

// where says where this runs, and how busy that is.
func (l *latent) where(ctx context.Context) string {
	c := redis.NewClient(&redis.Options{Addr: l.server.addr, MaxRetries: -1})
	defer c.Close()
	return machine(ctx, c)
}

// callTimes posts jobs one after the other, to each process in turn, and prints how long each took to its answer and to its call.
func (l *latent) callTimes(ctx context.Context, jobs int, first bool) error {
	l.gw.heard = make(chan time.Time, 1)
	if first {
		fmt.Printf("%s\n%d jobs one after the other, some %s apart; a gateway of %d/s\n\n"+
			"| ms from the first byte of a POST | p50 | p99 | most |\n|---|---:|---:|---:|\n", l.where(ctx), jobs, latencyPause, l.n)
		var bare []float64
		for i := range latencyWarms + jobs {
			ms, _, err := l.post(ctx, l.gw.url+"/bare", i)
			if err != nil {
				return err
			}
			bare = append(bare, ms)
		}
		fmt.Printf("| to the gateway itself, with nothing between | %s |\n", percentiles(bare[latencyWarms:]))
	}
	var called, answered []float64
	for i := range latencyWarms + jobs {
		call, answer, err := l.post(ctx, l.all[i%len(l.all)].url+"/v1/gateways/bench/jobs", i)
		if err != nil {
			return err
		}
		called, answered = append(called, call), append(answered, answer)
	}
	name := processes(len(l.all))
	fmt.Printf("| to its answer 202, %s | %s |\n| to the first byte of its call at the gateway, %s | %s |\n",
		name, percentiles(answered[latencyWarms:]), name, percentiles(called[latencyWarms:]))
	return nil
}

func processes(n int) string {
	if n == 1 {
		return "one process"
	}
	return fmt.Sprintf("%d processes", n)
}

// post posts a job after a while, and returns the ms until the gateway saw its call and until its answer.
func (l *latent) post(ctx context.Context, url string, i int) (called, answered float64, err error) {
	if err := pause(ctx, latencyPause/2+rand.N(latencyPause)); err != nil {
		return 0, 0, err
	}
	body := fmt.Appendf(nil, `{"id":%q,"payload":%s}`, id(i), payload(i))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s\n%s", url, res.Status, text)
	}
	if err != nil {
		return 0, 0, err
	}
	answered = millis(time.Since(begun))
	select {
	case at := <-l.gw.heard:
		return float64(at.UnixMicro()-begun.UnixMicro()) / 1000, answered, nil
	case <-time.After(latencyFor):
		return 0, 0, fmt.Errorf("job %s was not called within %s", id(i), latencyFor)
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentiles are the median, the 99th percentile and the most of ms, as columns.
func percentiles(ms []float64) string {
	slices.Sort(ms)
	return fmt.Sprintf("%.1f | %.1f | %.1f", ms[len(ms)/2], ms[len(ms)*99/100], ms[len(ms)-1])
}
