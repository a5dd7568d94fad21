// Package testkit gives tests a real Redis: one that the whole test binary shares, private ones to break,
// a cluster, and a primary with a replica under sentinels. Only _test files import it, and it imports
// no package of ours, so that every package can use it.
//
// Every server dies with the test process, also if that panics, times out or is killed.
package testkit

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patience is the shortest bound of a wait. It only bounds a hang: on a busy machine everything may be late by seconds, and a wait
// that succeeds costs nothing.
const patience = time.Minute

// startWithin bounds how long a server may take to answer.
const startWithin = patience

// often is the pause between two looks at a condition.
const often = 5 * time.Millisecond

// A test keeps little in memory. Go would collect garbage after every 4 MB, which takes a tenth of the processor time of the tests.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

var shared = sync.OnceValues(func() (*process, error) {
	return launch(launchParams{dir: "", args: append(volatile(), "--databases", "4096")})
})

// Redis returns the URL of a redis-server that all tests of this binary share. It keeps nothing on disk.
// Never flush it: give each test its own gateway name instead.
func Redis(t testing.TB) string {
	t.Helper()
	p, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return p.url()
}

var databases atomic.Int64

// Database returns the URL of a database of the shared redis-server that no other test of this binary has, and a client of it. It is for tests that
// look at all gateways.
func Database(t testing.TB) (string, redis.UniversalClient) {
	t.Helper()
	number := databases.Add(1)
	url := strings.TrimSuffix(Redis(t), "/0") + "/" + strconv.FormatInt(number, 10)
	c := connectTo(strings.TrimPrefix(strings.TrimSuffix(Redis(t), "/0"), "redis://"), int(number))
	t.Cleanup(func() { _ = c.Close() })
	return url, c
}

// Client returns a client of the shared redis-server, closed when the test ends.
func Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	return clientOf(t, strings.TrimSuffix(strings.TrimPrefix(Redis(t), "redis://"), "/0"))
}

func clientOf(t testing.TB, addr string) *redis.Client {
	c := connect(addr)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connect never tries a command twice: a test wants to see the first answer. The driver's own log is off, because it would fill the
// output while a server starts.
func connect(addr string) *redis.Client { return connectTo(addr, 0) }

func connectTo(addr string, database int) *redis.Client {
	logging.Disable()
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		DB:                       database,
		Protocol:                 2,
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

var long = flag.Bool("long", false, "what is tried at random is tried more often, and what runs for a while runs longer")

// Often returns a number of tries: short in the everyday run, full with -long (make long).
func Often(short, full int) int {
	if *long {
		return full
	}
	return short
}

// OneGoroutine skips a test under the race detector. It is for tests in which one goroutine does everything: there is nothing to
// race, and the race detector makes them three times as long. Call it first.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("one goroutine does it all, and the race detector would make it three times as long: make test runs it")
	}
}

var gateways atomic.Int64

// Gateway returns a gateway name that no other test of this binary has.
func Gateway(t testing.TB) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, t.Name())
	return fmt.Sprintf("%.40s-%d", name, gateways.Add(1))
}

// Eventually waits until cond holds. It checks every 5 ms, and fails the test if cond does not hold after within, or after a minute if that
// is longer: it is about whether something happens, and not about how fast the machine is.
// What completes the sentence "waited for …". Call it from the test's own goroutine.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	EventuallyEvery(t, often, within, what, cond)
}

// EventuallyEvery is Eventually with another pause. It is for a condition that costs much to check, for example because it starts a
// program.
func EventuallyEvery(t testing.TB, pause, within time.Duration, what string, cond func() bool) {
	t.Helper()
	within = max(within, patience)
	if !Within(within, pause, cond) {
		t.Fatalf("waited %v in vain for %s", within, what)
	}
}

// Within checks cond, with a pause after each check, until it holds or the time is over. It reports whether cond held.
func Within(within, pause time.Duration, cond func() bool) bool {
	over := time.After(within)
	wait := time.NewTimer(pause)
	defer wait.Stop()
	for !cond() {
		wait.Reset(pause)
		select {
		case <-over:
			return cond()
		case <-wait.C:
		}
	}
	return true
}

// Port returns a TCP port of the loopback interface on which nobody listens. Each call returns another one, also in other test processes.
func Port() (int, error) { return freePort() }

// FreePort is Port for a test.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func listens(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return true
	}
	return l.Close() != nil
}

// GatewayOf returns the gateway of a key, or "".
func GatewayOf(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return ""
	}
	name, _, ok := strings.Cut(rest, "}")
	if !ok {
		return ""
	}
	return name
}

// Pop removes the next task from a queue, whose lines are in the order of redisdb.Keys.Lines, and returns it. A task of a job that was called before comes first. Pop
// returns "" if there is none.
func Pop(t testing.TB, c redis.UniversalClient, lines []string) string {
	t.Helper()
	for _, line := range append(slices.Clone(lines[2:]), lines[:2]...) {
		task, err := c.RPop(context.Background(), line).Result()
		if err == nil {
			return task
		}
		if !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	return ""
}

// AmidHour waits while Redis's clock is in the last minute of an hour. A test that counts by the hour calls it first, so that the hour
// does not end in the middle of the test.
func AmidHour(t testing.TB, c redis.UniversalClient) {
	t.Helper()
	EventuallyEvery(t, time.Second, 3*time.Minute, "the next hour to begin", func() bool {
		now, err := c.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return now.UTC().Minute() < 59
	})
}

// Log keeps what is written to it, also by several goroutines. The zero Log is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// RunProperties is the TestMain of a package that draws properties with rapid. It has rapid draw each property less often than its 100 times,
// and the same values each time, so that a failure comes from the change under test and not from the draw.
// With -long (make long) rapid draws 100 times, and other values each time. The flags of rapid overrule both.
func RunProperties(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]int{"rapid.checks": Often(30, 100), "rapid.seed": Often(1, 0)} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(strconv.Itoa(value))
		}
	}
	os.Exit(m.Run())
}

// CardNumbers returns n card numbers of the largest schemes, of each of their lengths. Each call returns the same numbers.
func CardNumbers(n int) (all []string) {
	schemes := []struct {
		begins string
		length int
	}{{"4", 16}, {"4", 13}, {"4", 19}, {"51", 16}, {"55", 16}, {"2221", 16}, {"2720", 16}, {"34", 15}, {"37", 15}, {"6011", 16}, {"649", 16}, {"65", 19}, {"305", 14}, {"36", 14},
		{"38", 14}, {"3528", 16}, {"3589", 19}, {"62", 16}, {"62", 19}, {"2200", 16}, {"5018", 13}, {"6304", 19}, {"6759", 18}, {"5067", 16}, {"606282", 16}, {"9792", 16}, {"508", 16}}
	random := rand.New(rand.NewPCG(5, 6))
	for i := 0; len(all) < n; i++ {
		s := schemes[i%len(schemes)]
		text := s.begins
		for len(text) < s.length-1 {
			text += fmt.Sprint(random.IntN(10))
		}
		all = append(all, WithCheck(text))
	}
	return all
}

// WithCheck returns digits with their Luhn check digit.
func WithCheck(digits string) string {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return digits + fmt.Sprint((10-sum%10)%10)
}
