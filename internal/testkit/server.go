package testkit

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// stopWithin bounds how long a server may take to save and end after SIGTERM.
const stopWithin = patience

// RedisServer is a redis-server of one test, which may break it.
type RedisServer struct {
	t    testing.TB
	lp   launchParams
	mu   sync.Mutex
	proc *process
}

// Server starts a redis-server for this test alone, which ends with the test. Args are added to its command line. With
// `"--appendonly", "yes"` the data survives Restart; without, nothing is on disk.
func Server(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return serve(t, launchParams{dir: t.TempDir(), args: append(volatile(), args...)})
}

func serve(t testing.TB, lp launchParams) *RedisServer {
	t.Helper()
	p, err := launch(lp)
	if err != nil {
		t.Fatal(err)
	}
	lp.port = p.port
	s := &RedisServer{t: t, lp: lp, proc: p}
	t.Cleanup(s.Kill)
	return s
}

// URL returns redis://127.0.0.1:PORT/0. It stays the same over Restart.
func (s *RedisServer) URL() string { return "redis://" + s.Addr() + "/0" }

// Addr returns 127.0.0.1:PORT.
func (s *RedisServer) Addr() string { return s.current().addr() }

// Dir returns the directory that holds what the server writes to disk.
func (s *RedisServer) Dir() string { return s.lp.dir }

// Client returns a client of this server that never tries twice, closed when the test ends.
func (s *RedisServer) Client() redis.UniversalClient { return clientOf(s.t, s.Addr()) }

// Stop asks the server to end (SIGTERM) and waits until it has. If it has ended already, nothing happens.
func (s *RedisServer) Stop() {
	s.t.Helper()
	s.Continue()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.current().exited:
	case <-time.After(stopWithin):
		s.Kill()
		s.t.Errorf("redis-server at %s did not stop within %v", s.Addr(), stopWithin)
	}
}

// Kill kills the server (SIGKILL), as a power failure would.
func (s *RedisServer) Kill() {
	s.signal(syscall.SIGKILL)
	<-s.current().exited
}

// Restart starts the server again on the same port and directory, stopping it first if it still runs.
func (s *RedisServer) Restart() {
	s.t.Helper()
	s.Stop()
	p, err := launch(s.lp)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
}

func (s *RedisServer) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *RedisServer) signal(sig os.Signal) {
	p := s.current()
	if !p.gone() {
		_ = p.cmd.Process.Signal(sig) // it may end by itself in between
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
