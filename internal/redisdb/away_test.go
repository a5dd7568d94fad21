package redisdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

// wantAway makes a server answer a write, from outside and from within a script, and expects both errors to count as away.
func wantAway(t *testing.T, c redis.UniversalClient, code string) {
	t.Helper()
	direct := c.Set(t.Context(), "{x}k", strings.Repeat("x", 1000), 0).Err()
	script := NewScript("return redis.call('SET', KEYS[1], ARGV[1])").Run(t.Context(), c, []string{"{x}k"}, "v").Err()
	for _, err := range []error{direct, script, fmt.Errorf("admitting: %w", script)} {
		if !Away(err) || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: away is %v for %v", code, Away(err), err)
		}
	}
}

func TestAwayWhenFull(t *testing.T) {
	t.Parallel()
	c := testkit.Server(t).Client()
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	wantAway(t, c, "OOM")
}

func TestAwayOnAReplica(t *testing.T) {
	t.Parallel()
	primary := testkit.Server(t)
	port := strings.TrimPrefix(primary.Addr(), "127.0.0.1:")
	replica := testkit.Server(t, "--replicaof", "127.0.0.1 "+port, "--replica-serve-stale-data", "no")
	c := replica.Client()
	testkit.Eventually(t, 20*time.Second, "the replica to catch up", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	wantAway(t, c, "READONLY")
	primary.Kill()
	testkit.Eventually(t, 20*time.Second, "MASTERDOWN", func() bool {
		err := c.Get(t.Context(), "k").Err()
		return err != nil && strings.HasPrefix(err.Error(), "MASTERDOWN") && Away(err)
	})
}

func TestAwayWithTooFewReplicas(t *testing.T) {
	t.Parallel()
	wantAway(t, testkit.Server(t, "--min-replicas-to-write", "1").Client(), "NOREPLICAS")
}

func TestAwayWhileLoading(t *testing.T) {
	t.Parallel()
	const each = "20000" // µs for a key: it loads for a minute, and the test ends as soon as it has seen that
	s := testkit.Server(t, "--save", "3600 1", "--key-load-delay", each, "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no")
	c := s.Client()
	fill := "for i = 1, 3000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end return 1"
	if err := c.Eval(t.Context(), fill, nil).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	loaded := make(chan struct{})
	go func() { defer close(loaded); s.Restart() }()
	testkit.Eventually(t, 20*time.Second, "LOADING to count as away", func() bool {
		err := c.Get(t.Context(), "k1").Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING") && Away(err)
	})
	_, err := Open(t.Context(), s.URL(), Options{})
	if e, is := errors.AsType[*Error](err); !is || e.Kind != ErrAway || !strings.Contains(e.Hint, "it is loading its data") {
		t.Errorf("%#v; want a hint that says that it loads, not to start it", err)
	}
	<-loaded
}

func TestAwayWhenStoppedPausedOrFullOfClients(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t, "--maxclients", "2")
	keep := s.Client()
	var last error
	testkit.Eventually(t, 5*time.Second, "max clients", func() bool {
		sub := keep.Subscribe(t.Context(), "c")
		t.Cleanup(func() { _ = sub.Close() })
		last = sub.Ping(t.Context())
		return last != nil
	})
	if !Away(last) {
		t.Errorf("too many clients: %v", last)
	}
	p := testkit.Server(t)
	db := open(t, p.URL(), Options{ReadTimeout: 50 * time.Millisecond, Wait: time.Minute})
	p.Pause()
	if err := db.Client.Get(t.Context(), "k").Err(); !Away(err) {
		t.Errorf("paused: %v", err)
	}
	p.Kill()
	testkit.Eventually(t, 5*time.Second, "refused connections to count as away", func() bool {
		err := db.Client.Get(t.Context(), "k").Err()
		return Away(err) && strings.Contains(err.Error(), "refused")
	})
}

func TestAwayWithoutSentinels(t *testing.T) {
	t.Parallel()
	url := fmt.Sprintf("redis-sentinel://127.0.0.1:%d/0?master=m", testkit.FreePort(t))
	if _, err := Open(t.Context(), url, Options{}); !errors.Is(err, ErrAway) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), fmt.Sprintf("redis-cluster://127.0.0.1:%d", testkit.FreePort(t)), Options{}); !errors.Is(err, ErrAway) {
		t.Error(err)
	}
}

// Errors that no server here can be made to return, in the words of Redis's source.
func TestAwayByText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                                                   true,
		"MOVED 3999 127.0.0.1:6381":                                                                                                                 true,
		"MISCONF Redis is configured to save RDB snapshots":                                                                                         true,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL":                                                                        true,
		"ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -OOM command not":                                                 true,
		"ERR Script attempted to access a non local key in a cluster node script: a, on @user_script:1.":                                            true,
		"ERR Error running script (call to f_a): @user_script:1: @user_script: 1: Lua script attempted to access a non local key in a cluster node": true,
		"ERR value is not an integer or out of range":                                                                                               false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                                         false,
		"NOSCRIPT No matching script. Please use EVAL.":                                                                                             false,
		"NOAUTH Authentication required.":                                                                                                           false,
		"BUSYGROUP Consumer Group name already exists":                                                                                              false,
	} {
		if Away(errors.New(text)) != want {
			t.Errorf("%q: away is not %v", text, want)
		}
	}
	for err, want := range map[error]bool{
		nil: false, redis.Nil: false, context.Canceled: false, redis.ErrClosed: false,
		context.DeadlineExceeded: true, io.EOF: true, io.ErrUnexpectedEOF: true, redis.ErrPoolTimeout: true, ErrAway: true,
	} {
		if Away(err) != want {
			t.Errorf("%v: away is not %v", err, want)
		}
	}
}

// If the server at the address is of another kind than the address says, that is no outage, and waiting does not help.
func TestAnAddressOfAnotherKind(t *testing.T) {
	t.Parallel()
	host := testkit.Server(t).Addr()
	sentinels, _, _ := strings.Cut(testkit.Sentinel(t).URL(), "?")
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for url, want := range map[string]string{
		"redis://" + web.Listener.Addr().String():   "is an HTTP server, not Redis",
		"redis-cluster://" + host:                   "is not a cluster",
		"redis-sentinel://" + host + "/0?master=m":  "is not a sentinel",
		sentinels + "?master=nobody-is-called-that": "know no primary of that name",
	} {
		_, err := Open(t.Context(), url, Options{Wait: time.Minute})
		if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, ErrURL) || !strings.Contains(e.Message, want) || e.Hint == "" {
			t.Errorf("%s: %v, want …%s", url, err, want)
		}
	}
}
