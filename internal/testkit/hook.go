package testkit

import (
	"bufio"
	"context"
	"crypto/rand"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hook is between a client and Redis. It gets the commands of one round trip, and sends them with send, whose error it passes on or
// replaces. Nil functions let everything pass.
type Hook struct {
	Alone func(cmd redis.Cmder, send func() error) error    // a command by itself
	Piped func(cmds []redis.Cmder, send func() error) error // several in a pipeline
}

// Around returns a Hook that treats one command and several alike.
func Around(f func(cmds []redis.Cmder, send func() error) error) Hook {
	return Hook{func(cmd redis.Cmder, send func() error) error { return f([]redis.Cmder{cmd}, send) }, f}
}

// Trips counts a client's round trips from now on.
func Trips(c interface{ AddHook(redis.Hook) }) *atomic.Int64 {
	n := &atomic.Int64{}
	c.AddHook(Around(func(_ []redis.Cmder, send func() error) error { n.Add(1); return send() }))
	return n
}

// DialHook changes nothing.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook calls Alone.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.Alone == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.Alone(cmd, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook calls Piped.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.Piped == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.Piped(cmds, func() error { return next(ctx, cmds) })
	}
}

// Monitored returns the commands that the shared Redis got while do ran, also those of other tests: a line each, as MONITOR prints them.
func Monitored(t *testing.T, do func()) (lines []string) {
	t.Helper()
	opt, err := redis.ParseURL(Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	conn, err := net.Dial(opt.Network, opt.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	next := func() string {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if got := next(); got != "+OK\r\n" {
		t.Fatalf("MONITOR answers %q", got)
	}
	do()
	end := rand.Text() // scripts that other tests load may have any word
	if err := c.Echo(t.Context(), end).Err(); err != nil {
		t.Fatal(err)
	}
	for line := next(); !strings.Contains(line, end); line = next() {
		lines = append(lines, line)
	}
	return lines
}
