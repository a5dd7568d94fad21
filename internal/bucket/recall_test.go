package bucket

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// recalls is a gateway on which two processes follow what is set live.
type recalls struct {
	t   *testing.T
	c   redis.UniversalClient
	k   redisdb.Keys
	p   *Pacer
	one SetLive
	two SetLive
}

func newRecalls(t *testing.T) *recalls {
	t.Helper()
	client := testkit.Client(t)
	cfg := PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}, Routes: []Route{{Name: "refund", Limits: []job.Limit{per(50, time.Second)}}}}
	p, err := NewPacer(client, cfg, NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	return &recalls{t: t, c: client, k: redisdb.NewKeys(cfg.Gateway), p: p}
}

func (r *recalls) pause(lane string, paused bool) {
	r.t.Helper()
	if err := r.p.OverrideLane(r.t.Context(), lane, OverrideChange{Paused: &paused}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recalls) weighs(lane string, weight int64) {
	r.t.Helper()
	if err := r.p.OverrideLane(r.t.Context(), lane, OverrideChange{Weight: &weight}); err != nil {
		r.t.Fatal(err)
	}
}

// looks makes a process look, and checks for how many lanes and routes it has told Redis again what was set.
func (r *recalls) looks(s *SetLive, told int) {
	r.t.Helper()
	if got, err := r.p.Recall(r.t.Context(), s); err != nil || got != told {
		r.t.Fatalf("told %d again, want %d: %v", got, told, err)
	}
}

// wants checks what is set live for lanes: p is paused, - is not.
func (r *recalls) wants(what, of string) {
	r.t.Helper()
	got := ""
	for _, lane := range []string{"a", "b", "c"} {
		o, err := Overridden(r.t.Context(), r.c, r.p.gateway, redisdb.OfLane, lane)
		if err != nil {
			r.t.Fatal(err)
		}
		got += map[bool]string{true: "p", false: "-"}[o.Paused]
	}
	if got != of {
		r.t.Fatalf("%s: %s, want %s", what, got, of)
	}
}

func (r *recalls) loses(keys ...string) {
	r.t.Helper()
	if err := r.c.Del(r.t.Context(), keys...).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// What was set live for lanes and routes is restored after Redis has lost it. What an operator takes back stays so.
func TestWhatWasSetLiveForLanesIsToldAgain(t *testing.T) {
	t.Parallel()
	r := newRecalls(t)
	if err := r.p.PauseRoute(t.Context(), "refund", true); err != nil {
		t.Fatal(err)
	}
	r.pause("a", true)
	r.pause("c", true)
	r.looks(&r.one, 0)
	r.pause("c", false)
	r.looks(&r.one, 0)
	r.looks(&r.two, 0)
	r.looks(&r.two, 0)

	r.loses(r.k.Overrides(), r.k.Lanes())
	r.wants("after FLUSHALL", "---")
	r.looks(&r.one, 2)
	r.wants("told again", "p--")
	if o, err := Overridden(t.Context(), r.c, r.p.gateway, redisdb.OfRoute, "refund"); err != nil || !o.Paused {
		t.Errorf("the route: %+v, %v", o, err)
	}
	r.looks(&r.two, 0)
	r.pause("a", false)
	r.looks(&r.two, 0)
	r.looks(&r.one, 0)
	r.wants("taken back", "---")

	r.pause("b", true)
	r.looks(&r.one, 0)
	r.looks(&r.two, 0)
	r.loses(r.k.Overrides())
	r.looks(&r.two, 2)
	r.looks(&r.one, 0)
	r.wants("the hash was deleted", "-p-")

	r.loses(r.k.Overrides(), r.k.Lanes())
	r.pause("c", true) // before anybody has noticed
	r.looks(&r.one, 2)
	r.wants("an act before anybody noticed", "-pp")
	r.looks(&r.two, 0)

	r.loses(r.k.Overrides(), r.k.Lanes())
	r.pause("a", true)
	r.pause("b", false)
	r.pause("c", false)
	var fresh SetLive
	r.looks(&fresh, 0)
	r.wants("a process that has seen nothing", "p--")

	r = newRecalls(t)
	r.pause("a", true)
	r.looks(&r.one, 0)
	r.loses(r.k.Overrides(), r.k.Lanes())
	r.pause("b", true)
	r.looks(&r.one, 1)
	r.wants("as many acts since the loss as before it", "pp-")
}

// An older snapshot of Redis has what was set before it. What was set after it is told again.
func TestWhatWasSetLiveAfterASnapshotIsToldAgain(t *testing.T) {
	t.Parallel()
	r := newRecalls(t)
	r.pause("a", true)
	r.weighs("c", 2)
	lanes, set := r.c.HGetAll(t.Context(), r.k.Lanes()).Val(), r.c.HGetAll(t.Context(), r.k.Overrides()).Val()
	r.pause("b", true)
	r.weighs("c", 5)
	r.looks(&r.one, 0)
	r.loses(r.k.Overrides(), r.k.Lanes())
	if err := r.c.HSet(t.Context(), r.k.Lanes(), lanes).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.c.HSet(t.Context(), r.k.Overrides(), set).Err(); err != nil {
		t.Fatal(err)
	}
	r.wants("restored", "p--")
	r.looks(&r.one, 2)
	r.wants("told again", "pp-")
	if o, err := Overridden(t.Context(), r.c, r.p.gateway, redisdb.OfLane, "c"); err != nil || o.Weight != 5 {
		t.Errorf("%+v, %v", o, err)
	}
}

// An older snapshot of Redis has what an operator has taken back since. It is taken back again, but what is set after the loss is not.
func TestWhatWasTakenBackAfterASnapshotStaysSo(t *testing.T) {
	t.Parallel()
	r := newRecalls(t)
	r.pause("a", true)
	r.pause("b", true)
	r.looks(&r.one, 0)
	lanes, set := r.c.HGetAll(t.Context(), r.k.Lanes()).Val(), r.c.HGetAll(t.Context(), r.k.Overrides()).Val()
	restore := func() {
		t.Helper()
		r.loses(r.k.Overrides(), r.k.Lanes())
		if err := errors.Join(r.c.HSet(t.Context(), r.k.Lanes(), lanes).Err(), r.c.HSet(t.Context(), r.k.Overrides(), set).Err()); err != nil {
			t.Fatal(err)
		}
	}
	r.pause("a", false)
	r.weighs("c", 2)
	r.weighs("c", 0)
	r.looks(&r.one, 0)
	r.looks(&r.two, 0)
	restore()
	r.wants("restored", "pp-")
	r.looks(&r.two, 0) // it has never seen it set
	restore()
	r.looks(&r.one, 1)
	r.wants("taken back again", "-p-")

	r.pause("a", true)
	r.looks(&r.one, 0)
	r.wants("paused again", "pp-")
	r.pause("a", false)
	r.looks(&r.one, 0)
	restore()
	r.pause("c", true)
	r.looks(&r.one, 1)
	r.wants("an act before anybody noticed", "-pp")
}

// Thousands are told again in parts. If something is set meanwhile, the rest comes the next time.
func TestManyAreToldAgainInParts(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	r := newRecalls(t)
	const n = 2*recallChunk + 3
	for i := range n {
		r.pause(fmt.Sprintf("m%04d", i), true)
	}
	r.looks(&r.one, 0)
	r.loses(r.k.Overrides(), r.k.Lanes())
	r.looks(&r.one, n)
	if got := r.c.HLen(t.Context(), r.k.Overrides()).Val(); got != n {
		t.Errorf("%d of %d", got, n)
	}
	at, _, err := r.p.liveAt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if told, err := r.p.tellAgain(t.Context(), r.one.all, liveAt{at.epoch, at.version - 1}, at); err != nil || told != 0 {
		t.Errorf("told %d over what an operator has set: %v", told, err)
	}
}

// What was set by a version of the program that did not count acts is kept, too. An act that is counted since is not mistaken for a loss.
func TestWhatWasSetBeforeActsWereCounted(t *testing.T) {
	t.Parallel()
	r := newRecalls(t)
	r.pause("a", true)
	r.loses(r.k.Lanes())
	r.looks(&r.one, 0)
	r.pause("a", false)
	r.pause("b", true)
	r.looks(&r.one, 0)
	r.wants("an act that counts", "-p-")
	r.one = SetLive{}
	r.loses(r.k.Lanes())
	r.looks(&r.one, 0)
	r.loses(r.k.Overrides())
	r.looks(&r.one, 1)
	r.wants("told again", "-p-")
}
