package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	payloadBytes = 200
	pipelined    = 500    // jobs in one pipeline of the raw one, of which there are as many as of enqueue
	mostOfPeers  = 50_000 // jobs of a peer in one run: its rate does not depend on how many there are
	configText   = `redis: redis://%s/0
gateways:
  bench:
    request: {url: "%s", idempotency_header: Idempotency-Key}
    amount: {field: amount, currency: currency}
    leak: {limits: [1000000/s], burst: 1000, jitter: 500ms}
    admission: {limits: [1000000000/s], burst: 1000000000}
`
)

// bulk is what is measured over many jobs at once, with the programs as they are built.
type bulk struct {
	c      *redis.Client
	server *server
	dir    string // of the programs, the configuration and the billing file
	jobs   int
	peers  int // jobs of a peer
	config string
	file   string // "-": the lines are made as they are read

	gateway string    // of jobs whose line names none
	node    *nodePeer // nil where BullMQ and groupmq can't be run

	temporal string // its program, with -lanes
}

// newBulk builds the programs and writes a billing file.
func newBulk(c *redis.Client, s *server, url string, jobs int) (*bulk, error) {
	b := &bulk{c: c, server: s, dir: s.dir, jobs: jobs, peers: min(jobs, mostOfPeers), gateway: "bench"}
	b.config, b.file = filepath.Join(b.dir, "bench.yaml"), filepath.Join(b.dir, "bench.ndjson")
	if err := buildInto(b.dir); err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.config, fmt.Appendf(nil, configText, s.addr, url), 0o600); err != nil {
		return nil, err
	}
	return b, b.writeFile()
}

// buildInto builds both programs.
func buildInto(dir string) error {
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "./cmd/enqueue", "./cmd/dispatcher")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the programs (run this in the folder bench): %w", err)
	}
	return nil
}

func (b *bulk) writeFile() error { return os.WriteFile(b.file, []byte(lines(b.jobs)), 0o600) }

// lines are so many jobs as enqueue reads them.
func lines(jobs int) string {
	var text strings.Builder
	_ = writeLines(&text, jobs) // which never fails there
	return text.String()
}

// writeLines writes them one after the other, however many.
func writeLines(w io.Writer, jobs int) error {
	out := bufio.NewWriterSize(w, 1<<20)
	for i := range jobs {
		if _, err := fmt.Fprintf(out, "{\"id\":%q,\"payload\":%s}\n", id(i), payload(i)); err != nil {
			return err
		}
	}
	return out.Flush()
}

func id(i int) string { return fmt.Sprintf("inv-%08d", i) }

// payload returns payloadBytes of JSON with an amount.
func payload(i int) []byte {
	text := fmt.Appendf(nil, `{"amount":%d,"currency":"EUR","customer":"cus_%08d","note":"`, 1000+i%900, i)
	for len(text) < payloadBytes-2 {
		text = append(text, 'x')
	}
	return append(text, `"}`...)
}

// report is what enqueue says, and what its process took.
type report struct {
	Enqueued  int `json:"enqueued"`
	Parked    int `json:"parked"`
	Duplicate int `json:"duplicate"`
	rate      float64
	mib       float64 // at most
}

// enqueue runs the program on the file: jobs a second from its start to its end.
func (b *bulk) enqueue(ctx context.Context) (report, error) { return b.enqueueBy(ctx, b.config) }

func (b *bulk) enqueueBy(ctx context.Context, config string) (r report, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "enqueue"), "-c", config, "-g", b.gateway, "-f", b.file, "--batch", "november", "-q", "-o", "json")
	var out bytes.Buffer
	cmd.Stdout = &out
	if b.file == "-" {
		from, to := io.Pipe()
		defer from.Close()
		go func() { _ = to.CloseWithError(writeLines(to, b.jobs)) }()
		cmd.Stdin = from
	}
	took, mib, err := watched(cmd)
	if err != nil {
		return r, fmt.Errorf("enqueue: %w", err)
	}
	r.rate, r.mib = float64(b.jobs)/took.Seconds(), mib
	return r, json.Unmarshal(out.Bytes(), &r)
}

// watched runs a command: how long it took, and the most memory that its process had, in MiB.
func watched(cmd *exec.Cmd) (took time.Duration, mib float64, err error) {
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	over, most := make(chan struct{}), make(chan float64)
	go func() { most <- peak(cmd.Process.Pid, over) }()
	err = cmd.Wait()
	took = time.Since(start)
	close(over)
	return took, <-most, err
}

// peak looks at the most memory that a process has used, in MiB, until it is over. What the kernel says at its end counts this process in,
// of which it was a copy at first.
func peak(pid int, over <-chan struct{}) (mib float64) {
	for {
		mib = max(mib, most(pid))
		select {
		case <-over:
			return mib
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fresh empties the Redis of this run and returns the memory that it takes then.
func (b *bulk) fresh(ctx context.Context) (int64, error) {
	if err := b.c.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	return b.memory(ctx)
}

func (b *bulk) memory(ctx context.Context) (used int64, err error) {
	info, err := b.c.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			_, err = fmt.Sscan(text, &used)
		}
	}
	return used, err
}

// raw writes what a queued task needs at the least, a hash and an entry in a list, and looks at nothing: the limit of what Redis can do.
// It writes as many as enqueue: with millions of keys Redis takes longer for each than with a few thousand.
func (b *bulk) raw(ctx context.Context) (float64, error) {
	start := time.Now()
	for from := 0; from < b.jobs; from += pipelined {
		p := b.c.Pipeline()
		for i := from; i < min(from+pipelined, b.jobs); i++ {
			p.HSet(ctx, "asynq:{bench}:t:"+id(i), "msg", payload(i), "state", "pending", "pending_since", "1700000000000000000")
			p.LPush(ctx, "asynq:{bench}:pending", id(i))
		}
		if _, err := p.Exec(ctx); err != nil {
			return 0, err
		}
	}
	return float64(b.jobs) / time.Since(start).Seconds(), nil
}

// machine says where this ran.
func machine(ctx context.Context, c *redis.Client) string {
	info, _ := c.Info(ctx, "server").Result()
	version := "unknown"
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "redis_version:"); ok {
			version = strings.TrimSpace(text)
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	before, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%s, %s/%s, %d cores, %s, Redis %s without persistence on the same machine; load %s at the start",
		time.Now().UTC().Format("2006-01-02"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), version, before)
}
