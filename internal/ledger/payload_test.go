package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// sized returns a payload of n bytes, no two stretches of which are alike.
func sized(n int) []byte {
	var text strings.Builder
	text.WriteString(`{"n":"`)
	for i := 0; text.Len() < n; i++ {
		fmt.Fprintf(&text, "%d,é;", i)
	}
	return []byte(text.String()[:n-2] + `"}`)
}

// A payload may be stored in pieces. Every reader gets it whole, and nothing of it is left when the job is done.
func TestAPayloadOfAnySizeIsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{9, 63, 64, 65, 128, 129, 200, 511, 512, 513, 5000} {
		b := setup(t, 10, nil)
		payload := sized(size)
		newcomer := job.Newcomer{Job: job.Job{ID: "a", Payload: payload, Batch: "b"}, Digest: "0123456789abcdef"}
		_, _, err := testkit.Accept(b.ctx, b.books, job.Ticket{Sequence: "lane", Number: 1}, []job.Newcomer{newcomer}, "park")
		b.must(err)
		want(t, fmt.Sprintf("%d bytes in the record", size), string(b.record("a").Job.Payload), string(payload))
		encoding := b.c.ObjectEncoding(b.ctx, b.keys.Job("a")).Val()
		want(t, fmt.Sprintf("%d bytes are kept in little memory", size), encoding == "listpack", size <= 512)
		id, generation := b.pull()
		a, opening := b.open(id, generation, "w1")
		want(t, "opening", opening, job.OpenGo)
		want(t, fmt.Sprintf("%d bytes for the call", size), string(a.Job.Payload), string(payload))
		b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone}))
		fields := b.c.HKeys(b.ctx, b.keys.Job("a")).Val()
		for _, f := range record.Shorts(record.PayloadFields()) {
			if slices.Contains(fields, f) {
				t.Errorf("%d bytes: a done job's record has still %s", size, f)
			}
		}
	}
}

// A record whose payload is whole in one field is read, too: jobs accepted before an update go on.
func TestAPayloadInOnePieceIsReadWhateverItsSize(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "a", Payload: sized(200)})
	b.c.HDel(b.ctx, b.keys.Job("a"), record.Shorts(record.PayloadFields())...)
	b.c.HSet(b.ctx, b.keys.Job("a"), "p", string(sized(300)))
	want(t, "in the record", string(b.record("a").Job.Payload), string(sized(300)))
	id, generation := b.pull()
	a, _ := b.open(id, generation, "w1")
	want(t, "for the call", string(a.Job.Payload), string(sized(300)))
}
