package ledger_test

import (
	"fmt"
	"testing"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// inside moves a bench to a Redis in this process, whose Lua is another implementation.
func (b *bench) inside() {
	b.t.Helper()
	db, err := redisdb.Open(b.ctx, "embedded", redisdb.Options{})
	b.must(err)
	b.t.Cleanup(func() { _ = db.Close() })
	b.on(db.Client)
}

// The books of run and demo without a Redis server are exactly what a server's would be, whatever goes in or is parked, alone or in a
// plain chunk.
func TestTheRedisInsideKeepsTheSameBooks(t *testing.T) {
	t.Parallel()
	for n, c := range []struct {
		batch string
		money func([]byte) string
	}{{"november", eurosOrMore}, {"november", nil}, {"", eurosOrMore}, {"", nil}} {
		books := func(suffix string, move func(*bench)) *bench {
			b := onTwin(t, fmt.Sprintf("same%d%s", n, suffix))
			b.cfg.Money = c.money
			move(b)
			b.accept("park", manySizes(c.batch)...) // room for all
			b.burst(1)
			for i := range 3 { // no room
				b.accept("park", job.Job{ID: fmt.Sprintf("x%d", i), Batch: c.batch, Payload: payloads[1]}, job.Job{ID: fmt.Sprintf("y%d", i), Batch: c.batch, Payload: payloads[1]})
			}
			b.clean("parked")
			if c.batch != "" {
				b.must(b.books.PauseBatch(b.ctx, c.batch, "me", "bank closed", noted))
				b.accept("park", job.Job{ID: "late", Batch: c.batch, Payload: payloads[1]}, job.Job{ID: "later", Batch: c.batch, Payload: payloads[1]})
				b.must(b.books.ResumeBatch(b.ctx, c.batch, noted))
			}
			b.burst(1000)
			_, _, err := b.books.Readmit(b.ctx, b.back("x0", "y0", "x1"))
			b.must(err)
			b.clean("taken in")
			return b
		}
		inside, server := books("i", (*bench).inside), books("s", func(b *bench) { b.on(b.c) })
		alike(t, fmt.Sprintf("batch %q, money %v", c.batch, c.money != nil), inside, server)
	}
	inside, server := onTwin(t, "kindsi"), onTwin(t, "kindss")
	inside.inside()
	for _, b := range []*bench{inside, server} {
		_, _, err := b.books.Readmit(b.ctx, b.parksOfAllKinds())
		b.must(err)
		b.clean("all kinds")
	}
	alike(t, "jobs of all kinds", inside, server)
}
