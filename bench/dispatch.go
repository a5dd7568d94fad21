package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	dispatched  = 20_000          // jobs of a run of the dispatcher
	atOnce      = 64              // calls at once of bare asynq
	dispatchFor = 5 * time.Minute // at most
)

// provider answers every call at once and notes when the calls came.
type provider struct {
	srv *http.Server
	url string

	mu    sync.Mutex
	times []time.Time
	all   chan struct{} // closed at the call that makes the count full
	want  int
}

func newProvider() (*provider, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{url: "http://" + ln.Addr().String()}
	p.srv = &http.Server{Handler: http.HandlerFunc(p.answer), ReadHeaderTimeout: time.Second}
	go func() { _ = p.srv.Serve(ln) }()
	return p, nil
}

func (p *provider) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	p.mu.Lock()
	p.times = append(p.times, time.Now())
	if len(p.times) == p.want {
		close(p.all)
	}
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"id":"pay_1"}`))
}

// expect begins to count anew.
func (p *provider) expect(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times, p.all, p.want = nil, make(chan struct{}), n
}

// rate waits for the calls and returns how many came a second, without the first tenth: that is the start.
func (p *provider) rate() (float64, error) {
	select {
	case <-p.all:
	case <-time.After(dispatchFor):
		p.mu.Lock()
		defer p.mu.Unlock()
		return 0, fmt.Errorf("%d of %d calls came within %s", len(p.times), p.want, dispatchFor)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.want / 10
	return float64(p.want-from) / p.times[p.want-1].Sub(p.times[from]).Seconds(), nil
}

// dispatcher has the program send the jobs that enqueue has taken in: calls a second, with all records kept.
func (b *bulk) dispatcher(ctx context.Context, p *provider) (float64, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "dispatcher"), "run", "-c", b.config, "--listen", "", "-q")
	state, err := os.MkdirTemp(b.dir, "state-") // what another run has seen of its data is nothing to this one
	if err != nil {
		return 0, err
	}
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	return b.sent(cmd, p)
}

// bareAsynq has a server of asynq's alone send what its client has enqueued, in a process of its own too.
func (b *bulk) bareAsynq(ctx context.Context, p *provider) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	return b.sent(exec.CommandContext(ctx, self, "-asynq", b.server.addr+" "+p.url), p)
}

func (b *bulk) sent(cmd *exec.Cmd, p *provider) (float64, error) {
	log, err := os.Create(filepath.Join(b.dir, "sender.log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd.Stderr = log
	p.expect(min(b.peers, dispatched))
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	rate, err := p.rate()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	return rate, errors.Join(err, cmd.Wait())
}

// serveAsynq is the other process: asynq's server, and a handler that makes the call.
func serveAsynq(where string) error {
	addr, url, _ := strings.Cut(where, " ")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}, Timeout: 30 * time.Second}
	srv := asynq.NewServer(asynq.RedisClientOpt{Addr: addr, PoolSize: 80},
		asynq.Config{Concurrency: atOnce, Queues: map[string]int{"bench": 1}, LogLevel: asynq.ErrorLevel})
	return srv.Run(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(t.Payload())))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}))
}
