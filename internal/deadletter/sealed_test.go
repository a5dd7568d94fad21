package deadletter_test

import (
	"bytes"
	"strings"
	"testing"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/seal"
)

func (b *bench) sealing(active string) {
	keys := []seal.Key{{ID: "old", Secret: bytes.Repeat([]byte{1}, seal.KeyBytes)}, {ID: "new", Secret: bytes.Repeat([]byte{2}, seal.KeyBytes)}}
	b.store = b.store.Sealing(seal.New(b.name, active, keys))
}

// A payload that replaces another is sealed, too. An equal payload is recognised whatever key sealed it.
func TestAReplacedPayloadIsSealed(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.sealing("old")
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.Refused, refused("HTTP 402"))
	edited := job.Job{ID: "a", Payload: []byte(`{"n":2}`)}
	if got := b.replace(edited, "other"); got.Err != nil || got.Same {
		t.Fatalf("%+v", got)
	}
	stored := b.c.HMGet(b.ctx, b.keys.Job("a"), "p", "d").Val()
	if p, _ := stored[0].(string); !seal.Sealed([]byte(p)) || stored[1] == "other" {
		t.Errorf("stored as %q", stored)
	}
	b.sealing("new")
	if got := b.replace(edited, "other"); got.Err != nil || got.Same { // sealed with the old key: the same payload, not replayed yet
		t.Errorf("once more: %+v", got)
	}
	want(t, "key after the second time", b.record("a").KeyGeneration, 2)
	for r, err := range b.store.List(b.ctx, deadletter.Filter{}) {
		b.must(err)
		want(t, "payload", string(r.Job.Payload), `{"n":2}`)
	}
}

// What is not a job may hold the same as one.
func TestForeignContentIsSealed(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.sealing("new")
	for range 2 {
		b.must(b.store.ParkUnreadable(b.ctx, "email-1", []byte("4111 1111 1111 1111"), "foreign"))
	}
	if all := b.c.HGetAll(b.ctx, b.keys.Job("email-1")).Val(); strings.Contains(all["p"], "4111") {
		t.Errorf("stored as %v", all)
	}
	n := 0
	for r, err := range b.store.List(b.ctx, deadletter.Filter{}) {
		b.must(err)
		want(t, "content", string(r.Job.Payload), "4111 1111 1111 1111")
		n++
	}
	want(t, "parked", n, 1)
}

func TestAListSaysWhichPayloadsCantBeOpened(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.sealing("new")
	b.must(b.store.ParkUnreadable(b.ctx, "a", []byte("secret"), "foreign"))
	for r, err := range b.store.Sealing(nil).List(b.ctx, deadletter.Filter{}) {
		b.must(err)
		want(t, "payload", string(r.Job.Payload), "")
		want(t, "unopened", r.Unopened != nil && strings.Contains(r.Unopened.Error(), "new"), true)
		want(t, "sealed", seal.Sealed(r.Sealed), true)
	}
}
