package redisdb

import (
	"net"
	"os"
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
