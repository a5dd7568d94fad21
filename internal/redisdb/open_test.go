package redisdb

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
)

func open(t *testing.T, url string, opt Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func roundTrip(t *testing.T, db *DB) {
	t.Helper()
	key := NewKeys(testkit.Gateway(t)).Counters()
	if err := db.Client.HIncrBy(t.Context(), key, "n", 2).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := NewScript("return redis.call('HGET', KEYS[1], 'n')").Run(t.Context(), db.Client, []string{key}).Text()
	if err != nil || got != "2" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestOpenPlain(t *testing.T) {
	t.Parallel()
	db := open(t, testkit.Redis(t), Options{})
	roundTrip(t, db)
	if name := db.Client.ClientGetName(t.Context()).Val(); name != "spillway" {
		t.Errorf("the connection is called %q", name)
	}
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}

func TestOpenChoosesTheDatabase(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	roundTrip(t, open(t, "redis://"+s.Addr()+"/7", Options{}))
	if n := s.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("database 0 has %d keys", n)
	}
	_, err := Open(t.Context(), "redis://"+s.Addr()+"/99", Options{})
	if !errors.Is(err, ErrDenied) || Away(err) {
		t.Errorf("database 99: %v", err)
	}
}

func TestOpenSocketWithPassword(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	testkit.Server(t, "--unixsocket", path, "--requirepass", "p@ss")
	roundTrip(t, open(t, "redis-socket://:p%40ss@"+path+"?db=1", Options{}))
}

// socketPath is short: the path of a socket may have only some hundred bytes, and that of t.TempDir can be longer.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "spw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func TestOpenIsDeniedWithoutShowingThePassword(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t, "--requirepass", "right")
	for _, user := range []string{"", ":hunter2@", "ann:hunter2@"} {
		_, err := Open(t.Context(), "redis://"+user+s.Addr()+"/0", Options{Wait: time.Minute})
		if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", user, err)
		}
	}
	roundTrip(t, open(t, "redis://:right@"+s.Addr()+"/0", Options{}))
}

func TestOpenCluster(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t)
	db := open(t, c.URL(), Options{})
	for range 8 {
		roundTrip(t, db)
	}
	found, err := db.Check(t.Context())
	if err != nil || len(found) != 1 || found[0].Severity != Warn {
		t.Errorf("Check found %v, %v; want one warning for three equal nodes", found, err)
	}
	c.Nodes[1].Kill()
	testkit.Eventually(t, 20*time.Second, "CLUSTERDOWN to count as away", func() bool {
		err := db.Client.Set(t.Context(), "x", 1, 0).Err()
		return Away(err) && strings.HasPrefix(err.Error(), "CLUSTERDOWN")
	})
	if err := db.Ping(t.Context()); !errors.Is(err, ErrAway) {
		t.Errorf("Ping with a dead primary: %v", err)
	}
}

func TestOpenSentinelFollowsAFailOver(t *testing.T) {
	t.Parallel()
	s := testkit.Sentinel(t)
	db := open(t, s.URL(), Options{})
	roundTrip(t, db)
	s.FailOver()
	promoted := s.Primary().Client()
	testkit.Eventually(t, 20*time.Second, "writes to reach the new primary", func() bool {
		err := db.Client.Set(t.Context(), "after", 1, 0).Err()
		if err != nil && !Away(err) {
			t.Errorf("during the fail-over: %v", err)
		}
		return promoted.Exists(t.Context(), "after").Val() == 1
	})
}

func TestOpenTLSChecksTheServersName(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	port := testkit.FreePort(t)
	testkit.Server(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
		"--tls-auth-clients", "no")
	_, err := Open(t.Context(), fmt.Sprintf("rediss://127.0.0.1:%d/0", port), Options{})
	if err == nil || !strings.Contains(err.Error(), "certificate") || Away(err) {
		t.Fatalf("a certificate of an unknown authority: %v", err)
	}
}

func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "spillway"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return writePEM(t, dir+"/cert", "CERTIFICATE", der), writePEM(t, dir+"/key", "PRIVATE KEY", private)
}

func writePEM(t *testing.T, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenWaitsForRedisToComeBack(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	s.Stop()
	if _, err := Open(t.Context(), s.URL(), Options{}); !errors.Is(err, ErrAway) {
		t.Fatalf("one try: %v", err)
	}
	type result struct {
		db  *DB
		err error
	}
	opened := make(chan result)
	go func() {
		db, err := Open(t.Context(), s.URL(), Options{Wait: time.Minute})
		opened <- result{db, err}
	}()
	s.Restart()
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	_ = r.db.Close()
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, s.URL(), Options{Wait: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// In a stall a second try does harm: the first command waits in Redis's buffer, and runs when Redis wakes.
func TestNoCommandIsSentTwice(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t)
	for name, server := range map[string]struct {
		url   string
		stall *testkit.RedisServer
	}{
		"cluster": {c.URL(), c.Owner("{g}n")},
		"plain":   plain(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, server.url, Options{ReadTimeout: brief, Wait: time.Minute})
			ctx := t.Context()
			warm(t, db, 4)
			server.stall.Pause()
			alone := db.Client.Incr(ctx, "{g}n").Err()
			pipe := db.Client.Pipeline()
			pipe.Incr(ctx, "{g}n")
			_, piped := pipe.Exec(ctx)
			server.stall.Continue()
			if !Away(alone) || !Away(piped) {
				t.Errorf("the stall was answered by %v and %v", alone, piped)
			}
			if n := reached(t, db); n > 2 {
				t.Errorf("two commands ran %d times", n)
			}
		})
	}
}

// brief is a time-out that a stalled Redis exceeds soon, and a busy machine's hardly ever.
const brief = 700 * time.Millisecond

// reached waits for an answer after a stall and returns what {g}n has been counted up to.
func reached(t *testing.T, db *DB) (n int) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, "an answer after the stall", func() bool {
		var err error
		n, err = db.Client.Get(t.Context(), "{g}n").Int()
		return err == nil || errors.Is(err, redis.Nil) // the stalled server threw it away
	})
	return n
}

// warm opens several connections to the owner of {g}: over a fresh one a second try would not get beyond the greeting.
func warm(t *testing.T, db *DB, want uint32) {
	t.Helper()
	busy := "local n = 0 for i = 1, 500000 do n = n + i end return n"
	testkit.Eventually(t, 10*time.Second, "warm connections", func() bool {
		var all sync.WaitGroup
		for range 2 * want {
			all.Go(func() { _ = db.Client.Eval(t.Context(), busy, []string{"{g}n"}).Err() })
		}
		all.Wait()
		return db.Client.PoolStats().IdleConns >= want
	})
}

func plain(t *testing.T) struct {
	url   string
	stall *testkit.RedisServer
} {
	s := testkit.Server(t)
	return struct {
		url   string
		stall *testkit.RedisServer
	}{s.URL(), s}
}

func TestAClusterNoticesClosedConnectionsBeforeUse(t *testing.T) {
	t.Parallel()
	c := testkit.Cluster(t)
	db := open(t, c.URL(), Options{PoolSize: 1})
	roundTrip(t, db)
	owner := c.Owner("{g}n")
	if err := db.Client.Set(t.Context(), "{g}n", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	killed := owner.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
	if err := db.Client.Set(t.Context(), "{g}n", 2, 0).Err(); err != nil || killed != nil {
		t.Errorf("after its connection was closed: %v, %v", err, killed)
	}
}

func TestOpenTellsOnceThatItWaits(t *testing.T) {
	t.Parallel()
	url := fmt.Sprintf("redis://127.0.0.1:%d/0", testkit.FreePort(t))
	for wait, want := range map[time.Duration]int{0: 0, 700 * time.Millisecond: 1} { // the second is time for several tries
		told := 0
		_, err := Open(t.Context(), url, Options{Wait: wait, Waiting: func(err error) {
			if told++; !errors.Is(err, ErrAway) {
				t.Errorf("it waits because of %v", err)
			}
		}})
		if !errors.Is(err, ErrAway) || told != want {
			t.Errorf("waiting %v: %v, told %d times", wait, err, told)
		}
	}
}
