package main

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/testkit"
)

func TestARedisThatEvictsGetsNoJobs(t *testing.T) {
	server := testkit.Server(t, "--appendonly", "yes", "--maxmemory-policy", "volatile-ttl")
	b := setup(t, place{redis: server.URL()})
	b.write("a.ndjson", lines("a", 2))
	b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json"), result{1, counts(0, 0, 0, 0, 0, 0),
		"enqueue: Redis may delete jobs when its memory is full (maxmemory-policy volatile-ttl)\n" +
			"hint: set maxmemory-policy to noeviction: redis-cli CONFIG SET maxmemory-policy noeviction, and in its configuration file\n"})
	if n := server.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

func TestWhatRedisMayLoseIsSaidLoudly(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing on disk": {nil, "warning: REDIS KEEPS NOTHING ON DISK: a restart loses every job and the memory of what was charged; set appendonly to yes: "},
		"append-only":     {[]string{"--appendonly", "yes"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, place{redis: testkit.Server(t, c.args...).URL()})
			b.write("a.ndjson", lines("a", 2))
			b.want(b.run("-g", b.g, "-f", "a.ndjson", "-o", "json", "-q"), result{0, counts(2, 2, 0, 0, 0, 0), ""})
			if !strings.HasPrefix(b.warned, c.want) || c.want == "" && b.warned != "" {
				t.Errorf("it says %q, want %q", b.warned, c.want)
			}
		})
	}
}

// If Redis refuses writes for now, the error has its own words, and says that the chunk may or may not be enqueued.
func TestARedisThatCantTakeJobsNow(t *testing.T) {
	for name, c := range map[string]struct{ set, to, says string }{
		"full":              {"maxmemory", "1", "OOM command not allowed"},
		"too few replicas":  {"min-replicas-to-write", "1", "NOREPLICAS Not enough good replicas"},
		"an unwritten disk": {"dir", "/proc", "MISCONF"},
	} {
		t.Run(name, func(t *testing.T) {
			server := testkit.Server(t, "--enable-protected-configs", "yes")
			b := setup(t, place{redis: server.URL()})
			b.write("a.ndjson", lines("a", 600))
			ctx, r := t.Context(), server.Client()
			if err := r.ConfigSet(ctx, c.set, c.to).Err(); err != nil {
				t.Fatal(err)
			}
			if c.set == "dir" {
				r.ConfigSet(ctx, "save", "3600 1")
				r.BgSave(ctx)
				testkit.Eventually(t, 10*time.Second, "the snapshot to fail", func() bool {
					return strings.Contains(r.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
				})
			}
			got := b.run("-g", b.g, "-f", "a.ndjson", "-o", "json")
			if !strings.HasPrefix(got.err, "enqueue: Redis can't take jobs in now; of 600 lines read so far 0 are in, and 600 more may or may not be: "+c.says) {
				t.Errorf("standard error %s", got.err)
			}
			got.err = ""
			b.want(got, result{5, counts(600, 0, 0, 0, 0, 600), ""})
		})
	}
}
