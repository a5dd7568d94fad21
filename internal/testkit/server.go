package testkit

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
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

// RedisSentinel is a primary with replicas under three sentinels.
type RedisSentinel struct {
	// Servers are the data servers; which one is the primary changes with a fail-over.
	Servers []*RedisServer
	// Sentinels watch them.
	Sentinels []*RedisServer
	t         testing.TB
}

// SentinelMaster is the name under which Sentinel's primary is known.
const SentinelMaster = "spillway"

// Sentinel starts a primary, a replica and three sentinels for this test alone and waits until all know each other.
func Sentinel(t testing.TB) *RedisSentinel {
	t.Helper()
	return SentinelOf(t, 1)
}

// SentinelOf is Sentinel with a number of replicas. Args are added to the command line of every data server.
func SentinelOf(t testing.TB, replicas int, args ...string) *RedisSentinel {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s := &RedisSentinel{Servers: []*RedisServer{Server(t, args...)}, t: t}
	port := strconv.Itoa(s.Servers[0].lp.port)
	for range replicas {
		s.Servers = append(s.Servers, Server(t, append([]string{"--replicaof", "127.0.0.1 " + port}, args...)...))
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, serve(t, sentinelParams(t, port)))
	}
	Eventually(t, startWithin, "the sentinels to know each other and the replicas", s.settled)
	return s
}

func sentinelParams(t testing.TB, port string) launchParams {
	dir := t.TempDir()
	conf := dir + "/sentinel.conf"
	// A sentinel pings a server every second. On a busy machine a living server may be silent for one more.
	text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]s 2\nsentinel down-after-milliseconds %[1]s 2500\n"+
		"sentinel failover-timeout %[1]s 3000\n", SentinelMaster, port)
	write(t, conf, text)
	return launchParams{dir: dir, conf: conf, args: []string{"--sentinel"}}
}

func (s *RedisSentinel) settled() bool {
	for _, n := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
		m, err := c.Master(context.Background(), SentinelMaster).Result()
		_ = c.Close()
		if err != nil || m["num-slaves"] != strconv.Itoa(len(s.Servers)-1) || m["num-other-sentinels"] != "2" || m["flags"] != "master" {
			return false
		}
	}
	up := 0
	for _, server := range s.Servers {
		if linked(server) {
			up++
		}
	}
	return up == len(s.Servers)-1
}

func linked(server *RedisServer) bool {
	c := connect(server.Addr())
	defer func() { _ = c.Close() }()
	info, err := c.Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, "master_link_status:up")
}

// URL returns redis-sentinel://h:p,h:p,h:p/0?master=NAME.
func (s *RedisSentinel) URL() string {
	return "redis-sentinel://" + strings.Join(addrs(s.Sentinels), ",") + "/0?master=" + SentinelMaster
}

// Primary returns the server that is the primary according to the sentinels.
func (s *RedisSentinel) Primary() *RedisServer {
	s.t.Helper()
	addr := s.primaryAddr()
	for _, server := range s.Servers {
		if server.Addr() == addr {
			return server
		}
	}
	s.t.Fatalf("the sentinels name %q, which is none of %v", addr, addrs(s.Servers))
	return nil
}

func (s *RedisSentinel) primaryAddr() string {
	for _, n := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
		a, err := c.GetMasterAddrByName(context.Background(), SentinelMaster).Result()
		_ = c.Close()
		if err == nil && len(a) == 2 {
			return a[0] + ":" + a[1]
		}
	}
	return ""
}

// FailOver makes the replica the primary and waits until the sentinels say so and it takes writes. The old
// primary stays up and becomes its replica.
func (s *RedisSentinel) FailOver() {
	s.t.Helper()
	old := s.Primary()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinels[0].Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	Eventually(s.t, startWithin, "a sentinel to begin the fail-over", func() bool {
		return c.Failover(context.Background(), SentinelMaster).Err() == nil
	})
	s.AwaitPromotion(old)
}

// AwaitReplicas waits until every other server is a replica with the data of the primary.
func (s *RedisSentinel) AwaitReplicas() {
	s.t.Helper()
	Eventually(s.t, 2*startWithin, "all other servers to be the primary's replicas", s.settled)
}

// AwaitPromotion waits until another server than old is the primary and accepts writes, for example after old was killed.
func (s *RedisSentinel) AwaitPromotion(old *RedisServer) {
	s.t.Helper()
	Eventually(s.t, 2*startWithin, "another primary", func() bool {
		addr := s.primaryAddr()
		return addr != "" && addr != old.Addr() && isPrimary(addr)
	})
}

func isPrimary(addr string) bool {
	c := connect(addr)
	defer func() { _ = c.Close() }()
	info, err := c.Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, "role:master")
}
