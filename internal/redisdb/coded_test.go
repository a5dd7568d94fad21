package redisdb

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// The error of a command while Redis is away has the code unavailable. An error of a disk or of another server has not.
func TestOnlyRedisErrorsAreCoded(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t)
	db := open(t, server.URL(), Options{})
	server.Stop()
	_, full := os.OpenFile(t.TempDir()+"/none/file", os.O_WRONLY, 0)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, busy := net.Listen("tcp", taken.Addr().String())
	var one *redis.StatusCmd
	_, piped := db.Client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		one = p.Set(t.Context(), "k", "v", 0)
		return nil
	})
	for name, c := range map[string]struct {
		err  error
		want job.Code
	}{
		"a command":         {db.Client.Get(t.Context(), "k").Err(), job.CodeUnavailable},
		"a pipeline":        {piped, job.CodeUnavailable},
		"one of a pipeline": {one.Err(), job.CodeUnavailable},
		"a file":            {full, job.CodeFailed},
		"a port":            {busy, job.CodeFailed},
	} {
		if c.err == nil || job.CodeOf(Coded(c.err)) != c.want {
			t.Errorf("%s: %v has the code %s, want %s", name, c.err, job.CodeOf(Coded(c.err)), c.want)
		}
	}
}

// What does not end by itself has a hint that says what ends it.
func TestEachReplyThatNeedsAPersonSaysWhatToDo(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t)
	db := open(t, server.URL(), Options{})
	set := func(key, value string) {
		if err := db.Client.ConfigSet(t.Context(), key, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	write := NewScript("return redis.call('SET', KEYS[1], '1')")
	for _, c := range []struct{ key, on, off, want string }{
		{"maxmemory", "1", "0", "raise maxmemory"},
		{"min-replicas-to-write", "1", "0", "min-replicas-to-write"},
	} {
		set(c.key, c.on)
		for _, err := range []error{db.Client.Set(t.Context(), "k", "v", 0).Err(), write.Run(t.Context(), db.Client, []string{"k"}).Err()} {
			coded, _ := errors.AsType[*job.Error](Coded(err))
			if coded == nil || !strings.Contains(coded.Hint, c.want) {
				t.Errorf("%s: %v has the hint %q, want %q in it", c.key, err, coded, c.want)
			}
		}
		set(c.key, c.off)
	}
	set("maxmemory", "0")
	if err := db.Client.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	coded, _ := errors.AsType[*job.Error](Coded(db.Client.Set(t.Context(), "k", "v", 0).Err()))
	if coded == nil || !strings.Contains(coded.Hint, "the address of the primary") {
		t.Errorf("a replica has the hint %v", coded)
	}
}
