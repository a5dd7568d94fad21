package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

const saysCharged = "may have charged\tyes: a call was sent, and what came of it is unknown\n"

// A dispatcher is killed during a call to a gateway without keys. Whoever looks the job up is told that it may have been charged.
func TestAJobSaysThatItMayHaveBeenCharged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.manual(r.two)
	r.accept(g, job.Enqueued, charge("cut", "100", ""), charge("new", "100", ""))
	books := dispatch.Books(r.c, g)
	id, generation, _ := job.ParseTaskID(testkit.Pop(t, r.c, redisdb.NewKeys(r.two).Lines()))
	if _, opening, err := books.Open(r.ctx, id, generation, "w1", time.Minute); err != nil || opening != job.OpenGo {
		t.Fatal(opening, err)
	}
	r.must(r.c.HSet(r.ctx, redisdb.NewKeys(r.two).Job(id), "od", 1).Err()) // its deadline
	r.must(r.c.ZAdd(r.ctx, redisdb.NewKeys(r.two).Open(), redis.Z{Score: 1, Member: id}).Err())
	if _, err := books.Sweep(r.ctx); err != nil {
		t.Fatal(err)
	}
	r.unanswered(r.one, charge("again", "100", ""))
	for _, of := range []string{"cut", "again"} {
		if got := r.command("job", of); !strings.Contains(got.out, saysCharged) {
			t.Errorf("%s: %s", of, got.out)
		}
		if got := r.command("job", of, "-o", "json"); !strings.Contains(got.out, `"may_have_charged":true`) {
			t.Errorf("%s: %s", of, got.out)
		}
	}
	if got := r.command("job", "new").out + r.command("job", "new", "-o", "json").out; strings.Contains(got, "may have charged") || strings.Contains(got, "may_have_charged") {
		t.Error(got)
	}
}

// Redis was restored to older data. That it does not know a job, or a batch, says little until the restore is confirmed, and of the time that it lacks also
// after that.
func TestAJobThatARestoreMayHaveLostIsNotSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	never := "dispatcher: no job \"a\"\nhint: it was never enqueued here, or it was done longer ago than dedupe\n"
	r.expect(r.command("job", "a"), 4, "", never)
	alive, from := redisdb.NewKeys(r.two).Alive(), time.Now().Add(-time.Hour).UnixMicro()
	r.must(r.c.HSet(r.ctx, alive, "df", from, "ds", from, "dl", "x", "v", 1).Err())
	r.expect(r.command("job", "a"), 4, "", "dispatcher: no job \"a\", but Redis can't tell: its data is from TIME\nhint: it may have been accepted since, and sent; "+
		"look at the gateway and in your own books. Redis was restored to TIME: check, then start one dispatcher with --after-restore\n")
	if got := r.command("batch", "nov"); got.code != 4 || !strings.Contains(got.err, "no batch \"nov\", but Redis can't tell") {
		t.Errorf("%+v", got)
	}
	r.expect(r.command("job", "a", "-g", r.one), 4, "", never)
	r.must(r.c.HDel(r.ctx, alive, "df", "ds", "dl").Err())
	r.must(r.c.HSet(r.ctx, alive, "marks", fmt.Sprintf("%d-%d", from, from+60_000_000)).Err())
	r.expect(r.command("job", "a"), 4, "", strings.TrimSuffix(never, "\n")+", or it was accepted from TIME to TIME: that is lost, because Redis was restored to older data\n")
	old := 60 * 24 * time.Hour.Microseconds()
	r.must(r.c.HSet(r.ctx, alive, "marks", fmt.Sprintf("1-2 %d-%d", from-old, from-old+60_000_000)).Err())
	r.expect(r.command("job", "a"), 4, "", never)
}
