package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// client returns a client of the Redis in the configuration.
func (b *bench) client() redis.UniversalClient {
	b.t.Helper()
	if b.server != nil {
		return b.server.Client()
	}
	return testkit.Client(b.t)
}

// park enqueues jobs and parks them as refused, or as unknown_outcome.
func (b *bench) park(unsure bool, ids ...string) {
	b.t.Helper()
	cfg, err := config.Load(filepath.Join(b.dir, "dispatcher.yaml"), config.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	g, _ := cfg.Gateway(b.g)
	c := b.client()
	var file strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&file, `{"id":%q,"payload":{"money":{"amount":1,"currency":"eur"}},"batch":"b1"}`+"\n", id)
	}
	b.write("parked.ndjson", file.String())
	b.run("-g", b.g, "-f", "parked.ndjson")
	for range ids {
		task := c.RPop(b.t.Context(), redisdb.NewKeys(b.g).Pending()).Val()
		id, generation, _ := job.ParseTaskID(task)
		a, _, err := dispatch.Books(c, g).Open(b.t.Context(), id, generation, "w1", time.Minute)
		if err != nil {
			b.t.Fatal(err)
		}
		end, reason := job.Ending{Called: true, Spent: true, Status: 402, Verdict: job.VerdictRefused, At: time.UnixMicro(1)}, job.Refused
		if unsure {
			end.Unsure, end.Verdict, reason = true, job.VerdictUnknown, job.UnknownOutcome
		}
		if err := deadletter.New(c, b.g).Park(b.t.Context(), a, end, reason); err != nil {
			b.t.Fatal(err)
		}
	}
}

// swapped adds the result of replacements to a report, in EUR.
func swapped(report string, jobs, before, after int) string {
	return strings.TrimSuffix(report, "}\n") + fmt.Sprintf(`,"replaced":{"jobs":%d,"amount_before":{"EUR":%d},"without_amount_before":0,"amount_after":{"EUR":%d},`+
		`"without_amount_after":0,"amounts_lost":0}}`+"\n", jobs, before, after)
}

func TestReplaceGivesParkedJobsAnotherPayload(t *testing.T) {
	b := setup(t, place{})
	b.park(false, "a", "same")
	b.park(true, "unknown")
	b.write("live.ndjson", lines("live", 1))
	b.run("-g", b.g, "-f", "live.ndjson")
	b.write("edited.ndjson", `{"id":"a","payload":{"money":{"amount":7,"currency":"eur"}},"batch":"b1","reason":"refused","calls":[{"at":1}],"amount":{"EUR":1}}
{"id":"same","payload":{"money":{"currency":"eur","amount":1}}}
{"id":"unknown","payload":{"money":{"amount":7}}}
{"id":"live-0","payload":{}}
{"id":"nobody","payload":{}}
{"id":"a"}
{"id":"a","payload":{},"cost":3}
{"id":"a","payload":{},"nonsense":1}
`)
	got := b.run("--replace", "--yes", "-g", b.g, "-f", "edited.ndjson", "-o", "json")
	b.want(result{got.code, got.out, ""}, result{3, swapped(counts(8, 1, 0, 1, 6, 0), 1, 1, 7), ""})
	for _, says := range []string{
		"line 3: an earlier call may have charged", "line 4: it is queued: only a parked job", "line 5: no such job is known",
		"line 6: no payload to replace the job's with", "line 7: a replacement changes the payload alone", `line 8: unknown key "nonsense"`,
	} {
		if !strings.Contains(got.err, says) {
			t.Errorf("standard error has no %q:\n%s", says, got.err)
		}
	}
	a := b.record(b.g, "a")
	if a.State != job.Queued || a.KeyGeneration != 2 || string(a.Job.Payload) != `{"money":{"amount":7,"currency":"eur"}}` || a.Job.Batch != "b1" {
		t.Errorf("a: %+v", a)
	}
	if u := b.record(b.g, "unknown"); u.State != job.Parked || strings.Contains(string(u.Job.Payload), "7") {
		t.Errorf("unknown: %+v", u)
	}
	var act deadletter.Act
	trail := testkit.Client(t).LIndex(t.Context(), redisdb.NewKeys(b.g).Trail(), 0).Val()
	if err := json.Unmarshal([]byte(trail), &act); err != nil || act.What != "replace" || act.Jobs != 1 || act.Amount["EUR"].Int64() != 7 || act.Ended == nil ||
		act.Replaced == nil || act.Replaced.Amount["EUR"].Int64() != 1 {
		t.Errorf("trail %s: %v", trail, err)
	}
}

func TestReplaceWithoutRoomLeavesTheJobParkedWithItsNewPayload(t *testing.T) {
	b := setup(t, place{burst: 1, limit: "1/h"})
	b.park(false, "a")
	b.write("edited.ndjson", `{"id":"a","payload":{"money":{"amount":7,"currency":"eur"}}}`)
	parked := "1 jobs found no room yet and stay parked, with their new payload; replay them with \"dispatcher dlq replay\" and --batch, --reason or --id\n"
	b.want(b.run("--replace", "--yes", "-g", b.g, "-f", "edited.ndjson", "-o", "json"), result{0, swapped(counts(1, 0, 1, 0, 0, 0), 1, 1, 7), parked})
	b.want(b.run("--replace", "--yes", "-g", b.g, "-f", "edited.ndjson", "-o", "json"), result{0, swapped(counts(1, 0, 1, 0, 0, 0), 1, 7, 7), parked})
	if a := b.record(b.g, "a"); a.State != job.Parked || !a.Replaced() || a.KeyGeneration != 2 {
		t.Errorf("a: %+v", a)
	}
}

// A job of a paused batch gets its new payload and stays parked until the batch is resumed. It takes no room at admission, does not wait for room
// with any --on-full, and counts as parked once.
func TestReplaceLeavesTheJobsOfAPausedBatchPaused(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", `{"id":"a","payload":{"money":{"amount":1,"currency":"eur"}},"batch":"b1"}`)
	b.run("-g", b.g, "-f", "a.ndjson")
	cfg, err := config.Load(filepath.Join(b.dir, "dispatcher.yaml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := cfg.Gateway(b.g)
	books := dispatch.Books(b.client(), g)
	if err := books.PauseBatch(t.Context(), "b1", "me", "wrong amounts", func(ledger.Shelved) error { return nil }); err != nil {
		t.Fatal(err)
	}
	was, before := b.record(b.g, "a"), 1
	for i, onFull := range []string{"park", "wait", "fail"} {
		b.write("edited.ndjson", fmt.Sprintf(`{"id":"a","payload":{"money":{"amount":%d,"currency":"eur"}}}`, i+7))
		b.want(b.run("--replace", "--yes", "--on-full", onFull, "-g", b.g, "-f", "edited.ndjson", "-o", "json"), result{0, swapped(counts(1, 0, 1, 0, 0, 0), 1, before, i+7),
			"1 job of a paused batch stays parked, with its new payload; \"dispatcher batch resume\" takes it in\n"})
		before = i + 7
		a := b.record(b.g, "a")
		if a.State != job.Parked || a.Reason != job.Paused || a.Error != was.Error || !a.ParkedAt.Equal(was.ParkedAt) || a.Replays != 0 || a.Generation != was.Generation ||
			a.KeyGeneration != int64(i+2) || string(a.Job.Payload) != fmt.Sprintf(`{"money":{"amount":%d,"currency":"eur"}}`, i+7) {
			t.Errorf("--on-full %s: %+v", onFull, a)
		}
	}
	if err := books.ResumeBatch(t.Context(), "b1", func(ledger.Shelved) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if a := b.record(b.g, "a"); a.Reason != job.Rejected || a.KeyGeneration != 4 || !strings.Contains(string(a.Job.Payload), ":9,") {
		t.Errorf("resumed: %+v", a)
	}
}

// Redis takes no writes for a while. The replacement waits for it, and the trail has its reason.
func TestReplaceWaitsForRedis(t *testing.T) {
	server := testkit.Server(t)
	b := setup(t, place{redis: server.URL()})
	b.server, b.patience = server, "2m"
	b.park(false, "a")
	c := server.Client()
	if err := c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	b.during = func(*os.Process) {
		testkit.Eventually(t, 10*time.Second, "a write to be refused", func() bool {
			return strings.Contains(c.Info(t.Context(), "errorstats").Val(), "errorstat_NOREPLICAS")
		})
		c.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	}
	b.write("edited.ndjson", `{"id":"a","payload":{"money":{"amount":7,"currency":"eur"}}}`)
	got := b.run("--replace", "--yes", "--why", "wrong amount", "-g", b.g, "-f", "edited.ndjson", "-o", "json")
	b.want(result{got.code, got.out, ""}, result{0, swapped(counts(1, 1, 0, 0, 0, 0), 1, 1, 7), ""})
	trail := c.LRange(t.Context(), redisdb.NewKeys(b.g).Trail(), 0, -1).Val()
	if len(trail) != 1 || !strings.Contains(trail[0], `"why":"wrong amount"`) || !strings.Contains(trail[0], `"jobs":1`) {
		t.Errorf("trail: %v", trail)
	}
}

func TestReplaceAskedWrongly(t *testing.T) {
	b := setup(t, place{})
	b.write("a.ndjson", "")
	if got := b.run("-g", b.g, "-f", "a.ndjson", "--why", "x"); got.code != 2 || !strings.Contains(got.err, "--why says why jobs get another payload") {
		t.Errorf("--why alone: %+v", got)
	}
	for _, flag := range []string{"--yes", "--without-amount"} {
		if got := b.run("-g", b.g, "-f", "a.ndjson", flag); got.code != 2 || !strings.Contains(got.err, "--yes and --without-amount are for --replace") {
			t.Errorf("%s alone: %+v", flag, got)
		}
	}
	for _, flag := range []string{"--at=+1h", "--expires=+1h", "--batch=b2"} {
		got := b.run("--replace", "--yes", "-g", b.g, "-f", "a.ndjson", flag)
		if name, _, _ := strings.Cut(flag, "="); got.code != 2 || !strings.Contains(got.err, name+" can't be changed with --replace") {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}
