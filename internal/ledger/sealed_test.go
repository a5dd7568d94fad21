package ledger_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/seal"
	"spillway/internal/testkit"
)

func keyNamed(id string, fill byte) seal.Key {
	return seal.Key{ID: id, Secret: bytes.Repeat([]byte{fill}, seal.KeyBytes)}
}

var oldKey, newKey = keyNamed("k2025", 1), keyNamed("k2026", 2)

// sealing is a bench whose books seal with the key active; keyed gives the books other keys later.
func sealing(t *testing.T, active string, keys ...seal.Key) *bench {
	t.Helper()
	return setup(t, 100, func(c *ledger.Config) {
		c.Box = seal.New(c.Gateway, active, keys)
		c.Money = func(p []byte) string { return job.MoneyField(p, "n", "") }
	})
}

func (b *bench) keyed(active string, keys ...seal.Key) {
	b.cfg.Box = nil
	if len(keys) > 0 {
		b.cfg.Box = seal.New(b.name, active, keys)
	}
	b.on(b.c)
}

// everything is all that Redis has of the gateway, as it is stored.
func (b *bench) everything() string {
	b.t.Helper()
	var all strings.Builder
	for _, key := range b.c.Keys(b.ctx, "*{"+b.name+"}*").Val() {
		fmt.Fprintln(&all, key, b.c.HGetAll(b.ctx, key).Val(), b.c.LRange(b.ctx, key, 0, -1).Val(), b.c.ZRange(b.ctx, key, 0, -1).Val(), b.c.Get(b.ctx, key).Val())
	}
	return all.String()
}

func TestASealedJobIsReadByItsKeyAlone(t *testing.T) {
	t.Parallel()
	for _, size := range []int{20, 200, 5000} {
		b := sealing(t, "k2026", newKey)
		payload := sized(size)
		b.accept("park", job.Job{ID: "a", Payload: payload})
		if all := b.everything(); strings.Contains(all, string(payload[5:15])) || strings.Contains(all, "d:{") {
			t.Errorf("%d bytes: the payload, or its digest, is in Redis as it is", size)
		}
		r := b.record("a")
		want(t, "payload in the record", string(r.Job.Payload), string(payload))
		want(t, "sealed", seal.Sealed(r.Sealed), true)
		id, generation := b.pull()
		a, opening := b.open(id, generation, "w1")
		want(t, "opening", opening, job.OpenGo)
		want(t, "payload for the call", string(a.Job.Payload), string(payload))
	}
}

func TestMoneyIsReadBeforeThePayloadIsSealed(t *testing.T) {
	t.Parallel()
	b := sealing(t, "k2026", newKey)
	b.accept("park", job.Job{ID: "a", Payload: []byte(`{"n":4900}`)})
	want(t, "money", b.record("a").Money, "4900 ")
}

// A job that was accepted under an old key, or in plain, is a duplicate after the key has changed, is called, and is a conflict with another payload.
func TestKeysMayChangeWhileJobsWait(t *testing.T) {
	t.Parallel()
	b := sealing(t, "", oldKey)
	b.accept("park", job.Job{ID: "plain", Payload: []byte(`{"n":1}`)})
	b.keyed("k2025", oldKey)
	b.accept("park", job.Job{ID: "old", Payload: []byte(`{"n":2}`)})
	b.keyed("k2026", newKey, oldKey)
	b.accept("park", job.Job{ID: "new", Payload: []byte(`{"n":3}`)})
	for i, id := range []string{"plain", "old", "new"} {
		payload := fmt.Sprintf(`{"n":%d}`, i+1)
		want(t, id+" again", b.accept("park", job.Job{ID: id, Payload: []byte(payload)})[0], job.Duplicate)
		want(t, id+" with another payload", b.accept("park", job.Job{ID: id, Payload: []byte(`{"n":9}`)})[0], job.Conflict)
		pulled, generation := b.pull()
		a, opening := b.open(pulled, generation, "w1")
		want(t, id+" opening", opening, job.OpenGo)
		want(t, id+" payload", string(a.Job.Payload), payload)
	}
}

func TestAJobWithoutItsKeyIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]seal.Key{"no encryption": nil, "another key": {newKey}, "a wrong one": {keyNamed("k2025", 9)}} {
		b := sealing(t, "k2025", oldKey)
		b.accept("park", job.Job{ID: "a", Payload: []byte(`{"n":1}`)})
		b.keyed("", keys...)
		id, generation := b.pull()
		a, opening := b.open(id, generation, "w1")
		want(t, name+": opening", opening, job.OpenSealed)
		want(t, name+": payload", string(a.Job.Payload), "")
		want(t, name+": the error names the key", strings.Contains(a.LastError, "k2025"), true)
		r := b.record("a")
		want(t, name+": the record says so", r.Unopened != nil && len(r.Job.Payload) == 0 && len(r.Sealed) > 0, true)
	}
}

// An attacker who can write to Redis gives one job the payload of another, or changes a bit of it.
func TestAPayloadOfAnotherJobIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]func(*bench, string){
		"of another job":     func(b *bench, other string) { b.c.HSet(b.ctx, b.keys.Job("a"), "p", other) },
		"of another gateway": func(b *bench, _ string) { b.c.HSet(b.ctx, b.keys.Job("a"), "p", foreign(b, "a")) },
		"one bit": func(b *bench, _ string) {
			stored := []byte(b.c.HGet(b.ctx, b.keys.Job("a"), "p").Val())
			stored[len(stored)-20] ^= 1
			b.c.HSet(b.ctx, b.keys.Job("a"), "p", stored)
		},
	} {
		b := sealing(t, "k2026", newKey)
		b.accept("park", job.Job{ID: "a", Payload: sized(5000)}, job.Job{ID: "rich", Payload: sized(6000)})
		tamper(b, b.c.HGet(b.ctx, b.keys.Job("rich"), "p").Val())
		id, generation := b.pull()
		a, opening := b.open(id, generation, "w1")
		want(t, name+": job", id, "a")
		want(t, name+": opening", opening, job.OpenChanged)
		want(t, name+": payload", string(a.Job.Payload), "")
	}
}

func foreign(b *bench, id string) string {
	stored, err := seal.New("elsewhere", "k2026", []seal.Key{newKey}).Seal(id, sized(5000))
	b.must(err)
	return string(stored)
}

// digested is the digest that the bench gives its jobs.
func digested(payload []byte) string { return "d:" + string(payload) }

// checked gives the books a box that holds payloads against their digests.
func (b *bench) checked(require bool, active string, keys ...seal.Key) {
	b.cfg.Box = seal.New(b.name, active, keys).Checking(digested, require)
	b.on(b.c)
}

// put writes a payload to a record, as an attacker could who can write to Redis and has no key.
func (b *bench) put(id string, payload []byte, more ...any) {
	k := b.keys.Job(id)
	b.c.HDel(b.ctx, k, "pn", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8")
	b.must(b.c.HSet(b.ctx, k, append([]any{"p", payload}, more...)...).Err())
}

// A job whose digest was made with a key is called only with the payload of that digest. Jobs accepted under an older key go on, and so do those accepted in
// plain before there were keys, unless sealed payloads are required. Then these wait, since nothing shows whether they were changed.
func TestOnlyThePayloadOfItsDigestIsCalled(t *testing.T) {
	t.Parallel()
	mule := []byte(`{"n":999999}`)
	for name, tc := range map[string]struct {
		before  string // the active key when the job was accepted; empty: none
		tamper  func(b *bench)
		require bool
		want    job.Opening
	}{
		"sealed":                          {"k2026", func(*bench) {}, false, job.OpenGo},
		"sealed, required":                {"k2026", func(*bench) {}, true, job.OpenGo},
		"under an older key":              {"k2025", func(*bench) {}, true, job.OpenGo},
		"from before":                     {"", func(*bench) {}, false, job.OpenGo},
		"from before, required":           {"", func(*bench) {}, true, job.OpenSealed},
		"plain in its place":              {"k2026", func(b *bench) { b.put("a", mule) }, false, job.OpenChanged},
		"plain under an older key":        {"k2025", func(b *bench) { b.put("a", mule) }, false, job.OpenChanged},
		"plain with a digest of its own":  {"k2026", func(b *bench) { b.put("a", mule, "d", "0123456789abcdef") }, true, job.OpenSealed},
		"sealed, with a digest in plain":  {"k2026", func(b *bench) { b.c.HSet(b.ctx, b.keys.Job("a"), "d", "0123456789abcdef") }, true, job.OpenChanged},
		"plain in its place, required":    {"k2026", func(b *bench) { b.put("a", mule) }, true, job.OpenChanged},
		"another payload of the same job": {"k2026", func(b *bench) { b.put("a", []byte(sealedFor(b, "a", mule))) }, false, job.OpenChanged},
		"another one's digest": {"k2026", func(b *bench) {
			b.put("a", mule, "d", b.c.HGet(b.ctx, b.keys.Job("other"), "d").Val())
		}, false, job.OpenChanged},
		"gone": {"k2026", func(b *bench) {
			b.put("a", mule)
			b.c.HDel(b.ctx, b.keys.Job("a"), "p")
		}, false, job.OpenChanged},
	} {
		b := sealing(t, tc.before, newKey, oldKey)
		b.checked(false, tc.before, newKey, oldKey)
		b.accept("park", job.Job{ID: "a", Payload: sized(200)}, job.Job{ID: "other", Payload: mule})
		tc.tamper(b)
		b.checked(tc.require, "k2026", newKey, oldKey)
		r := b.record("a")
		id, generation := b.pull()
		a, opening := b.open(id, generation, "w1")
		want(t, name+": opening", opening, tc.want)
		want(t, name+": the record shows it", len(r.Job.Payload) > 0, tc.want == job.OpenGo)
		payload, text := "", a.LastError
		if tc.want == job.OpenGo {
			payload = string(sized(200))
		}
		want(t, name+": payload", string(a.Job.Payload), payload)
		want(t, name+": it says why", text == "", tc.want == job.OpenGo)
	}
}

func sealedFor(b *bench, id string, payload []byte) string {
	stored, err := seal.New(b.name, "k2026", []seal.Key{newKey}).Seal(id, payload)
	b.must(err)
	return string(stored)
}

// A process without keys can't check what was sealed, and still accepts no plain text in its place.
func TestWithoutKeysAPlainPayloadIsNotTakenForASealedOne(t *testing.T) {
	t.Parallel()
	b := sealing(t, "k2026", newKey)
	b.accept("park", job.Job{ID: "a", Payload: []byte(`{"n":1}`)})
	b.put("a", []byte(`{"n":9}`))
	b.keyed("")
	id, generation := b.pull()
	_, opening := b.open(id, generation, "w1")
	want(t, "opening", opening, job.OpenChanged)
}

func TestNothingIsStoredInPlainWhenTheActiveKeyIsMissing(t *testing.T) {
	t.Parallel()
	b := sealing(t, "k2026", oldKey)
	_, _, err := testkit.Accept(b.ctx, b.books, job.Ticket{Sequence: "l", Number: 1}, []job.Newcomer{{Job: job.Job{ID: "a", Payload: []byte(`{}`)}, Digest: "d"}}, "park")
	if err == nil || !strings.Contains(err.Error(), "k2026") {
		t.Errorf("got %v", err)
	}
	want(t, "stored", b.c.Exists(b.ctx, b.keys.Job("a")).Val(), int64(0))
}
