package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

// A search whose time is up says where it stopped, and the next one continues from there. Together they find everything.
func TestASearchGoesOnWhereItsTimeWasUp(t *testing.T) {
	t.Parallel()
	b := setup(t, 100, nil)
	for i := range 5 {
		b.accept("park", job.Job{ID: fmt.Sprintf("inv-%d", i), Gateway: b.name, Payload: []byte(`{}`), Cost: 1})
	}
	pipe := b.c.Pipeline()
	for i := range 5000 { // several steps of the scan
		pipe.Set(b.ctx, fmt.Sprintf("other:{%s}:%d", b.name, i), "", time.Hour)
	}
	_, err := pipe.Exec(b.ctx)
	b.must(err)
	found, pages := map[string]bool{}, 0
	for after := ""; ; pages++ {
		page, err := ledger.FindPrefix(b.ctx, []*ledger.Books{b.books}, ledger.PrefixSearch{Prefix: "inv-", After: after, Jobs: 100, Keys: 1e9, Within: time.Nanosecond})
		b.must(err)
		for _, id := range page.IDs[b.name] {
			found[id] = true
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(found) != 5 || pages < 2 {
		t.Errorf("%d jobs in %d pages more", len(found), pages)
	}
}
