package desk

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"spillway/internal/ledger"
)

const (
	mostPrefixed = 100       // jobs of a page of a search
	mostScanned  = 1_000_000 // keys of Redis that one page looks at: about a second
	scanFor      = 4 * time.Second
)

// JobName names a job.
type JobName struct{ Gateway, ID string }

// Prefixed is a page of the jobs whose ids begin in some way.
type Prefixed struct {
	Jobs []JobName // by id
	Keys int64     // about how many keys of Redis were looked at
	Next string    // the cursor of the next page; empty if all keys were looked at
}

// Prefixed searches the jobs whose ids begin so, behind a cursor (empty: from the beginning). Redis has no order of ids, so it goes through the keys, and stops after a while with what it has found. An error
// with the code usage says that the cursor is none.
func (d *Desk) Prefixed(ctx context.Context, prefix, after string) (Prefixed, error) {
	books := make([]*ledger.Books, len(d.Gateways))
	for i, g := range d.Gateways {
		books[i] = g.Books
	}
	found, err := ledger.FindPrefix(ctx, books, ledger.PrefixSearch{Prefix: prefix, After: after, Jobs: mostPrefixed, Keys: mostScanned, Within: scanFor})
	p := Prefixed{Keys: found.Keys, Next: found.Next}
	for gateway, ids := range found.IDs {
		for _, id := range ids {
			p.Jobs = append(p.Jobs, JobName{gateway, id})
		}
	}
	slices.SortFunc(p.Jobs, func(a, b JobName) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Gateway, b.Gateway))
	})
	return p, err
}
