package ledger_test

import (
	"errors"
	"regexp"
	"testing"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// No job goes into data of a newer format, whether a dispatcher has written that, or a producer that came before any.
func TestNothingGoesIntoDataOfANewerFormat(t *testing.T) {
	t.Parallel()
	for who, key := range map[string]func(redisdb.Keys) string{"a dispatcher": redisdb.Keys.Alive, "a producer": redisdb.Keys.Counters} {
		b := setup(t, 500, nil)
		b.c.HSet(b.ctx, key(b.keys), "format", "2")
		answers, _, err := testkit.Accept(b.ctx, b.books, job.Ticket{Sequence: "lane", Number: 1}, []job.Newcomer{{Job: job.Job{ID: "j"}, Digest: "d"}}, "park")
		if !errors.Is(err, redisdb.ErrNewer) || job.CodeOf(err) != job.CodeUsage {
			t.Errorf("%s: %v, %v", who, answers, err)
		}
		if n := b.c.Exists(b.ctx, b.keys.Job("j"), b.keys.Pending(), b.keys.Admission()).Val(); n != 0 {
			t.Errorf("%s: %d keys were written", who, n)
		}
	}
}

// The first job sets the format if no dispatcher has set it yet. A format that is set is not overwritten, and is read only once for all jobs.
func TestTheFirstJobSaysItsFormat(t *testing.T) {
	t.Parallel()
	b := setup(t, 5000, nil)
	b.on(testkit.Server(t).Client())
	b.accept("park", numbered(1, 3)...)
	if got := b.c.HGet(b.ctx, b.keys.Counters(), "format").Val(); got != redisdb.Format {
		t.Errorf("the format is %q", got)
	}
	b.c.HDel(b.ctx, b.keys.Counters(), "format")
	b.c.HSet(b.ctx, b.keys.Alive(), "format", redisdb.Format)
	asked := func(first, last int) string {
		b.c.ConfigResetStat(b.ctx)
		b.accept("park", numbered(first, last)...)
		return commands(b.c.Info(b.ctx, "commandstats").Val(), "hget", "hmget", "hsetnx")
	}
	one, many := asked(4, 4), asked(5, 504)
	if one != many || regexp.MustCompile("hsetnx").MatchString(one) {
		t.Errorf("one job: %s; 500 jobs: %s", one, many)
	}
	if b.c.HExists(b.ctx, b.keys.Counters(), "format").Val() {
		t.Error("the format was written although a dispatcher has written it")
	}
}

// commands returns how often commands were run, as Redis counts them.
func commands(stats string, names ...string) (all string) {
	for _, name := range names {
		if m := regexp.MustCompile(`cmdstat_` + name + `:calls=\d+`).FindString(stats); m != "" {
			all += m + " "
		}
	}
	return all
}
